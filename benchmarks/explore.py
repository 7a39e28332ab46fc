"""From a click on an edge to the new heatmap in `sfumato explore quickstart`, in Chromium.

    python benchmarks/explore.py            # needs the extras explore and dev, and chromium

Prints the median and the largest of the clicks as a share of the half second that is allowed.
"""

from __future__ import annotations

import re
import shutil
import statistics
import tempfile
import threading
from pathlib import Path
from typing import Any

from playwright.sync_api import sync_playwright

from sfumato.explore.server import serving

ALLOWED_S = 0.5
EDGES = (0, 1, 2, 3, 4)
SINCE_CLICK = """
() => new Promise(done => {
  const heatmap = document.querySelector("#heatmap .js-plotly-plot");
  let start = null;
  document.addEventListener("mousedown", () => { start = performance.now(); }, {once: true, capture: true});
  heatmap.on("plotly_afterplot", () => { if (start !== null) done(performance.now() - start); });
})
"""


def clicks(address: str) -> list[float]:
    """Seconds from each click to the drawing that follows; every click makes a setting that is new."""
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(
            executable_path=shutil.which("chromium"),
            args=["--no-sandbox", "--disable-gpu", "--disable-background-networking"],
        )
        page = browser.new_page(viewport={"width": 1400, "height": 1000})
        page.goto(address)
        page.locator("#heatmap .heatmaplayer").first.wait_for()
        found = [one_click(page, edge) for edge in EDGES]
        browser.close()
    return found


def one_click(page: Any, edge: int) -> float:
    mark = page.locator("#network .scatterlayer text").filter(has_text=re.compile(f"^{edge}$")).first
    mark.scroll_into_view_if_needed()
    page.wait_for_timeout(1500)
    box = mark.bounding_box()
    page.evaluate(f"window.measured = ({SINCE_CLICK.strip()})(); null")
    page.mouse.click(box["x"] + box["width"] / 2, box["y"] + box["height"] / 2)
    return float(page.evaluate("() => window.measured")) / 1000


def main() -> None:
    with (
        tempfile.TemporaryDirectory() as runs,
        serving("quickstart", port=0, runs=Path(runs)) as (address, server),
    ):
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        shares = [seconds / ALLOWED_S for seconds in clicks(address)]
        server.shutdown()
        thread.join()
    print(f"of the half second: median {statistics.median(shares):.2f}, largest {max(shares):.2f}")


if __name__ == "__main__":
    main()
