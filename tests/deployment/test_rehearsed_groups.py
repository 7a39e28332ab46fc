"""Groups whose parties are real train the models of `run` on the same grid; and their run folders."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from rehearsals import GROUPS, model_bytes, on_the_grid, rehearsed, spec_of
from rehearsed_groups import SimulatedGroupRandomness

from sfumato.accounting import account
from sfumato.cli import main
from sfumato.deployment.messages import RoundPosition
from sfumato.errors import SpecError
from sfumato.run_folder.reader import GROUPS_FILE, RunFolder
from sfumato.schedule.resolve import resolve
from sfumato.simulation.run import run
from sfumato.simulation.training_inputs import TrainingInputs
from sfumato.verify.checker import check_run

pytestmark = pytest.mark.usefixtures("no_report")

NOBODY = {"trusted_aggregators": []}
GLOBAL = {"topology": {"kind": "groups", "structure": "global", "devices": 3}, "trust": {}}
THREE = {"kind": "groups", "structure": "list", "groups": [[0, 1, 2], [0, 1, 3], [0, 2, 3]]}
LOCAL = {"protocol": "dp-ogl-local", "training": GROUPS["training"] | {"rounds": 5}}
ADAM = {"training": GROUPS["training"] | {"server": {"optimizer": "adam", "learning_rate": 0.01}}}
QUIET = {"privacy": GROUPS["privacy"] | {"noise": "none"}}


@pytest.mark.parametrize(
    "changed",
    [
        pytest.param({}, id="ring, one master trusted"),
        pytest.param({"trust": {"trusted_aggregators": [0, 1, 2]}}, id="ring, all masters trusted"),
        pytest.param({"trust": NOBODY, "topology": THREE}, id="a worker in three groups, no master trusted"),
        pytest.param(GLOBAL, id="one group"),
        pytest.param(LOCAL, id="workers train alone, a last round is left over"),
        pytest.param(ADAM, id="masters with Adam"),
        pytest.param(QUIET, id="no noise"),
    ],
)
def test_models_are_those_of_run_on_the_same_grid(changed: dict[str, Any], tmp_path: Path) -> None:
    """The models of all groups, and the mean of those of all workers, which is all that `run` writes.

    For `on_the_grid` see test_rehearsal.py. A mean of three models is of another shape where a worker takes
    it by itself: there `run` takes the mean for every worker by itself too.
    """
    spec = spec_of(GROUPS, **changed)
    with on_the_grid():
        expected = run(spec, out=tmp_path / "expected", device="cpu", progress=False)
        folder = rehearsed(spec, tmp_path)
    assert model_bytes(folder) == model_bytes(expected.folder)
    assert of_groups(folder) == of_groups(expected.folder)


def of_groups(folder: RunFolder) -> list[bytes]:
    """The bytes of the models of all groups of a run."""
    found = torch.load(folder.path / GROUPS_FILE, weights_only=True)
    assert len(found) > 0
    return [model.numpy().tobytes() for model in found]


class CrashingRandomness(SimulatedGroupRandomness):
    """Ends the process, as it were, when worker 4 draws for the last round; draws of others change then."""

    crashed = False

    def noise_key(self, position: RoundPosition, context: bytes = b"") -> bytes:
        if self.party == 4 and position.round == 2 and not self.crashed:
            raise KeyboardInterrupt
        if self.party < 4 and self.crashed:
            return b"another key, used after a crash."
        return super().noise_key(position, context)


def test_a_run_that_crashed_goes_on_with_the_answers_that_were_given(tmp_path: Path) -> None:
    """Workers 0 to 3 had answered the last round, 4 and 5 had not; one master had released, two had not."""
    spec = spec_of(GROUPS)
    with on_the_grid():
        expected = run(spec, out=tmp_path / "expected", device="cpu", progress=False)
    plan = resolve(spec)
    inputs = TrainingInputs.of(plan)

    def crashing(crashed: bool) -> Callable[[int], CrashingRandomness]:
        def of(party: int) -> CrashingRandomness:
            drawing = CrashingRandomness(plan, inputs, party)
            drawing.crashed = crashed
            return drawing

        return of

    with pytest.raises(KeyboardInterrupt):
        rehearsed(spec, tmp_path, simulated=False, randomness=crashing(crashed=False))
    with pytest.raises(SpecError, match="real parties began this run; use sfumato deploy"):
        run(spec, out=tmp_path / "run", device="cpu", progress=False, resume=True)
    folder = rehearsed(spec, tmp_path, simulated=False, randomness=crashing(crashed=True), resume=True)
    assert model_bytes(folder) == model_bytes(expected.folder)
    assert of_groups(folder) == of_groups(expected.folder)


def test_a_folder_is_verified_and_stated(tmp_path: Path) -> None:
    spec, rounds, words = spec_of(GROUPS), [], []
    folder = rehearsed(spec, tmp_path, simulated=False, on_round=rounds.append, on_words=words.append)
    assert [result.round for result in rounds] == [1, 2, 3]
    assert "device:5 takes part in ring, for: a test." in words
    assert check_run(folder.path).problems == []
    expected = {(row.unit, row.observer): row.epsilon for row in account(spec).guarantees}
    assert {(row.unit, row.observer): row.epsilon for row in folder.privacy.guarantees} == expected
    realised = json.loads((folder.path / "ledger.json").read_text("utf-8"))["realised"]
    assert realised["sum_steps"] == [None]
    assert realised["deployed"]["draws"] == ["operating system"]
    assert realised["deployed"]["on"] == "one machine"
    assert main(["statement", str(folder.path), "--out", str(tmp_path / "statement.html")]) == 0
    stated = (tmp_path / "statement.html").read_text("utf-8")
    assert "Noise is discrete Gaussian, exact, and drawn from: operating system." in stated
    assert "This was a rehearsal of real parties on one machine" in stated
    assert folder.metrics["bytes_up"].gt(0).all()
    assert folder.metrics["noise_std"].sub(folder.metrics["noise_std"][0]).abs().max() < 1e-9
    first = model_bytes(folder)
    assert model_bytes(rehearsed(spec, tmp_path, simulated=False, force=True)) != first  # no seed leads to it


@pytest.mark.slow
def test_a_folder_has_a_report(tmp_path: Path) -> None:
    folder = rehearsed(spec_of(GROUPS), tmp_path, simulated=False)
    assert main(["report", str(folder.path), "--out", str(tmp_path / "report.html")]) == 0
    assert "ring" in (tmp_path / "report.html").read_text("utf-8")


def test_a_loop_of_an_owners_does_not_train_workers(tmp_path: Path) -> None:
    with pytest.raises(SpecError, match="must be star or tree with an own loop"):
        rehearsed(spec_of(GROUPS), tmp_path, simulated=False, loop=lambda model, rows, task: model)
