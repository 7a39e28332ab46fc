"""The page in a real browser: a server for each test, one Chromium for all."""

from __future__ import annotations

import shutil
import subprocess
import threading
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import fast_python
import pytest
from explore_specs import TREE

import sfumato as sf
from sfumato.explore import jobs

FLAGS = ["--no-sandbox", "--disable-gpu", "--disable-background-networking"]
PATIENCE_MS = 60_000


@pytest.fixture
def fast_jobs(monkeypatch: pytest.MonkeyPatch) -> None:
    """Runs are forked from a process that has loaded everything."""
    fast = SimpleNamespace(Popen=fast_python.Popen, DEVNULL=subprocess.DEVNULL)
    monkeypatch.setattr(jobs, "subprocess", fast)


@pytest.fixture(scope="session")
def browser() -> Iterator[Any]:
    """The system's Chromium."""
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        started = playwright.chromium.launch(executable_path=shutil.which("chromium"), args=FLAGS)
        yield started
        started.close()


@pytest.fixture
def address(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, fast_jobs: None) -> Iterator[str]:
    """The page of `TREE`, served from an empty folder that holds its spec."""
    from sfumato.explore.server import serving

    monkeypatch.chdir(tmp_path)
    Path("small.yaml").write_text(sf.spec.dump_spec(sf.load_spec(TREE)), encoding="utf-8")
    with serving("small.yaml", port=0, runs=Path("runs")) as (found, server):
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        yield found
        server.shutdown()
        thread.join()


@pytest.fixture
def page(browser: Any, address: str) -> Iterator[Any]:
    """The page, drawn; afterwards it has asked for nothing from elsewhere, and no script has failed."""
    context = browser.new_context(viewport={"width": 1400, "height": 1000})
    shown = context.new_page()
    shown.set_default_timeout(PATIENCE_MS)
    asked, failed = list[str](), list[str]()
    context.on("request", lambda request: asked.append(request.url))
    shown.on("pageerror", lambda error: failed.append(str(error)))
    shown.on("console", lambda said: failed.append(said.text) if said.type == "error" else None)
    shown.goto(address)
    shown.locator("#heatmap .heatmaplayer").first.wait_for()
    yield shown
    context.close()
    home = address.partition("?")[0]
    assert [url for url in asked if not url.startswith((home, "data:", f"blob:{home}"))] == []
    assert failed == []
