"""Whatever stops a run, resumed it ends as if nothing had: the same tensors and metrics, bit for bit."""

from __future__ import annotations

import json
import os
import random
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import fast_python
import numpy as np
import pandas as pd
import pytest
import torch
from resumed_specs import GROUPED, MULTIPLIER, ROUNDS, TRAINING, VARIANTS, spec_of

from sfumato.accounting import PrivacyReport
from sfumato.durable_files import hash_file
from sfumato.errors import RunError, SfumatoError, SpecError
from sfumato.privacy.losses import hidden_draws
from sfumato.protocols.tree.rounds import TreeProtocol
from sfumato.run_folder.damage import check_folder
from sfumato.run_folder.lock import LOCK_FILE
from sfumato.run_folder.manifest import Damage, FileRecord, read_manifest, record_files
from sfumato.run_folder.reader import GROUPS_FILE, MODEL_FILE, SPEC_FILE, load_run
from sfumato.run_folder.seal import CHECKPOINT_FILE
from sfumato.schedule.resolve import resolve
from sfumato.simulation import checkpoint
from sfumato.simulation import run as simulate
from sfumato.simulation.folder_writer import FolderWriter
from sfumato.spec import dump_spec, load_spec
from sfumato.spec.document import Spec
from sfumato.spec.privacy import NoiseBySource
from sfumato.verify.checker import check_run

Whole = Callable[[Spec], Path]


