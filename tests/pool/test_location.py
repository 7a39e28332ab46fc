"""Where jobs are done: what may be named, and what must be installed."""

from __future__ import annotations

import sys
from pathlib import Path
from types import SimpleNamespace

import pytest

from sfumato.cli import main
from sfumato.errors import MissingExtraError, RunError, SpecError
from sfumato.pool.location import Location
from sfumato.pool.on_ray import RayWorkers

WITHOUT_RAY = [path for path in sys.path if not (Path(path) / "ray" / "__init__.py").is_file()]


@pytest.mark.parametrize("name", ["", "Local", "ray:", "ray://", "raytracer", "http://ray"])
def test_other_places_are_refused(name: str) -> None:
    with pytest.raises(SpecError, match=r"^on: got .*; must be local, ray or ray://ADDRESS$"):
        Location.named(name)


def test_this_machine_needs_nothing_else() -> None:
    assert Location.named("local").is_here


@pytest.mark.parametrize("name", ["ray", "ray://head:10001"])
def test_ray_that_is_not_installed_is_said_with_the_command_before_anything_is_done(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("ray").mkdir()  # a folder is not the library
    monkeypatch.setattr(sys, "path", [str(tmp_path), *WITHOUT_RAY])
    monkeypatch.delitem(sys.modules, "ray", raising=False)
    with pytest.raises(MissingExtraError, match=r"needs the extra 'ray': pip install 'sfumato\[ray\]'$"):
        Location.named(name)
    assert main(["sweep", "quickstart", "--over", "seed=1,2", "--on", name, "--out", "swept"]) == 2
    said = capsys.readouterr().err
    assert said == f"sfumato: --on {name}: needs the extra 'ray': pip install 'sfumato[ray]'\n"
    assert not Path("swept").exists()


@pytest.mark.parametrize("kind", [Exception, ConnectionError, RuntimeError])
def test_a_ray_that_does_not_start_is_one_message(
    kind: type[Exception], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def init(*arguments: object, **options: object) -> None:
        raise kind("The current node timed out during startup.")

    monkeypatch.setitem(sys.modules, "ray", SimpleNamespace(is_initialized=lambda: False, init=init))
    said = r"^on='ray': the cluster cannot be reached: The current node timed out"
    with pytest.raises(RunError, match=said), RayWorkers("", 1, tmp_path / "log"):
        pass
