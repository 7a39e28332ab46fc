"""Code of a training loop runs only after its device's owner has agreed to it, on its own machine."""

from __future__ import annotations

import importlib.util
import os
import py_compile
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest
import yaml
from deployed_parties import Stage, staged
from handed_over import checked, free_addresses, written
from rehearsals import STAR

import sfumato
from sfumato.arguments import Argument
from sfumato.cli import main
from sfumato.cli.party import party_command
from sfumato.deployment import hops_check
from sfumato.deployment.doors import Doors
from sfumato.deployment.invitation import start_party, write_invitation
from sfumato.deployment.local_parties import rows_of
from sfumato.deployment.loop_code import LoopCode
from sfumato.deployment.party_folder import PartyFolder
from sfumato.errors import RunError, SpecError

LOOP = """
import pathlib
pathlib.Path(__file__).with_name("{mark}").touch()

def train(model, rows, task):
    return model
"""


def leaving(mark: str) -> str:
    """A loop that leaves a file beside its own when its code runs."""
    return LOOP.format(mark=mark)


@pytest.fixture(name="device")
def fixture_device(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> Path:
    """The folder of a device whose proposed consent was read, and nothing but proposed."""
    monkeypatch.setattr(hops_check, "PATIENCE_S", 0.0)
    assert main(written(tmp_path, STAR, free_addresses("cloud"))) == 0
    folder = tmp_path / "out" / "device-0"
    assert "was proposed" in checked(folder, capsys)
    assert yaml.safe_load((folder / "consent.yaml").read_text())["loop"] is None
    return folder


def name_loop(folder: Path, named: str = "loop.py:train") -> None:
    consent = yaml.safe_load((folder / "consent.yaml").read_text())
    (folder / "consent.yaml").write_text(yaml.safe_dump(consent | {"loop": named}))


def start(folder: Path, capsys: pytest.CaptureFixture[str]) -> str:
    """What a party says when it is started and refuses to."""
    capsys.readouterr()
    assert main(["party", folder.name, "--folder", str(folder.parent)]) in (1, 2)
    (said,) = capsys.readouterr().err.splitlines()
    return said


def test_a_link_to_a_loop_is_refused_and_its_name_is_not_shown_raw(tmp_path: Path) -> None:
    """A name with control characters could wipe what the owner is to agree to from the terminal."""
    (tmp_path / "x\x1b[8A\x1b[J.py").write_text(leaving("ran"))
    (tmp_path / "loop.py").symlink_to(tmp_path / "x\x1b[8A\x1b[J.py")
    for named in ("loop.py:train", "x\x1b[8A\x1b[J.py:train", "x\u202e.py:train"):
        with pytest.raises(SpecError) as refused:
            LoopCode.read(named, tmp_path, Argument("loop"))
        assert "\x1b" not in str(refused.value)
        assert "\u202e" not in str(refused.value)


def test_a_module_in_the_current_folder_is_not_run_by_a_party(tmp_path: Path) -> None:
    """As one could lie beside a spec from elsewhere."""
    (tmp_path / "yaml.py").write_text(leaving("ran"))
    (tmp_path / "device-0").mkdir()
    environment = os.environ | {"PYTHONPATH": str(Path(sfumato.__file__).parents[1])}
    done = subprocess.run(
        party_command(tmp_path / "device-0")[:-1],  # not --with-starter
        cwd=tmp_path, env=environment, stdin=subprocess.PIPE, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode in (1, 2), done.stderr
    assert not (tmp_path / "ran").exists()


def test_a_loop_that_came_with_a_folder_does_not_run(
    device: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Neither by a consent that came with it, nor by terms that name it."""
    (device / "loop.py").write_text(leaving("ran"))
    proposed = (device / "consent.yaml").read_text()
    name_loop(device)
    assert "was not agreed to here" in checked(device, capsys)
    assert "was not agreed to here" in start(device, capsys)
    with pytest.raises(RunError, match="names code that was not agreed to here as it is now: train in "):
        start_party(device)
    (device / "consent.yaml").write_text(proposed)
    for file in ("terms.yaml", "hops.yaml"):
        before = (device / file).read_text()
        (device / file).write_text(yaml.safe_dump(yaml.safe_load(before) | {"loop": "loop.py:train"}))
        assert "there is no such key" in checked(device, capsys)
        (device / file).write_text(before)
    assert "nobody answers" in checked(device, capsys)
    assert not (device / "ran").exists()


def test_an_owner_agrees_to_the_very_code(device: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """With the consent, its folder and every byte of the file: then it runs at every start."""
    (device / "loop.py").write_text(leaving("ran"))
    name_loop(device)
    assert main(["deploy", "check", str(device), "--confirm"]) == 1
    said = capsys.readouterr()
    assert "its consent says 'loop.py:train' at loop; proposed would be None." in said.out
    assert f"its consent lets this code run, and see its rows: train in {device / 'loop.py'}" in said.out
    assert (
        f"device:0 trains with its owner's own loop, train in {device / 'loop.py'} (its SHA-256" in said.out
    )
    assert "nobody answers" in said.err
    assert (device / "ran").exists()
    with closing(start_party(device)):
        pass
    (device / "loop.py").write_text(leaving("changed"))
    for refused in (checked(device, capsys), start(device, capsys)):
        assert "names code that was not agreed to here as it is now" in refused
        assert f"sfumato deploy check {device} --confirm" in refused
    assert not (device / "changed").exists()
    assert main(["deploy", "check", str(device), "--confirm"]) == 1
    assert "nobody answers" in capsys.readouterr().err
    assert (device / "changed").exists()


def test_what_was_agreed_to_in_one_folder_runs_in_no_other(
    device: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (device / "loop.py").write_text(leaving("ran"))
    name_loop(device)
    assert main(["deploy", "check", str(device), "--confirm"]) == 1
    came = device.with_name("came")
    shutil.copytree(device, came)
    (came / "ran").unlink()
    with pytest.raises(RunError, match="was not agreed to here"):
        start_party(came)
    assert not (came / "ran").exists()


def test_code_that_was_compiled_by_others_is_not_used(
    device: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """A compiled file in the folder that says that Python need not look at the source."""
    source = device / "loop.py"
    source.write_text(leaving("foreign"))
    cached = importlib.util.cache_from_source(str(source))
    py_compile.compile(
        str(source), cached, invalidation_mode=py_compile.PycInvalidationMode.UNCHECKED_HASH, doraise=True
    )
    source.write_text(leaving("ran"))
    name_loop(device)
    assert main(["deploy", "check", str(device), "--confirm"]) == 1
    assert (device / "ran").exists()
    assert not (device / "foreign").exists()


@pytest.mark.parametrize(
    ("named", "code", "said"),
    [
        ("loop:train", "", "got 'loop:train'; must name a function of a Python file: FILE.py:function"),
        ("loop.py:", "", "must name a function of a Python file"),
        ("missing.py:train", "", "missing.py: cannot be read: No such file or directory"),
        ("loop.py:other", leaving("x"), "has no other"),
        ("loop.py:train", "train = 3", "must name a callable"),
        ("loop.py:train", "import nowhere_to_be_found", "ModuleNotFoundError: No module named"),
        ("loop.py:train", "def train(", "cannot be imported: SyntaxError"),
        ("loop.py:train", "raise SystemExit(0)", "cannot be imported: it ended the program (SystemExit: 0)"),
    ],
)
def test_a_loop_that_cannot_be_used_is_refused_in_one_line(
    tmp_path: Path, named: str, code: str, said: str
) -> None:
    (tmp_path / "loop.py").write_text(code)
    with pytest.raises(SpecError) as caught:
        LoopCode.read(named, tmp_path, "consent.yaml: loop").found()
    (refused,) = str(caught.value).splitlines()
    assert said in refused


def test_the_line_of_the_owner_is_named(device: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (device / "loop.py").write_text("def train(model, rows, task):\n    return 1 / 0")
    name_loop(device)
    assert main(["deploy", "check", str(device), "--confirm"]) == 1
    where = f"{device / 'consent.yaml'}: loop: got "
    refused = capsys.readouterr().err
    assert where in refused
    assert f"({device / 'loop.py'}, line 2, in train)" in refused


@pytest.fixture(name="stage")
def fixture_stage(tmp_path: Path) -> Iterator[Stage]:
    """A star whose device 0 has a folder of its own on the machine of whoever deploys."""
    opened = PartyFolder.open_or_create(tmp_path / "device-0")
    with staged(STAR, tmp_path, first=opened.identity) as stage:
        opened.close()
        yield stage


def invited(stage: Stage, loop: LoopCode | None) -> Path:
    folder = stage.folder / "device-0"
    rows = rows_of(stage.inputs.data, stage.inputs.partition, 0)
    write_invitation(folder, Doors.of_folders([folder]), stage.terms, 0, rows, loop)
    return folder


def test_a_local_run_has_the_loop_of_its_command(stage: Stage, tmp_path: Path) -> None:
    """Whoever starts it is the owner of all: the loop stands in the consents that are proposed."""
    (tmp_path / "own.py").write_text(leaving("ran"))
    code = LoopCode.read("own.py:train", tmp_path, "loop")
    folder = invited(stage, code)
    assert yaml.safe_load((folder / "consent.yaml").read_text())["loop"] == f"{tmp_path / 'own.py'}:train"
    with closing(start_party(folder)) as started:
        assert "trains with its owner's own loop" in started.words[-1]
    assert (tmp_path / "ran").exists()
    invited(stage, code)  # again, by the same consent
    (tmp_path / "other.py").write_text(leaving("other"))
    with pytest.raises(SpecError, match=r"must be that of .*consent.yaml, which names /"):
        invited(stage, LoopCode.read("other.py:train", tmp_path, "loop"))
    name_loop(folder)
    (folder / "loop.py").write_text(leaving("edited"))
    invited(stage, None)
    with pytest.raises(RunError, match="names code that was not agreed to here"):
        start_party(folder)
    assert not (folder / "edited").exists()


def test_a_loop_is_named_by_owners(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Whoever deploys to other machines has no way to name one."""
    command = written(tmp_path, STAR, free_addresses("cloud"))
    assert main([*command, "--loop", "own.py:train"]) == 2
    assert "--loop: got 'own.py:train'; is for --local; otherwise owners name it" in capsys.readouterr().err
    entry = free_addresses("cloud") | {"device-0": {"loop": "own.py:train"}}
    assert main(written(tmp_path, STAR, entry)) == 2
    assert "there is no such key" in capsys.readouterr().err
