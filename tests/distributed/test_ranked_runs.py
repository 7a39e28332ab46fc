"""Runs over ranks: the same bytes as alone, one voice, and an end for all when one fails."""

from __future__ import annotations

import os
import random
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import fast_python
import numpy as np
import pytest
import ranked
from places import TESTS
from ranked import MAIN, arguments, differences, ended, played, start, written
from resumed_specs import CONTROLLED, GROUPED, PFELS, TRAINING, VARIANTS, spec_of

from sfumato.run_folder.damage import check_folder
from sfumato.run_folder.metrics_table import read_metrics
from sfumato.run_folder.seal import read_checkpoint
from sfumato.spec.document import Spec

TINY = spec_of(topology={"kind": "tree", "edges": 2, "devices_per_edge": [3, 4]}, evaluate_every=4)
ENDS = spec_of(
    model={"kind": "failing_models:ends"},
    topology={"kind": "tree", "edges": 2, "devices_per_edge": [4, 4]},
    watch=(),  # what was spent takes longer than the rounds
)
LONGER = {
    "sums alone": TINY,
    "devices remember": VARIANTS["SCAFFOLD"],
    "workers remember": GROUPED["dp-ogl+, stopped inside intervals"],
}
SUPPORT = {"PYTHONPATH": os.pathsep.join([str(TESTS / "support"), os.environ.get("PYTHONPATH", "")])}
SECONDS_TO_END = 20.0
"""Generous: a rank that has ended ends the others at their next exchange."""


def test_torchrun_gives_the_bytes_of_one_process(tmp_path: Path) -> None:
    wide = {"kind": "mlp", "hidden": 2000}  # several tiles of a usual size
    spec = written(spec_of(model=wide, training=TRAINING | {"rounds": 2}, watch=()), tmp_path)
    torchrun = [sys.executable, "-m", "torch.distributed.run", "--nproc-per-node", "2"]
    command = [
        *torchrun,
        "--master-port",
        str(ranked.free_port()),
        *map(str, arguments(spec, tmp_path / "two")),
    ]
    done = fast_python.run(command, env=os.environ | {"OMP_NUM_THREADS": "1"})  # the ranks are no forks
    assert done.returncode == 0, done.stderr
    assert done.stdout.count("run folder: ") == 1  # rank 0 alone
    assert differences(played(spec, tmp_path / "one", 1), tmp_path / "two") == []


@pytest.mark.parametrize("name", ["sums alone", "devices remember", "workers remember"])
def test_three_ranks_resume_what_two_began(name: str, tmp_path: Path) -> None:
    whole = LONGER[name].model_copy(update={"watch": ()})
    shorter = whole.model_copy(update={"training": whole.training.model_copy(update={"rounds": 4})})
    out = played(written(shorter, tmp_path), tmp_path / "ranks", 2)
    spec = written(whole, tmp_path)
    played(spec, out, 3, "--resume")
    assert check_folder(out) == []
    assert differences(played(spec, tmp_path / "alone", 1), out) == []
    checkpoints = [read_checkpoint(at) for at in (out, tmp_path / "alone")]
    assert checkpoints[0] is not None
    assert checkpoints[1] is not None
    assert bytes(checkpoints[0][1]) == bytes(checkpoints[1][1])
    played(spec, out, 2, "--resume")  # it is complete: nothing is done


def test_views_are_recorded_by_rank_0(tmp_path: Path) -> None:
    spec = written(TINY, tmp_path)
    views = ["--record-views", "cloud", "--record-views", "edge:0"]
    alone, shared = (played(spec, tmp_path / str(ranks), ranks, *views) for ranks in (1, 2))
    assert list((shared / "views").glob("*/*.npz"))
    assert differences(alone, shared) == []


REFUSED = {
    "the spec": ["--set", "seed=9"],
    "the recorded views": ["--record-views", "cloud"],
}


