"""Takes pictures of panels of studies with Chromium, as their pages draw them; a part of study_results.py."""

from __future__ import annotations

import shutil
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from sfumato.report.page.html import PlacedFigures, render_page
from sfumato.studies.page.panel_data import PanelData
from sfumato.studies.page.panels import figures_of

if TYPE_CHECKING:
    from study_results import Kept

    from sfumato.studies.study import Panel

ONLY_THE_FIGURE = """<style>
h1, h2, h3, header, footer, .facts, details, figcaption, .modebar-container { display: none }
body, main, section, figure { margin: 0; padding: 4px; border: none; max-width: none }
</style></head>"""
FLAGS = ["--headless", "--no-sandbox", "--disable-gpu", "--hide-scrollbars", "--virtual-time-budget=20000"]
WIDTH = 860


def take_pictures(wanted: Mapping[Path, tuple[Kept, Panel]]) -> int:
    """Write every picture; returns the exit status."""
    chromium = shutil.which("chromium")
    if wanted and chromium is None:
        print("chromium is not installed: apt-get install chromium", file=sys.stderr)
        return 1
    for file, (kept, panel) in wanted.items():
        figure = figures_of(PanelData.of(kept.result.plan, panel, kept.result.table))[0]
        placed = PlacedFigures()
        page = render_page(panel.title, "", [placed.place(figure)], placed)
        file.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory() as folder:
            source = Path(folder) / "figure.html"
            source.write_text(page.replace("</head>", ONLY_THE_FIGURE, 1), "utf-8")
            size = f"--window-size={WIDTH},{figure.layout['height'] + 30:.0f}"
            command = [str(chromium), *FLAGS, f"--user-data-dir={folder}/profile", size]
            command += ["--blink-settings=preferredColorScheme=1", f"--screenshot={file}", source.as_uri()]
            subprocess.run(command, check=True, capture_output=True)
        print(f"{file.name}: {file.stat().st_size:,} bytes")
    return 0
