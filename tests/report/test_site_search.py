"""docs/iframe-worker.js: the search of the site, a worker, runs on pages that were opened from files."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
from places import ROOT
from test_report_browser import chromium

PAGE = """<!doctype html><title>waiting</title><script src="iframe-worker.js"></script><script>
const worker = new Worker(new URL("search.js", location));
worker.addEventListener("message", ({ data }) => (document.title = JSON.stringify(data)));
worker.postMessage({ query: "delta" });
</script>"""
SEARCH = 'addEventListener("message", async ({ data }) => postMessage({ answer: data.query + "!" }));'


@pytest.mark.needs("chromium")
def test_a_worker_answers_on_a_page_from_a_file(tmp_path: Path) -> None:
    shutil.copy(ROOT / "docs" / "iframe-worker.js", tmp_path)
    (tmp_path / "search.js").write_text(SEARCH)
    (tmp_path / "page.html").write_text(PAGE)
    shown = chromium(tmp_path, "--dump-dom", (tmp_path / "page.html").as_uri()).decode()
    assert '<title>{"answer":"delta!"}</title>' in shown