@pytest.mark.parametrize("what", REFUSED)
def test_ranks_that_differ_refuse_to_start(what: str, tmp_path: Path) -> None:
    out = tmp_path / "out"
    said = ended(start(arguments(written(TINY, tmp_path), out), 3, {2: REFUSED[what]}))
    assert [status for status, _, _ in said] == [2, 2, 2]
    lines = "".join(text for _, *texts in said for text in texts).splitlines()
    assert len(lines) == 1
    assert lines[0].startswith(f"sfumato: torchrun: {what}: rank 2 has ")
    assert not out.exists()


def test_ranks_with_other_data_refuse_to_start(tmp_path: Path) -> None:
    (tmp_path / "a").mkdir()
    (tmp_path / "b").mkdir()
    for folder, value in (("a", 1), ("b", 2)):
        rows = [f"{row % 7},{(row + value) % 5},{row % 2}" for row in range(120)]
        (tmp_path / folder / "data.csv").write_text("\n".join(["x,y,label", *rows]) + "\n")
    spec = written(spec_of(data={"source": "data.csv", "label_column": "label"}), tmp_path)
    command = [MAIN, "run", spec, "--out", tmp_path / "out", "--device", "cpu"]
    folders = {0: tmp_path / "a", 1: tmp_path / "b"}
    said = ended(start(command, 2, folders=folders))
    assert [status for status, _, _ in said] == [2, 2]
    lines = "".join(text for _, *texts in said for text in texts).splitlines()
    assert len(lines) == 1
    assert "data.csv" in lines[0]
    assert "rank 1 has" in lines[0]


def test_other_commands_are_refused_by_rank_0_alone(tmp_path: Path) -> None:
    said = ended(start([MAIN, "account", "quickstart"], 2))
    assert [status for status, _, _ in said] == [2, 2]
    assert said[0][2].startswith("sfumato: torchrun: got 'sfumato account'; starts it 2 times")
    assert said[1][1:] == ("", "")


def test_a_folder_that_holds_a_run_is_refused(tmp_path: Path) -> None:
    spec = written(TINY, tmp_path)
    played(spec, tmp_path / "out", 1)
    said = ended(start(arguments(spec, tmp_path / "out"), 2))
    assert said[0][0] == 2
    assert said[1][0] != 0
    lines = "".join(text for _, *texts in said for text in texts).splitlines()
    assert len(lines) == 1
    assert "holds a run already" in lines[0]


def _midst(tmp_path: Path, how: str, ranks: int) -> list[ranked.Said]:
    """How ranks end when rank 1 ends in the midst of a run."""
    processes = start(
        arguments(written(ENDS, tmp_path), tmp_path / "out", "--quiet"),
        ranks,
        SFUMATO_TEST_ENDS=how,
        **SUPPORT,
    )
    processes[1].wait(120)
    began = time.monotonic()
    said = ended(processes)
    assert time.monotonic() - began < SECONDS_TO_END
    return said


def _resumed_as_never_ended(spec: Spec, folder: Path, ranks: int) -> None:
    out = folder / "out"
    began = read_checkpoint(out)
    assert began is not None
    path = written(spec, folder)
    said = ended(start(arguments(path, out, "--quiet", "--resume"), ranks, **SUPPORT))
    assert [status for status, _, _ in said] == [0] * ranks, said
    assert ended(start(arguments(path, folder / "whole", "--quiet"), 1, **SUPPORT))[0][0] == 0
    assert differences(folder / "whole", out) == []


def test_a_rank_that_fails_ends_the_others_with_one_line(tmp_path: Path) -> None:
    said = _midst(tmp_path, "raise", 3)
    assert [status for status, _, _ in said] == [1, 1, 1]
    lines = "".join(text for _, *texts in said for text in texts).splitlines()
    assert len(lines) == 1
    assert "this model fails on rank 1" in lines[0]
    _resumed_as_never_ended(ENDS, tmp_path, 1)


