"""Run folders of deployments: verified, stated, and resumed from the parties' memories after a crash."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest
from rehearsals import PURPOSE, TREE, SimulatedRandomness, model_bytes, on_the_grid, rehearsed, spec_of

from sfumato.accounting import account
from sfumato.cli import main
from sfumato.deployment.local_parties import _label
from sfumato.deployment.messages import RoundPosition
from sfumato.deployment.randomness import Randomness
from sfumato.errors import RunError, SpecError
from sfumato.run_folder.recorded_privacy import RecordedPrivacy
from sfumato.schedule.resolve import resolve
from sfumato.simulation.run import run
from sfumato.simulation.training_inputs import TrainingInputs
from sfumato.verify.checker import check_run

TWO_ROUNDS = TREE | {"training": TREE["training"] | {"rounds": 2}}


class CrashingRandomness:
    """Ends the process, as it were, when device 1 draws for the last round; draws of device 0 change then."""

    source = "injected"

    def __init__(self, inner: SimulatedRandomness, *, crashed: bool) -> None:
        self._inner, self._crashed = inner, crashed

    def noise_key(self, position: RoundPosition, context: bytes) -> bytes:
        if self._inner.party == 1 and not self._crashed and position == (1, 1):
            raise KeyboardInterrupt
        if self._inner.party == 0 and self._crashed:
            return b"another key, used after a crash."
        return self._inner.noise_key(position, context)

    def batches(self, *of: object):
        return self._inner.batches(*of)


@pytest.mark.usefixtures("no_report")
def test_a_run_that_crashed_goes_on_with_the_answers_that_were_given(tmp_path: Path) -> None:
    """Device 0 answered the last question, device 1 did not: device 0 is asked again, and sends the same."""
    spec = spec_of(TWO_ROUNDS)
    with on_the_grid():
        expected = run(spec, out=tmp_path / "expected", device="cpu", progress=False)
    shutil.copytree(tmp_path / "expected", tmp_path / "other" / "run")
    plan = resolve(spec)
    inputs = TrainingInputs.of(plan)

    def randomness(crashed: bool):
        def of(party: int) -> Randomness:
            return CrashingRandomness(SimulatedRandomness(plan, inputs, party), crashed=crashed)

        return of

    with pytest.raises(KeyboardInterrupt):
        rehearsed(spec, tmp_path, simulated=False, randomness=randomness(crashed=False))
    with pytest.raises(SpecError, match="real parties began this run; use sfumato deploy"):
        run(spec, out=tmp_path / "run", device="cpu", progress=False, resume=True)
    with pytest.raises(SpecError, match="a simulation began this run; use sfumato run"):
        rehearsed(spec, tmp_path / "other", simulated=False, resume=True)
    (label,) = (tmp_path / "parties").glob("label-*")
    label.rename(tmp_path / "label")
    with pytest.raises(RunError, match=r"began in the session .*: another spec, version, purpose, label"):
        rehearsed(spec, tmp_path, simulated=False, randomness=randomness(crashed=True), resume=True)
    (tmp_path / "label").rename(label)
    folder = rehearsed(spec, tmp_path, simulated=False, randomness=randomness(crashed=True), resume=True)
    assert model_bytes(folder) == model_bytes(expected.folder)
    assert check_run(folder.path).problems == []
    realised = json.loads((folder.path / "ledger.json").read_text("utf-8"))["realised"]
    assert realised["deployed"]["draws"] == ["injected"]


@pytest.mark.usefixtures("no_report")
def test_a_folder_of_a_deployment_is_verified_and_stated(tmp_path: Path) -> None:
    spec, rounds, words = spec_of(TWO_ROUNDS), [], []
    folder = rehearsed(spec, tmp_path, simulated=False, on_round=rounds.append, on_words=words.append)
    assert [result.round for result in rounds] == [1, 2]
    assert len(words) > 4
    assert check_run(folder.path).problems == []
    expected = {(row.unit, row.observer): row.epsilon for row in account(spec).guarantees}
    privacy: RecordedPrivacy = folder.privacy
    assert {(row.unit, row.observer): row.epsilon for row in privacy.guarantees} == expected
    realised = json.loads((folder.path / "ledger.json").read_text("utf-8"))["realised"]
    assert realised["deployed"]["purpose"] == PURPOSE
    assert realised["sum_steps"] == [None, None]
    assert realised["deployed"]["draws"] == ["operating system"]
    assert realised["deployed"]["on"] == "one machine"
    assert main(["statement", str(folder.path), "--out", str(tmp_path / "statement.html")]) == 0
    stated = (tmp_path / "statement.html").read_text("utf-8")
    assert "Noise is discrete Gaussian, exact, and drawn from: operating system." in stated
    assert "floating-point" not in stated
    assert "This was a rehearsal of real parties on one machine" in stated
    assert folder.metrics["bytes_up"].gt(0).all()
    with pytest.raises(SpecError, match=rf"purpose: got 'another'; must be '{PURPOSE}': the run in .* ended"):
        rehearsed(spec, tmp_path, simulated=False, resume=True, purpose="another")
    assert rehearsed(spec, tmp_path, simulated=False, resume=True).path == folder.path
    again = rehearsed(spec, tmp_path, simulated=False, force=True)  # the same parties, another session
    other = json.loads((again.path / "ledger.json").read_text("utf-8"))["realised"]["deployed"]
    assert other["session"] != realised["deployed"]["session"]


def test_runs_of_the_same_parties_keep_labels_of_their_own(tmp_path: Path) -> None:
    first, second = [_label(tmp_path, tmp_path / name, "tree", resume=False) for name in ("one", "two")]
    assert first != second
    assert _label(tmp_path, tmp_path / "one", "tree", resume=True) == first
    assert _label(tmp_path, tmp_path / "one", "tree", resume=False) not in (first, second)


@pytest.mark.slow
def test_a_folder_of_a_deployment_has_a_report(tmp_path: Path) -> None:
    folder = rehearsed(spec_of(TWO_ROUNDS), tmp_path, simulated=False)
    assert main(["report", str(folder.path), "--out", str(tmp_path / "report.html")]) == 0
    assert "tree" in (tmp_path / "report.html").read_text("utf-8")
