"""Random damage to run folders: every command says so in one line, or ends as if nothing had happened."""

from __future__ import annotations

import json
import random
import shutil
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
import torch
from folder_damages import Damager, files_of
from resumed_specs import TRAINING, spec_of

from sfumato.cli import main
from sfumato.run_folder.damage import check_folder
from sfumato.run_folder.metrics_table import read_metrics
from sfumato.simulation import run as simulate
from sfumato.spec import dump_spec

SEED = 20260713
SPEC = spec_of(
    watch=["cloud"],
    training=TRAINING | {"rounds": 3},
    privacy={"clip": {"kind": "update", "norm": 0.5}, "noise": {"multiplier": 0.5}},
)
OBSERVER = "edge:0"
KEPT = ("spec.yaml", "privacy.json", "ledger.json", "model.pt")  # the same whenever a run was stopped
READING = {
    "report": ["report", "run", "--out", "page.html"],
    "compare": ["compare", "run", "other"],
    "account": ["account", "run/spec.yaml", "--json"],
    "audit": ["audit", "run", "--observer", "cloud", "--trials", "100", "--json"],
    "attack": ["attack", "run", "--observer", OBSERVER, "--kind", "property", "--json"],
}
Capture = pytest.CaptureFixture[str]


@dataclass
class World:
    """Folders that are whole, and what commands say of them."""

    place: Path
    capsys: Capture
    logged: pytest.LogCaptureFixture
    said: dict[str, dict[str, str]] = field(default_factory=dict)

    def called(self, arguments: list[str]) -> tuple[int, str, str]:
        """Status, what was printed (times left out), what went wrong."""
        status = main(arguments)
        out, err = self.capsys.readouterr()
        if arguments[0] == "report" and status == 0:
            out = (self.place / "page.html").read_text()
        if "--json" in arguments and status == 0:
            out = json.dumps(_without_times(json.loads(out)))
        return status, out, err

    def take(self, template: str) -> Path:
        """A copy of a whole folder, always at the same place."""
        run = self.place / "run"
        shutil.rmtree(run, ignore_errors=True)
        shutil.copytree(self.place / template, run, symlinks=True)
        return run

    def reference(self, template: str) -> None:
        """What the commands say of a folder that is whole."""
        self.said[template] = {}
        for name, arguments in READING.items():
            self.take(template)
            status, out, err = self.called(arguments)
            assert (status, err) == (0, ""), name
            self.said[template][name] = out


def _without_times(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _without_times(item) for key, item in value.items() if key != "seconds"}
    return [_without_times(item) for item in value] if isinstance(value, list) else value


@pytest.fixture
def world(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: Capture,
    caplog: pytest.LogCaptureFixture,
    no_report: None,
) -> Iterator[World]:
    monkeypatch.chdir(tmp_path)
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    (tmp_path / "wanted.yaml").write_text(dump_spec(SPEC))
    another = SPEC.model_copy(update={"seed": 9})
    record = {"device": "cpu", "record_views": [OBSERVER]}
    simulate.run(another, out=tmp_path / "other", **record)
    for name, rounds in (("older", 1), ("unfinished", 2)):
        playing = simulate.run_rounds(SPEC, out=tmp_path / name, **record)
        for _ in range(rounds):
            next(playing)
        playing.close()
    shutil.copytree(tmp_path / "unfinished", tmp_path / "finished")
    simulate.run(SPEC, out=tmp_path / "finished", device="cpu", resume=True)
    found = World(tmp_path, capsys, caplog)
    for name in ("other", "finished", "unfinished"):
        assert found.called([part.replace("run", name) for part in READING["attack"]])[0] == 0
    for template in ("finished", "unfinished"):
        found.reference(template)
    yield found
    torch.set_num_threads(threads)


def one_line_that_names(err: str, damaged: Path) -> bool:
    return err.count("\n") == 1 and err.startswith("sfumato: ") and "run" in err and "internal" not in err


def check_reading(world: World, damaged: Path, template: str, did: str) -> Counter[str]:
    """Every command that reads refuses in one line, or says what it says of the whole folder."""
    found: Counter[str] = Counter()
    for name, arguments in READING.items():
        run = world.take(damaged.name)
        status, out, err = world.called(arguments)
        if status == 0:
            assert out == world.said[template][name], f"silent difference: {name} after {did}"
            found["the same"] += 1
        else:
            assert status in (1, 2), (name, did, err)
            assert one_line_that_names(err, run), (name, did, err)
            found["refused"] += 1
    return found


def check_resuming(world: World, damaged: Path, template: str, did: str) -> Counter[str]:
    """A resumed run refuses in one line, or ends with the right bytes and says what it wrote again."""
    run = world.take(damaged.name)
    before = {name: (run / name).read_bytes() for name in files_of(run) if not _endless(run / name)}
    world.logged.clear()
    arguments = ["run", "wanted.yaml", "--out", "run", "--device", "cpu", "--quiet", "--resume"]
    status, _, err = world.called(arguments)
    if status != 0:
        assert status in (1, 2), (did, err)
        assert one_line_that_names(err, run), (did, err)
        return Counter({"refused to resume": 1})
    said = [record.getMessage() for record in world.logged.records]
    assert check_folder(run) == [], did
    whole = world.place / "finished"
    for name in KEPT:
        assert (run / name).read_bytes() == (whole / name).read_bytes(), f"silent difference: {name}, {did}"
    views = [name for name in files_of(whole) if name.startswith("views/")]
    if any((run / name).exists() for name in views):  # without a checkpoint it starts again, recording nobody
        for name in views:
            assert (run / name).read_bytes() == (whole / name).read_bytes(), f"{name}, {did}"
    mine, right = (read_metrics(folder / "metrics.parquet")[0] for folder in (run, whole))
    times = "wall_time_s"
    assert mine.drop(columns=times).equals(right.drop(columns=times)), f"silent difference: metrics, {did}"
    changed = [
        n for n, content in before.items() if not (run / n).exists() or (run / n).read_bytes() != content
    ]
    lost = [n for n in files_of(whole) if n not in before and template == "finished"]
    own = [n for n in changed + lost if not n.startswith("attacks/") or n in lost]
    if template == "finished" and own:
        assert said, f"rebuilt {own} without a word after {did}"
    return Counter({"rebuilt" if said else "nothing to do": 1})


def _endless(path: Path) -> bool:
    return not path.is_file()


def corrupt(world: World, operations: int, seed: int) -> Counter[str]:
    """So many random operations, each on a fresh copy; what became of them."""
    rng, found = random.Random(seed), Counter[str]()
    others = [world.place / "other"]
    for number in range(operations):
        template = ("finished", "unfinished")[number % 2]
        damaged = world.place / "damaged"
        shutil.rmtree(damaged, ignore_errors=True)
        shutil.copytree(world.place / template, damaged)
        did = f"{number}: {template}: {Damager(rng, others, world.place / 'older').damage(damaged)}"
        found += check_reading(world, damaged, template, did)
        found += check_resuming(world, damaged, template, did)
    return found


def test_nothing_that_was_damaged_passes(world: World) -> None:
    found = corrupt(world, 12, SEED)
    assert found["refused"] > 20
    assert found["rebuilt"] > 2


@pytest.mark.slow
@pytest.mark.parametrize("part", range(5))
def test_nothing_of_500_damages_passes(part: int, world: World) -> None:
    found = corrupt(world, 100, SEED + 1 + part)
    print(f"part {part}: {dict(found)}")
    assert found["refused"] > 100