def test_rank_0_alone_scores_what_a_resumed_run_adds_to_its_log(tmp_path: Path) -> None:
    """The last round that was done had no scores; the spec that goes on asks for them."""
    rare = ENDS.model_copy(update={"evaluate_every": 1000})
    processes = start(
        arguments(written(rare, tmp_path), tmp_path / "out", "--quiet"),
        2,
        SFUMATO_TEST_ENDS="raise",
        **SUPPORT,
    )
    assert 0 not in [status for status, _, _ in ended(processes)]
    found = read_checkpoint(tmp_path / "out")
    assert found is not None
    done = found[0].rounds.rounds
    assert done > 0
    often = ENDS.model_copy(update={"evaluate_every": done})
    again = arguments(written(often, tmp_path), tmp_path / "out", "--quiet", "--resume")
    assert [status for status, _, _ in ended(start(again, 2, **SUPPORT))] == [0, 0]
    loss = read_metrics(tmp_path / "out" / "metrics.parquet")[0]["loss"]
    assert np.isfinite(loss[done - 1])
    assert np.isnan(loss[: done - 1]).all()


def test_a_killed_rank_ends_the_others_with_one_line(tmp_path: Path) -> None:
    said = _midst(tmp_path, str(int(signal.SIGKILL)), 3)
    assert [status for status, _, _ in said] == [1, -9, 1]
    lines = "".join(text for _, *texts in said for text in texts).splitlines()
    assert len(lines) == 1
    assert "another of the 3 processes of this run has ended" in lines[0]
    assert "--resume" in lines[0]
    _resumed_as_never_ended(ENDS, tmp_path, 2)


@pytest.mark.parametrize("spec", [ENDS, VARIANTS["SCAFFOLD"]], ids=["sums alone", "devices remember"])
def test_an_interrupt_saves(spec: Spec, tmp_path: Path) -> None:
    """As a terminal and torchrun send it: to all, and again while they end."""
    out = tmp_path / "out"
    processes = start(arguments(written(spec, tmp_path), out, "--set", "training.rounds=5000"), 2, **SUPPORT)
    while not (out / "rounds.jsonl").exists() or (out / "rounds.jsonl").stat().st_size < 2000:
        assert processes[0].poll() is None
        time.sleep(0.05)
    for number in (signal.SIGINT, signal.SIGTERM):
        for process in processes:
            process.send_signal(number)
    said = ended(processes)
    assert [status for status, _, _ in said] == [130, 130]
    lines = [line for _, *texts in said for text in texts for line in text.splitlines() if line]
    assert len(lines) == 1
    again = f"torchrun --nproc-per-node 2 -m sfumato run {tmp_path / 'wanted.yaml'} --out {out}"
    assert lines[0].startswith(f"sfumato: interrupted; continue with: {again}")
    found = read_checkpoint(out)
    assert found is not None
    assert found[0].rounds.rounds > 0
    assert (out / "metrics.parquet").exists()


def test_an_interrupt_that_a_destructor_swallows_saves(tmp_path: Path) -> None:
    """It is raised again at the next exchange; the other rank, which got no signal, meets the end of this."""
    said = _midst(tmp_path, "lost", 2)
    assert [status for status, _, _ in said] == [1, 130]
    lines = [line for _, *texts in said for text in texts for line in text.splitlines() if line]
    assert len(lines) == 1
    assert lines[0].startswith("sfumato: interrupted; continue with: ")
    _resumed_as_never_ended(ENDS, tmp_path, 2)


