"""Makes the pictures of the README and the gallery in docs/images.

    python docs/pictures.py     # a few minutes: it runs the quickstart with its twin, and a study

Chromium, and the packages of ``requirements/dev.lock``, must be installed (Debian: apt-get install chromium).
"""

from __future__ import annotations

import os
import shutil
import sys
import tempfile
import threading
from pathlib import Path
from typing import Any

import sfumato as sf

IMAGES = Path(__file__).parent / "images"
COLOURS = 128  # of a palette: a page has few, and the file is a third of the size
MOST_BYTES = 150_000
SETTLED_MS = 2_000
PATIENCE_MS = 180_000
MARGIN = 12
STUDY = "dp-ogl/examples"


def main() -> int:
    """Write the pictures; returns the exit status."""
    chromium = shutil.which("chromium")
    if chromium is None:
        print("chromium is not installed: apt-get install chromium", file=sys.stderr)
        return 1
    from playwright.sync_api import sync_playwright

    with tempfile.TemporaryDirectory() as folder, sync_playwright() as playwright:
        os.chdir(folder)
        run = sf.run(sf.load_spec("quickstart"), out="runs/quickstart", baseline=True)
        report = run.path.absolute() / "report.html"
        browser = playwright.chromium.launch(executable_path=chromium, args=["--no-sandbox", "--disable-gpu"])
        heatmap_of(browser, report)
        top_of(browser, report, "report", height=1000)
        top_of(browser, report, "report-dark", height=600, scheme="dark")
        top_of(browser, sf.statement("runs/quickstart").absolute(), "statement", height=900)
        top_of(browser, study(), "study", height=1100)
        explored(browser)
        browser.close()
    return 0


def heatmap_of(browser: Any, report: Path) -> None:
    """The figure *Who learns what about whom*, alone."""
    page = opened(browser, report.as_uri(), width=1100, height=900)
    page.add_style_tag(content="figure details { display: none }")
    drawn = page.locator("section:has(.heatmap) figure").first
    drawn.scroll_into_view_if_needed()
    page.wait_for_timeout(SETTLED_MS)
    box = drawn.bounding_box()
    around = {"x": box["x"] - MARGIN, "y": box["y"], "width": box["width"] + 2 * MARGIN}
    kept("heatmap", page.screenshot(clip=around | {"height": box["height"] + MARGIN}))
    page.context.close()


def top_of(browser: Any, path: Path, name: str, *, height: int, scheme: str = "light") -> None:
    """The first screen of a page."""
    page = opened(browser, path.as_uri(), width=1100, height=height, scheme=scheme)
    kept(name, page.screenshot())
    page.context.close()


def study() -> Path:
    """The page of a study that needs no training."""
    from sfumato.cli import main as command

    command(["study", STUDY, "--out", "runs/studies"])
    return next(path for path in Path("runs/studies", STUDY).absolute().rglob("index.html"))


def explored(browser: Any) -> None:
    """The page of `sfumato explore`, of the quickstart."""
    from sfumato.explore.server import serving

    with serving("quickstart", port=0, runs=Path("runs")) as (address, server):
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        page = opened(browser, address, width=1300, height=1000)
        page.locator("#heatmap .heatmaplayer").first.wait_for()
        page.wait_for_timeout(SETTLED_MS)
        kept("explore", page.screenshot())
        page.context.close()
        server.shutdown()
        thread.join()


def opened(browser: Any, address: str, *, width: int, height: int, scheme: str = "light") -> Any:
    """A page whose figures are drawn."""
    context = browser.new_context(viewport={"width": width, "height": height}, color_scheme=scheme)
    page = context.new_page()
    page.set_default_timeout(PATIENCE_MS)
    page.goto(address)
    page.wait_for_timeout(SETTLED_MS)
    return page


def kept(name: str, png: bytes) -> None:
    """Write a picture with a small palette; `ValueError` if it is too large for a page."""
    from io import BytesIO

    from PIL import Image

    picture = Image.open(BytesIO(png)).convert("RGB").quantize(COLOURS, dither=Image.Dither.NONE)
    path = IMAGES / f"{name}.png"
    picture.save(path, optimize=True)
    size = path.stat().st_size
    print(f"{path}: {size:,} bytes")
    if size > MOST_BYTES:
        raise ValueError(f"{path} has {size:,} bytes; at most {MOST_BYTES:,} are wanted")


if __name__ == "__main__":
    sys.exit(main())