@pytest.fixture(autouse=True)
def _small(no_report: None) -> Iterator[None]:
    """One thread, as the killed processes have; no report, which takes longer than the run."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


@pytest.fixture(scope="module", autouse=True)
def _accounts_are_kept() -> Iterator[None]:
    """A spec is accounted for once: its account is the same wherever its run was stopped."""
    made: dict[tuple[str, float], PrivacyReport] = {}
    account = simulate.account

    def kept(spec: Spec) -> PrivacyReport:
        key = dump_spec(spec), hidden_draws._FINEST_INTERVAL
        if key not in made:
            made[key] = account(spec)
        return made[key]

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(simulate, "account", kept)
        yield


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Whole:
    """The folder of a run that nothing stopped, the same for all tests that compare with it."""
    folders: dict[tuple[str, float], Path] = {}

    def of(spec: Spec) -> Path:
        key = dump_spec(spec), hidden_draws._FINEST_INTERVAL  # coarse losses give other figures
        if key not in folders:
            folders[key] = tmp_path_factory.mktemp("whole")
            simulate.run(spec, out=folders[key], device="cpu")
        return folders[key]

    return of


def assert_same(one: Path, other: Path) -> None:
    a, b = (torch.load(folder / MODEL_FILE, weights_only=True) for folder in (one, other))
    assert a.keys() == b.keys()
    assert all(torch.equal(a[name], b[name]) for name in a)
    metrics = [load_run(folder).metrics.drop(columns="wall_time_s") for folder in (one, other)]
    pd.testing.assert_frame_equal(*metrics, check_exact=True)
    for name in ("privacy.json", "ledger.json", SPEC_FILE, MODEL_FILE):
        assert (one / name).read_bytes() == (other / name).read_bytes(), name
    assert check_folder(one) == check_folder(other) == []
    assert (one / GROUPS_FILE).exists() == (other / GROUPS_FILE).exists()
    if (one / GROUPS_FILE).exists():
        a, b = (torch.load(folder / GROUPS_FILE, weights_only=True) for folder in (one, other))
        assert torch.equal(a, b)


def contents(folder: Path) -> dict[str, tuple[bytes, int]]:
    files = sorted(p for p in folder.iterdir() if p.name != LOCK_FILE)
    return {p.name: (p.read_bytes(), p.stat().st_mtime_ns) for p in files}


def round_of(folder: Path) -> int:
    held = checkpoint.load(folder)
    assert held is not None
    return held.position.state.round


def stop_after(spec: Spec, out: Path, rounds: int, *, resume: bool = False) -> None:
    playing = simulate.run_rounds(spec, out=out, device="cpu", resume=resume)
    for _ in range(rounds):
        next(playing)
    playing.close()


@pytest.mark.usefixtures("coarse_losses")
@pytest.mark.parametrize("name", [*VARIANTS, *GROUPED])
def test_stopped_and_resumed(name: str, tmp_path: Path, whole: Whole) -> None:
    spec = (VARIANTS | GROUPED)[name]
    out = tmp_path / "parts"
    stop_after(spec, out, 2)
    assert not (out / MODEL_FILE).exists()
    stop_after(spec, out, 1, resume=True)
    stop_after(spec, out, 4, resume=True)
    assert round_of(out) == 7
    run = simulate.run(spec, out=out, device="cpu", resume=True)
    assert run.folder.finished
    assert_same(whole(spec), out)


@pytest.mark.usefixtures("coarse_losses")
@pytest.mark.parametrize("name", GROUPED)
def test_groups_stopped_after_every_round(name: str, tmp_path: Path, whole: Whole) -> None:
    spec = GROUPED[name].model_copy(update={"watch": ()})
    for _ in range(ROUNDS - 1):
        stop_after(spec, tmp_path / "parts", 1, resume=True)
    simulate.run(spec, out=tmp_path / "parts", device="cpu", resume=True)
    assert_same(whole(spec), tmp_path / "parts")


@pytest.mark.usefixtures("coarse_losses")
@pytest.mark.parametrize("name", GROUPED)
def test_more_rounds_extend_groups(name: str, tmp_path: Path, whole: Whole) -> None:
    longer = GROUPED[name].model_copy(update={"watch": ()})
    short = longer.model_copy(update={"training": longer.training.model_copy(update={"rounds": 4})})
    simulate.run(short, out=tmp_path / "parts", device="cpu")
    simulate.run(longer, out=tmp_path / "parts", device="cpu", resume=True)
    assert_same(whole(longer), tmp_path / "parts")


MOVING = "devices that move, edges with schedules of their own"


def moving(rounds: int, **topology: Any) -> Spec:
    document = VARIANTS[MOVING].model_dump(by_alias=True, exclude_none=True) | {"watch": ()}
    document["training"] = {**document["training"], "rounds": rounds}
    document["topology"] = {**document["topology"], **topology}
    return Spec.model_validate(document)


def test_more_rounds_extend_a_network_that_moves(tmp_path: Path) -> None:
    """The moves of the first rounds are the same however many follow."""
    simulate.run(moving(6), out=tmp_path / "whole", device="cpu")
    simulate.run(moving(3), out=tmp_path / "parts", device="cpu")
    assert len(resolve(moving(3)).spec.topology.moves.trace) > 0
    simulate.run(moving(6), out=tmp_path / "parts", device="cpu", resume=True)
    assert_same(tmp_path / "whole", tmp_path / "parts")
    assert check_run(tmp_path / "parts").problems == []


def test_other_moves_are_another_run(tmp_path: Path) -> None:
    out = tmp_path / "run"
    simulate.run(moving(3), out=out, device="cpu")
    before = contents(out)
    trace = list(resolve(moving(3)).spec.topology.moves.trace)
    for other in ({"rate": 0.31}, {"trace": trace}, {"trace": trace[1:], "drawn_at": 0.3}):
        with pytest.raises(SpecError, match="moves"):
            simulate.run(moving(6, moves=other), out=out, device="cpu", resume=True)
    assert contents(out) == before


def test_other_noise_is_another_run_where_trust_changes(tmp_path: Path) -> None:
    """Later trust may add sources of noise; those of the finished rounds keep what they added."""
    out, written = tmp_path / "run", VARIANTS[MOVING]
    short = written.model_copy(update={"training": written.training.model_copy(update={"rounds": 3})})
    simulate.run(short, out=out, device="cpu")
    before = contents(out)
    noise = resolve(written).spec.privacy.noise
    assert isinstance(noise, NoiseBySource)
    first = noise.sources[0]
    less = first.model_copy(update={"multipliers": tuple(z / 2 for z in first.multipliers)})
    privacy = written.privacy.model_copy(
        update={"noise": noise.model_copy(update={"sources": (less, *noise.sources[1:])})}
    )
    with pytest.raises(SpecError, match=r"privacy\.noise\.sources"):
        simulate.run(written.model_copy(update={"privacy": privacy}), out=out, device="cpu", resume=True)
    assert contents(out) == before


@pytest.mark.parametrize("error", [KeyboardInterrupt, MemoryError])
def test_an_exception_leaves_a_checkpoint(
    error: type[BaseException], tmp_path: Path, whole: Whole, monkeypatch: pytest.MonkeyPatch
) -> None:
    spec, out = VARIANTS["server momentum"], tmp_path / "parts"
    with monkeypatch.context() as patch:
        collect = TreeProtocol._collect

        def failing(self: Any, uplink: Any, models: Any, *arguments: Any) -> Any:
            if arguments[2] == 5 and arguments[3] == 1:  # in the middle of round 6
                raise error
            return collect(self, uplink, models, *arguments)

        patch.setattr(TreeProtocol, "_collect", failing)
        with pytest.raises(error):
            simulate.run(spec, out=out, device="cpu")
    assert round_of(out) == 5
    assert len(load_run(out).metrics) == 5
    simulate.run(spec, out=out, device="cpu", resume=True)
    assert_same(whole(spec), out)


KILLED = """
import os, sys, torch, traceback
from pathlib import Path
torch.set_num_threads(1)
from sfumato.simulation import folder_writer, run as simulate
from sfumato.run_folder.reader import write_text
from sfumato.spec import load_spec
simulate._SECONDS_BETWEEN_CHECKPOINTS = 0.0
folder_writer._write_report = lambda folder: write_text(folder / "report.html", "report")
folder_writer.find_spec = lambda name: None
for line in sys.stdin:
    spec, out = line.rstrip().split("\\t")
    process = os.fork()
    if process == 0:
        try:
            simulate.run(load_spec(spec), out=Path(out), device="cpu", resume=True)
        except BaseException:
            traceback.print_exc()
        os._exit(0)
    print(process, flush=True)
    os.waitpid(process, 0)
    print("ended", flush=True)
