"""`examples/notebooks`: the first cell of code installs, the others run one after the other."""

from __future__ import annotations

import json
import shlex
from pathlib import Path
from typing import Any

import pytest
from places import ROOT

from sfumato.cli import main

NOTEBOOKS = sorted((ROOT / "examples" / "notebooks").glob("*.ipynb"))


def cells_of(notebook: Path) -> list[str]:
    found = json.loads(notebook.read_text("utf-8"))["cells"]
    return ["".join(cell["source"]) for cell in found if cell["cell_type"] == "code"]


@pytest.mark.parametrize("notebook", NOTEBOOKS, ids=lambda path: path.stem)
def test_the_first_cell_installs_where_sfumato_is_missing(
    notebook: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    install = cells_of(notebook)[0]
    exec(install, {})  # it is here: nothing is installed
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    with pytest.raises(SystemExit, match="SOURCE"):
        exec(install, {})
    asked: list[list[str]] = []
    monkeypatch.setattr("subprocess.run", lambda command, check: asked.append(command))
    exec(install.replace('SOURCE = ""', 'SOURCE = "sfumato.whl"'), {})
    assert [command[1:] for command in asked] == [["-m", "pip", "install", "--quiet", "sfumato.whl"]]


@pytest.mark.slow
@pytest.mark.parametrize("notebook", NOTEBOOKS, ids=lambda path: path.stem)
def test_all_cells_run(notebook: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    names: dict[str, Any] = {}
    for cell in cells_of(notebook):
        if cell.startswith("!sfumato "):
            assert main(shlex.split(cell.replace("\\\n", " "))[1:]) == 0, cell
        else:
            exec(compile(cell, notebook.name, "exec"), names)
    assert any((tmp_path / "runs").iterdir())
