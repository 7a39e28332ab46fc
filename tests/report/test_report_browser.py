"""The page in a real browser: every figure is drawn, no script fails, nothing a user wrote is run."""

from __future__ import annotations

import struct
import subprocess
import zlib
from collections.abc import Callable
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest
from report_cases import CASES
from report_factory import metrics, quickstart_spec

from sfumato.report import write_report

Make = Callable[..., Path]
pytestmark = pytest.mark.needs("chromium")
FLAGS = [
    "--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--hide-scrollbars",
    "--disable-background-networking", "--disable-component-update", "--disable-sync",
    "--virtual-time-budget=20000",
]  # fmt: skip


class Drawn(HTMLParser):
    """What the browser made of the page: attributes of the root, and what each figure came to hold."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.root: dict[str, str | None] = {}
        self.figures: dict[str, list[str]] = {}
        self.words: dict[str, list[str]] = {}
        self._at = ""
        self._depth = 0
        self.feed(page)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        values = dict(attrs)
        if tag == "html":
            self.root = values
        if tag == "div" and (values.get("class") or "").startswith("plot "):
            self._at, self._depth = str(values["id"]), 0
            self.figures[self._at], self.words[self._at] = [], []
        if self._at:
            self._depth += tag == "div"
            self.figures[self._at].append(f"{tag}.{values.get('class') or ''}")

    def handle_endtag(self, tag: str) -> None:
        if self._at and tag == "div":
            self._depth -= 1
            if self._depth == 0:
                self._at = ""

    def handle_data(self, data: str) -> None:
        if self._at:
            self.words[self._at].append(data)


def chromium(tmp_path: Path, *arguments: str) -> bytes:
    command = ["chromium", *FLAGS, f"--user-data-dir={tmp_path / 'profile'}", *arguments]
    return subprocess.run(command, check=True, capture_output=True, timeout=120).stdout


def draw(folders: list[Path], tmp_path: Path) -> Drawn:
    page = write_report(folders, tmp_path / "report.html")
    drawn = Drawn(chromium(tmp_path, "--dump-dom", page.as_uri()).decode())
    assert drawn.root.get("data-errors") is None, drawn.root["data-errors"]
    assert drawn.root.get("data-pwned") is None
    assert drawn.root.get("data-drawn") == str(len(drawn.figures))
    for name, elements in drawn.figures.items():
        assert "svg.main-svg" in elements, name
    return drawn


def test_a_report_is_drawn(run_folder: Make, tmp_path: Path) -> None:
    drawn = draw([run_folder()], tmp_path)
    kinds = [name.split("-", 2)[2] for name in drawn.figures]
    assert kinds == [
        "heatmap", "accuracy", "epsilon", "network", "claims",
        "spending-energy", "spending-delay",
        "energy", "delay", "clip",
    ]  # fmt: skip
    by_kind = dict(zip(kinds, drawn.figures, strict=True))
    heatmap = by_kind["heatmap"]
    assert drawn.figures[heatmap].count("image.") >= 2  # the cells with a guarantee, and those without
    shown = drawn.words[heatmap]
    for words in ("∞", "71.3", "120 devices under edges 0, 2, 3", "own edge", "cloud"):
        assert words in shown
    points = [one for one in drawn.figures[by_kind["network"]] if one.startswith("path.point")]
    assert len(points) >= 200 + 6 + 3
    assert drawn.figures[by_kind["accuracy"]].count("path.js-line") == 1
    claims = [one for one in drawn.figures[by_kind["claims"]] if one.startswith("path.point")]
    assert len(claims) == 8


def test_all_extremes_are_drawn_on_one_page(run_folder: Make, tmp_path: Path) -> None:
    folders = [run_folder(case.__name__, **case()) for case in CASES]
    for k in range(3):
        run_folder(f"many/seed-{k}", quickstart_spec(name="many", seed=k), frame=metrics(15, seed=k))
    drawn = draw([*folders, tmp_path / "many"], tmp_path)
    assert len(drawn.figures) > 20


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_a_picture_of_it_is_not_blank(scheme: str, run_folder: Make, tmp_path: Path) -> None:
    page = write_report([run_folder()], tmp_path / "report.html")
    picture = tmp_path / "report.png"
    chosen = {"light": "1", "dark": "0"}[scheme]
    chromium(
        tmp_path, f"--blink-settings=preferredColorScheme={chosen}", "--window-size=1280,2400",
        f"--screenshot={picture}", page.as_uri(),
    )  # fmt: skip
    width, height, rows = png_rows(picture.read_bytes())
    assert (width, height) == (1280, 2400)
    assert len(set(rows)) > 400  # rows of text and drawing differ; those of an empty page do not
    assert (max(rows[0][1:4]) < 64) == (scheme == "dark")


def png_rows(picture: bytes) -> tuple[int, int, list[bytes]]:
    """Width, height and filtered rows (each led by its filter's number) of a PNG of 8 bits a channel."""
    position, data = 8, b""
    header: tuple[Any, ...] = ()
    while position < len(picture):
        (length,) = struct.unpack(">I", picture[position : position + 4])
        kind, body = picture[position + 4 : position + 8], picture[position + 8 : position + 8 + length]
        header = struct.unpack(">IIBB", body[:10]) if kind == b"IHDR" else header
        data += body if kind == b"IDAT" else b""
        position += 12 + length
    width, height, _, colours = header
    plain = zlib.decompress(data)
    stride = 1 + width * {2: 3, 6: 4}[colours]
    return width, height, [plain[i * stride : (i + 1) * stride] for i in range(height)]