"""  # runs are forked from a process that has loaded everything: to load takes longer than a run


@pytest.fixture(scope="module")
def starter() -> Iterator[subprocess.Popen[str]]:
    """Starts a run for every line ``SPEC, tab, FOLDER``; says its process id, and when it has ended."""
    command = [sys.executable, "-c", KILLED]
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE}
    with fast_python.Popen(command, text=True, **pipes) as process:
        yield process


def is_running(process: int) -> bool:
    try:
        os.kill(process, 0)
    except ProcessLookupError:
        return False
    return True


@pytest.mark.parametrize("name", ["server momentum", "Poisson participation in a star"])
def test_killed_at_any_moment_and_resumed(name: str, starter: subprocess.Popen[str], tmp_path: Path) -> None:
    spec = VARIANTS[name]
    spec = spec.model_copy(update={"training": spec.training.model_copy(update={"rounds": 60}), "watch": ()})
    (tmp_path / "spec.yaml").write_text(dump_spec(spec))
    out, rng = tmp_path / "killed", random.Random(name)
    reached = []
    for _ in range(3):
        before = round_of(out) if out.exists() else -1
        assert starter.stdin is not None
        assert starter.stdout is not None
        print(tmp_path / "spec.yaml", out, sep="\t", file=starter.stdin, flush=True)
        process = int(starter.stdout.readline())
        patience = time.monotonic() + 60
        while time.monotonic() < patience and is_running(process):
            if (out / CHECKPOINT_FILE).exists() and round_of(out) > before:
                break
        time.sleep(rng.uniform(0, 0.4))
        with suppress(ProcessLookupError):  # it may have ended
            os.kill(process, signal.SIGKILL)
        assert starter.stdout.readline() == "ended\n"
        reached.append(round_of(out))  # whole, whenever it was killed
    assert reached == sorted(reached)
    simulate.run(spec, out=out, device="cpu", resume=True)
    simulate.run(spec, out=tmp_path / "whole", device="cpu")
    assert_same(tmp_path / "whole", out)
    assert [p.name for p in out.glob(".*")] == [LOCK_FILE]


class KilledError(BaseException):
    """In place of SIGKILL, after which nothing is written any more."""


@contextmanager
def killed_before(operation: int, monkeypatch: pytest.MonkeyPatch) -> Iterator[list[str]]:
    """Kills before the so-maniest file is renamed or removed; yields what was, before it."""
    done: list[str] = []
    replace, unlink = os.replace, Path.unlink

    def counted(name: str) -> None:
        if len(done) == operation:
            raise KilledError
        done.append(name)

    def renamed(before: Path, after: Path) -> None:
        counted(Path(after).name)
        replace(before, after)

    def removed(path: Path, missing_ok: bool = False) -> None:
        if not path.name.endswith(".tmp") and path.exists():
            counted(f"no {path.name}")
        unlink(path, missing_ok=missing_ok)

    with monkeypatch.context() as patch:
        patch.setattr(os, "replace", renamed)
        patch.setattr(Path, "unlink", removed)
        yield done


SHORT = spec_of(protocol="hfl", privacy={}, trust={}, watch=(), training=TRAINING | {"rounds": 2})
LONG = SHORT.model_copy(update={"training": SHORT.training.model_copy(update={"rounds": 3})})
AGAIN = {"resume": True}
RESULT = "attacks/membership-cloud.json"
BEFORE: dict[str, Any] = {
    "a new run": (LONG, {}, lambda out: None),
    "a run that goes on": (LONG, AGAIN, lambda out: stop_after(LONG, out, 1)),
    "a run that is extended": (LONG, AGAIN, lambda out: simulate.run(SHORT, out=out, device="cpu")),
    "a run to be shown otherwise": (
        LONG, AGAIN,
        lambda out: simulate.run(LONG.model_copy(update={"watch": ("cloud",)}), out=out, device="cpu"),
    ),
    "a run that replaces another": (
        LONG, {"force": True},
        lambda out: simulate.run(
            SHORT.model_copy(update={"seed": 9}), out=out, device="cpu", record_views=("cloud",)
        ),
    ),
}  # fmt: skip


@pytest.mark.parametrize("before", BEFORE)
def test_killed_between_any_two_files(
    before: str,
    tmp_path: Path,
    whole: Whole,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    """Whatever was renamed or removed last, the run ends as one never killed; nothing half done looks done.

    What cannot be read is refused with an error of ours: any other ends the test.
    """
    spec, options, prepare = BEFORE[before]
    ended, number, reached = False, 0, []
    while not ended:
        out = tmp_path / str(number)
        prepare(out)
        caplog.clear()
        with killed_before(number, monkeypatch) as done:
            try:
                simulate.run(spec, out=out, device="cpu", **options)
                ended = True
            except KilledError:
                pass
        reached.append(tuple(done))
        with suppress(SfumatoError):
            if load_run(out).finished:
                assert check_folder(out) in ([], [Damage("report.html", "is not listed")])
        try:
            simulate.run(spec, out=out, device="cpu", resume=True)
        except SpecError:  # it still is the run that was to be replaced
            assert "force" in options
            assert "checkpoint.pt" not in " ".join(done)
            simulate.run(spec, out=out, device="cpu", force=True)
        assert_same(whole(spec), out)
        assert [p.name for p in out.glob(".*")] == [LOCK_FILE]
        number += 1
    assert reached[-1][-1] == "manifest.json"
    assert {"spec.yaml", "checkpoint.pt", "metrics.parquet", "model.pt", "report.html"} <= set(reached[-1])


def test_resume_without_a_checkpoint_starts_afresh(tmp_path: Path, whole: Whole) -> None:
    spec = VARIANTS["server momentum"]
    simulate.run(spec, out=tmp_path / "new", device="cpu", resume=True)
    assert_same(whole(spec), tmp_path / "new")
    (tmp_path / "new" / CHECKPOINT_FILE).unlink()
    other = spec.model_copy(update={"seed": 3})
    simulate.run(other, out=tmp_path / "new", device="cpu", resume=True)
    assert_same(whole(other), tmp_path / "new")


def test_a_finished_run_is_left_alone(tmp_path: Path) -> None:
    spec = VARIANTS["server momentum"]
    simulate.run(spec, out=tmp_path, device="cpu")
    before = contents(tmp_path)
    assert list(simulate.run_rounds(spec, out=tmp_path, device="cpu", resume=True)) == []
    assert contents(tmp_path) == before


@pytest.mark.usefixtures("coarse_losses")
@pytest.mark.parametrize("name", [n for n in VARIANTS if n != "Poisson participation in a star"])
def test_more_rounds_extend(name: str, tmp_path: Path, whole: Whole) -> None:
    """At once, and where the extension is stopped as well."""
    longer = VARIANTS[name]
    short = longer.model_copy(update={"training": longer.training.model_copy(update={"rounds": 5})})
    out, stopped = tmp_path / "parts", tmp_path / "stopped"
    simulate.run(short, out=out, device="cpu")
    shutil.copytree(out, stopped)
    stop_after(longer, stopped, 1, resume=True)
    assert not (stopped / MODEL_FILE).exists()
    assert not load_run(stopped).finished
    for folder in (out, stopped):
        run = simulate.run(longer, out=folder, device="cpu", resume=True)
        assert len(run.metrics) == ROUNDS
        assert_same(whole(longer), folder)


def test_extension_of_a_sampled_run(tmp_path: Path) -> None:
    """Its epsilons are computed at a few rounds only, which ones depends on how many there are."""
    spec = VARIANTS["Poisson participation in a star"].model_copy(update={"evaluate_every": 1})
    longer = spec.model_copy(update={"training": spec.training.model_copy(update={"rounds": 31})})
    simulate.run(longer, out=tmp_path / "whole", device="cpu")
    simulate.run(spec, out=tmp_path / "parts", device="cpu")
    simulate.run(longer, out=tmp_path / "parts", device="cpu", resume=True)
    assert_same(tmp_path / "whole", tmp_path / "parts")
    assert 15 < load_run(tmp_path / "whole").metrics["epsilon:cloud"].notna().sum() <= 20


def test_extension_killed_after_its_last_round_keeps_no_old_model(
    tmp_path: Path, whole: Whole, monkeypatch: pytest.MonkeyPatch
) -> None:
    longer = VARIANTS["server momentum"]
    short = longer.model_copy(update={"training": longer.training.model_copy(update={"rounds": 5})})
    simulate.run(short, out=tmp_path / "parts", device="cpu")
    with monkeypatch.context() as patch:
        patch.setattr(FolderWriter, "finish", lambda *arguments: None)
        list(simulate.run_rounds(longer, out=tmp_path / "parts", device="cpu", resume=True))
    simulate.run(longer, out=tmp_path / "parts", device="cpu", resume=True)
    assert_same(whole(longer), tmp_path / "parts")


CALIBRATED = {
    "for a target": {"clip": {"kind": "update", "norm": 0.5}, "noise": {"epsilon": 8.0, "for": "cloud"}},
    "by a formula": {"clip": {"kind": "step", "norm": 0.5}, "noise": {"formula": "h2fdp", "epsilon": 1.0}},
}


@pytest.mark.parametrize("privacy", CALIBRATED.values(), ids=CALIBRATED)
def test_noise_sized_for_other_rounds_is_refused(privacy: dict[str, Any], tmp_path: Path) -> None:
    simulate.run(spec_of(privacy=privacy, training=TRAINING | {"rounds": 2}), out=tmp_path, device="cpu")
    before = contents(tmp_path)
    longer = spec_of(privacy=privacy, training=TRAINING | {"rounds": 3})
    with pytest.raises(SpecError, match="calibrated for the former number of rounds"):
        list(simulate.run_rounds(longer, out=tmp_path, device="cpu", resume=True))
    assert contents(tmp_path) == before


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"seed": 3}, "seed"),
        ({"training": TRAINING | {"learning_rate": 0.1}}, "learning_rate"),
        ({"training": TRAINING | {"server": {"momentum": 0.9}}}, "server"),
        ({"trust": {"trusted_edges": [0]}}, "trust"),
        ({"privacy": MULTIPLIER | {"noise": {"multiplier": 0.6}}}, r"noise\.calibrated_from\.multiplier"),
        ({"privacy": MULTIPLIER | {"delta": 1e-6}}, "delta"),
        ({"topology": {"kind": "tree", "edges": 2, "devices_per_edge": 4}}, "devices_per_edge"),
        ({"data": {"source": "synthetic", "examples_per_device": 21}}, "examples_per_device"),
        ({"training": TRAINING | {"rounds": 2}}, "3 rounds of this run are done already"),
    ],
)
def test_another_run_is_refused(changed: dict[str, Any], message: str, tmp_path: Path) -> None:
    stop_after(spec_of(), tmp_path, 3)
    before = contents(tmp_path)
    with pytest.raises(SpecError, match=message):
        list(simulate.run_rounds(spec_of(**changed), out=tmp_path, device="cpu", resume=True))
    assert contents(tmp_path) == before


def test_a_topology_file_that_was_edited_is_refused(tmp_path: Path) -> None:
    """It was not: the rounds of the old tree then counted as if they had been played in the new one."""
    sites, out = tmp_path / "sites.yaml", tmp_path / "run"
    sites.write_text("sites: [{devices: 4}, {devices: 3}]")
    tree = {"kind": "tree", "file": str(sites)}
    simulate.run(spec_of(topology=tree, training=TRAINING | {"rounds": 2}), out=out, device="cpu")
    before, privacy = contents(out), json.loads((out / "privacy.json").read_text("utf-8"))
    old = hash_file(sites)[0][:12]
    sites.write_text("sites: [{devices: 40}, {devices: 3}]")
    longer = spec_of(topology=tree, training=TRAINING | {"rounds": 3})
    said = rf"sites\[0\]\.devices: got 40; .* has 4 .*SHA-256 {old} .*{hash_file(sites)[0][:12]} now"
    with pytest.raises(SpecError, match=said):
        list(simulate.run_rounds(longer, out=out, device="cpu", resume=True))
    assert contents(out) == before
    sites.unlink()  # what the folder says of itself needs no such file
    again = simulate.run(load_spec(out / SPEC_FILE), out=out, device="cpu", resume=True)
    del privacy["hashes"]
    assert again.privacy.to_dict() == privacy
    assert len(load_spec(out / SPEC_FILE).topology.sites) == 2  # type: ignore[union-attr]


def test_fewer_rounds_than_asked_but_not_than_done(tmp_path: Path) -> None:
    shorter = spec_of(training=TRAINING | {"rounds": 3}, evaluate_every=2)
    simulate.run(shorter, out=tmp_path / "whole", device="cpu")
    stop_after(spec_of(evaluate_every=2), tmp_path / "parts", 3)
    simulate.run(shorter, out=tmp_path / "parts", device="cpu", resume=True)
    assert_same(tmp_path / "whole", tmp_path / "parts")


def test_a_step_size_that_depends_on_the_rounds_is_refused(tmp_path: Path) -> None:
    cosine = TRAINING | {"learning_rate": {"kind": "cosine", "initial": 0.2, "final": 0.01}}
    stop_after(spec_of(training=cosine), tmp_path, 3)
    with pytest.raises(SpecError, match="learning-rate schedule"):
        list(
            simulate.run_rounds(
                spec_of(training=cosine | {"rounds": 20}), out=tmp_path, device="cpu", resume=True
            )
        )


@pytest.mark.parametrize("rounds", [2, ROUNDS])
def test_an_existing_run_is_refused_and_untouched(rounds: int, tmp_path: Path) -> None:
    spec = spec_of()
    if rounds == ROUNDS:
        simulate.run(spec, out=tmp_path, device="cpu")
    else:
        stop_after(spec, tmp_path, rounds)
    before = contents(tmp_path)
    with pytest.raises(SpecError, match="already holds a run") as caught:
        list(simulate.run_rounds(spec, out=tmp_path, device="cpu"))
    assert caught.value.exit_status == 2
    (tmp_path / SPEC_FILE).unlink()
    with pytest.raises(SpecError, match="already holds a run"):
        list(simulate.run_rounds(spec, out=tmp_path, device="cpu"))
    del before[SPEC_FILE]
    assert contents(tmp_path) == before


@pytest.mark.parametrize("finished", [False, True])
@pytest.mark.parametrize("damage", ["gone", "emptied", "flipped"])
@pytest.mark.parametrize(
    "file", ["spec.yaml", "privacy.json", "ledger.json", "manifest.json", "metrics.parquet"]
)
def test_what_follows_from_the_checkpoint_is_written_again_and_said(
    file: str, damage: str, finished: bool, tmp_path: Path, whole: Whole, caplog: pytest.LogCaptureFixture
) -> None:
    out = tmp_path / "run"
    if finished:
        shutil.copytree(whole(SHORT), out)
    else:
        stop_after(SHORT, out, 1)
    before, path = contents(out), out / file
    written = path.read_bytes()
    path.unlink()
    if damage == "emptied":
        path.write_bytes(b"")
    elif damage == "flipped":
        path.write_bytes(written[:40] + bytes([written[40] ^ 2]) + written[41:])
    simulate.run(SHORT, out=out, device="cpu", resume=True)
    said = [record.getMessage() for record in caplog.records]
    assert len(said) == 1
    assert said[0].startswith(f"{path}: {'is missing' if damage == 'gone' else ''}")
    assert "again from checkpoint.pt" in said[0]
    assert_same(whole(SHORT), out)
    if finished:
        assert [content for content, _ in contents(out).values()] == [
            content for content, _ in before.values()
        ]


@pytest.mark.parametrize("file", ["checkpoint.pt", "rounds.jsonl"])
def test_what_cannot_be_written_again_is_refused(file: str, tmp_path: Path) -> None:
    stop_after(LONG, tmp_path, 2)
    path = tmp_path / file
    whole = path.read_bytes()
    for damaged in (b"", whole[:-30], whole[:40] + bytes([whole[40] ^ 2]) + whole[41:]):
        path.write_bytes(damaged)
        with pytest.raises(RunError, match=rf"{file}: is damaged"):
            simulate.run(LONG, out=tmp_path, device="cpu", resume=True)
    path.write_bytes(whole)
    simulate.run(LONG, out=tmp_path, device="cpu", resume=True)


def with_view_and_attack(spec: Spec, out: Path, *, finished: bool) -> None:
    """A run that records what the cloud receives, and a result of an attack on it."""
    playing = simulate.run_rounds(spec, out=out, device="cpu", record_views=["cloud"])
    next(playing)
    if finished:
        list(playing)
    playing.close()
    (out / "attacks").mkdir()
    (out / RESULT).write_text(f'{{"seed": {spec.seed}}}')
    record_files(out, {RESULT: FileRecord(*hash_file(out / RESULT))})


@pytest.mark.parametrize("finished", [False, True])
def test_files_exchanged_together_with_the_manifest_are_noticed(
    finished: bool, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """The manifest of another run vouches for files of that run, but not for this run."""
    mine, other = tmp_path / "mine", tmp_path / "other"
    with_view_and_attack(SHORT, mine, finished=False)
    with_view_and_attack(SHORT.model_copy(update={"seed": 9}), other, finished=finished)
    view = "views/cloud/round-000001.npz"
    whole = (mine / view).read_bytes()
    for name in (view, RESULT, "manifest.json"):
        (mine / name).write_bytes((other / name).read_bytes())
    with pytest.raises(RunError, match=rf"{view}: has SHA-256.*cannot be restored.*force=True"):
        simulate.run(SHORT, out=mine, device="cpu", resume=True)
    (mine / view).write_bytes(whole)
    simulate.run(SHORT, out=mine, device="cpu", resume=True)
    if finished:
        assert f"{mine / 'manifest.json'}: is of another run" in caplog.text
    assert check_folder(mine) == []
    assert RESULT not in read_manifest(mine).files


def test_a_result_of_an_attack_stays_with_its_run(tmp_path: Path) -> None:
    with_view_and_attack(SHORT, tmp_path, finished=False)
    simulate.run(SHORT, out=tmp_path, device="cpu", resume=True)
    assert RESULT in read_manifest(tmp_path).files
    simulate.run(LONG, out=tmp_path, device="cpu", resume=True)
    assert RESULT in read_manifest(tmp_path).files
    assert check_folder(tmp_path) == []


def test_a_missing_log_is_refused(tmp_path: Path, whole: Whole) -> None:
    stop_after(LONG, tmp_path, 1)
    (tmp_path / "rounds.jsonl").unlink()
    with pytest.raises(RunError, match=r"rounds.jsonl: is missing.*force=True"):
        simulate.run(LONG, out=tmp_path, device="cpu", resume=True)
    simulate.run(LONG, out=tmp_path, device="cpu", force=True)
    assert_same(whole(LONG), tmp_path)


def test_a_file_is_no_folder(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("mine")
    for resume in (False, True):
        with pytest.raises(SpecError, match="is a file"):
            list(simulate.run_rounds(spec_of(), out=tmp_path / "file", device="cpu", resume=resume))
    assert (tmp_path / "file").read_text() == "mine"


def test_resumed_with_other_things_to_show(tmp_path: Path) -> None:
    """``watch`` and ``evaluate_every`` say what is shown, not what is trained: they may change."""
    stop_after(spec_of(), tmp_path / "parts", 4)
    shown = spec_of(watch=["device:1", "public"])
    simulate.run(shown, out=tmp_path / "parts", device="cpu", resume=True)
    simulate.run(shown, out=tmp_path / "whole", device="cpu")
    assert_same(tmp_path / "whole", tmp_path / "parts")
    assert load_run(tmp_path / "parts").observers == ("device:1", "public")
    assert np.isfinite(load_run(tmp_path / "parts").metrics["epsilon:public"]).all()
