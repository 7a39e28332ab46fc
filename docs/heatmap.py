"""Makes docs/images/heatmap.png: the figure *Who learns what about whom* of the quickstart's report.

    python docs/heatmap.py

It runs the quickstart (less than a minute), keeps only that figure of its report.html, and takes a picture
of it with Chromium. Chromium must be installed (Debian: apt-get install chromium).
"""

from __future__ import annotations

import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

import sfumato

PICTURE = Path(__file__).parent / "images" / "heatmap.png"
ONLY_THE_HEATMAP = """<style>
main > :not(section:has(.heatmap)), section details, h2, h3, .modebar-container { display: none }
body, main, section, figure { margin: 0; padding: 4px; border: none; max-width: none }
</style></head>"""
FLAGS = ["--headless", "--no-sandbox", "--disable-gpu", "--hide-scrollbars", "--virtual-time-budget=20000"]


def main() -> int:
    """Write the picture; returns the exit status."""
    chromium = shutil.which("chromium")
    if chromium is None:
        print("chromium is not installed: apt-get install chromium", file=sys.stderr)
        return 1
    with tempfile.TemporaryDirectory() as folder:
        report = Path(sfumato.run(sfumato.load_spec("quickstart"), out=Path(folder) / "run").report())
        page = Path(folder) / "heatmap.html"
        page.write_text(report.read_text("utf-8").replace("</head>", ONLY_THE_HEATMAP, 1), "utf-8")
        command = [chromium, *FLAGS, f"--user-data-dir={folder}/profile", "--force-device-scale-factor=2"]
        command += ["--blink-settings=preferredColorScheme=1", "--window-size=920,320"]
        subprocess.run([*command, f"--screenshot={PICTURE}", page.as_uri()], check=True, capture_output=True)
    print(f"{PICTURE}: {PICTURE.stat().st_size:,} bytes")
    return 0


if __name__ == "__main__":
    sys.exit(main())