ODD = {"kind": "mlp", "hidden": 7}
SPECS = {
    "an odd number of parameters": spec_of(
        model=ODD, topology={"kind": "tree", "edges": 3, "devices_per_edge": 5}
    ),
    "dual forms": spec_of(
        data={"source": "digits"},
        model={"kind": "mlp", "hidden": 160},
        topology={"kind": "tree", "edges": 3, "devices_per_edge": 20},
        trust={"trusted_edges": [1]},
        training={"rounds": 3, "local_epochs": 6, "batch_size": 5, "learning_rate": 0.1},
        protocol="hfl-dp",
        privacy={"delta": 1e-5, "clip": {"kind": "update", "norm": 1.0}, "noise": {"multiplier": 1.0}},
    ),
    "Poisson batches": VARIANTS["Poisson mini-batches"],
    "clips of examples": VARIANTS["clips of examples"],
    "noise at every step": VARIANTS["noise at every step"],
    "a vmapped model": ENDS,
    "Adam": VARIANTS["Adam, weight decay"],
    "SCAFFOLD": VARIANTS["SCAFFOLD"],
    "resent rounds": VARIANTS["edges with schedules of their own"],
    "an adapted clip norm": VARIANTS["an adapted clip norm"],
    "no noise": VARIANTS["no noise"],
    "groups": GROUPED["dp-ogl, some trusted masters"],
    "groups that gather": GROUPED["dp-ogl+, dropouts, stopped inside intervals"],
    "groups without noise": GROUPED["ms-fedavg"],
    "air": PFELS.model_copy(
        update={"compression": PFELS.compression.model_copy(update={"error_feedback": False})}
    ),
    "error feedback": PFELS,
    "secure aggregation": VARIANTS["secure aggregation, elections and faults"],
    "control": CONTROLLED,
    "moves": VARIANTS["devices that move, edges with schedules of their own"],
}


@pytest.mark.slow
@pytest.mark.parametrize("name", SPECS)
def test_every_number_of_ranks_gives_the_same_bytes(name: str, tmp_path: Path) -> None:
    spec = written(SPECS[name].model_copy(update={"watch": ()}), tmp_path)

    def run(ranks: int) -> Path:
        out = tmp_path / str(ranks)
        said = ended(start(arguments(spec, out, "--quiet"), ranks, **SUPPORT), 600)
        assert said == [(0, "", "")] * ranks
        return out

    alone = run(1)
    assert {ranks: differences(alone, run(ranks)) for ranks in (2, 3, 4)} == {2: [], 3: [], 4: []}


KILLS = 20


@pytest.mark.slow
@pytest.mark.parametrize("number", range(KILLS))
def test_a_random_rank_killed_at_a_random_moment_changes_no_byte(number: int, tmp_path: Path) -> None:
    """Resumed on another number of ranks, the run ends as one that was never killed."""
    rng = random.Random(1000 + number)
    spec = written(SPECS[rng.choice(list(SPECS))].model_copy(update={"watch": ()}), tmp_path)
    alone, out = tmp_path / "alone", tmp_path / "out"
    began = time.monotonic()
    assert ended(start(arguments(spec, alone, "--quiet"), 1, **SUPPORT)) == [(0, "", "")]
    moment = rng.uniform(0, 2 * (time.monotonic() - began))  # several ranks on few cores take longer
    ranks, others = rng.sample([1, 2, 3, 4], 2)
    victim = rng.randrange(ranks)
    while not _killed(start(arguments(spec, out, "--quiet"), ranks, **SUPPORT), victim, moment):
        assert differences(alone, out) == []  # it had ended before
        shutil.rmtree(out)
        moment /= 2
    said = ended(start(arguments(spec, out, "--quiet", "--resume"), others, **SUPPORT))
    assert [status for status, _, _ in said] == [0] * others, said
    assert differences(alone, out) == []
    states = [bytes(held[1]) for at in (alone, out) if (held := read_checkpoint(at))]
    assert states[0] == states[1]


def _killed(processes: list[subprocess.Popen[str]], victim: int, moment: float) -> bool:
    """Kill a rank after so many seconds, and end the others as torchrun does; whether it was still there."""
    time.sleep(moment)
    processes[victim].kill()
    if processes[victim].wait(SECONDS_TO_END) == 0:
        assert ended(processes) == [(0, "", "")] * len(processes)
        return False
    for process in processes:
        process.terminate()
    said = ended(processes, SECONDS_TO_END)
    assert said[victim][0] == -signal.SIGKILL
    lines = [line for _, *texts in said for text in texts for line in text.splitlines() if line]
    # the logger of gloo writes to standard error by itself where a peer is gone while ranks connect
    assert all(line.startswith("sfumato: ") for line in lines if "gloo" not in line.lower()), lines
    return True
