"""Audits of runs with control: the rounds that were played, against the budget that was promised."""

from __future__ import annotations

import itertools
import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from controlled_runs import CONTROLLED

import sfumato as sf
from sfumato.auditing import audit
from sfumato.auditing.tree import TreeHarness, tree_harness
from sfumato.cli import main
from sfumato.errors import RunError, SpecError
from sfumato.privacy.observers import Party
from sfumato.schedule.control.adaptive import RoundSettings, evenly_spaced_aggregations
from sfumato.schedule.control.budget import Budget
from sfumato.schedule.control.realised_rounds import settings_of_run, with_realised_rounds
from sfumato.schedule.resolve.tree import resolve_tree
from sfumato.simulation.run import run_rounds
from sfumato.spec.document import Spec

MASKED = {
    "transport": {"devices_to_edge": "secure-aggregation"},
    "privacy": CONTROLLED["privacy"] | {"noise": {"multiplier": 1.0}},
}
SILENT = MASKED | {"faults": {"dropout_rate": 0.2}}
USUAL = RoundSettings(8, 5, 5, 0.1, 1.0)  # four of them spend the budget
EDGE, CLOUD = Party("node", 1, 1), Party("node", 0, 0)

pytestmark = pytest.mark.usefixtures("no_report")


def spec(**changes: Any) -> Spec:
    return sf.load_spec(CONTROLLED | changes)


def verdicts(loaded: Spec, settings: list[RoundSettings], observer: str, trials: int = 2000) -> list[float]:
    """The lower bounds over the promised epsilon."""
    report = audit(loaded, observers=[observer], trials=trials, settings=settings)
    assert all(finding.holds == (finding.lower.epsilon <= finding.upper) for finding in report.findings)
    return [finding.lower.epsilon / finding.upper for finding in report.findings]


@pytest.mark.parametrize("changes", [{}, SILENT], ids=["plain", "masked dropouts"])
def test_an_honest_run_keeps_what_was_promised(
    tmp_path: Path, changes: dict[str, Any], capsys: pytest.CaptureFixture[str]
) -> None:
    sf.run(spec(**changes), out=tmp_path / "run")
    assert main(["audit", str(tmp_path / "run"), "--observer", "cloud", "--trials", "1000", "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    (row,) = found["findings"]
    assert 0 < row["lower"] < row["upper"]
    assert row["upper"] == pytest.approx(sf.account(spec(**changes)).epsilon(row["unit"], "cloud"))


@pytest.mark.parametrize(("observer", "changes"), [("edge:1", {}), ("cloud", {}), ("edge:1", MASKED)])
def test_rounds_are_attacked_as_they_were_played(observer: str, changes: dict[str, Any]) -> None:
    """The budget's own rounds come close to it; with a fifth of the noise they refute it, with more not."""
    loaded = spec(**changes)
    (usual,) = verdicts(loaded, [USUAL] * 4, observer)
    (loud,) = verdicts(loaded, [replace(USUAL, noise=0.2)] * 4, observer)
    (quiet,) = verdicts(loaded, [replace(USUAL, noise=5.0)] * 4, observer)
    assert quiet < 0.3 < usual <= 1 < loud


def test_every_round_has_its_own_noise() -> None:
    quiet, loud = replace(USUAL, noise=5.0), replace(USUAL, noise=0.2)
    (ratio,) = verdicts(spec(), [quiet, quiet, quiet, loud], "edge:1")
    assert ratio > 1


def test_more_rounds_than_the_budget_has_are_refuted() -> None:
    (ratio,) = verdicts(spec(), [USUAL] * 40, "edge:1", trials=1000)
    assert ratio > 1


def test_a_run_whose_filter_charges_too_little_is_found(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A build that forgets all aggregations but a twentieth: the budget lasts, and the audit refutes it."""
    right = Budget.charge
    monkeypatch.setattr(Budget, "charge", lambda *arguments: right(*arguments) / 20)
    sf.run(spec(), out=tmp_path / "run")
    monkeypatch.undo()
    (ratio,) = verdicts(spec(), list(settings_of_run(tmp_path / "run")), "cloud")
    assert ratio > 1


def test_the_unit_sends_in_the_rounds_it_was_drawn_for_and_in_no_others() -> None:
    settings = [replace(USUAL, untrusted=2, trusted=1)] * 30
    plan = with_realised_rounds(resolve_tree(spec()), settings)
    there = [number for number, played in plan.eras if 7 in played.participants.cohort.tolist()]
    assert 3 < len(there) < 25
    harness = tree_harness(plan, 7, (EDGE,))
    assert isinstance(harness, TreeHarness)
    assert harness.rounds == len(there)
    assert [draw.rate for n in range(harness.rounds) for o in harness.outcomes(n, 1) for draw in o.draws] == [
        1.0
    ] * len(there)
    report = audit(spec(), observers=["edge:1"], trials=200, settings=settings)
    cohorts = [played.participants.cohort for _, played in plan.eras]
    rounds = np.bincount(np.concatenate(cohorts), minlength=15)
    assert (
        report.findings[0].unit == f"device:{5 + int(rounds[5:10].argmax())}"
    )  # of edge:1, most often there


def test_a_unit_that_never_took_part_is_named() -> None:
    plan = with_realised_rounds(resolve_tree(spec()), [replace(USUAL, untrusted=1)])
    idle = next(d for d in range(5, 10) if d not in plan.eras[0][1].participants.cohort.tolist())
    with pytest.raises(SpecError, match=f"device:{idle} took part in no round"):
        tree_harness(plan, idle, (CLOUD,))


def test_settings_are_read_as_they_were_played(tmp_path: Path) -> None:
    control = CONTROLLED["control"] | {"per_edge": True}
    sf.run(spec(control=control), out=tmp_path / "run")
    found = settings_of_run(tmp_path / "run")
    assert all(isinstance(setting.untrusted, tuple) for setting in found[1:])
    realised = json.loads((tmp_path / "run" / "ledger.json").read_text())["realised"]
    assert [setting.noise for setting in found] == [kept["noise"] for kept in realised["settings"]]
    assert [s.steps for s in found] == [evenly_spaced_aggregations(s.steps, 1)[-1].step for s in found]


def test_a_spec_and_an_unfinished_run_are_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SpecError, match="control: cannot be audited before training"):
        audit(spec())
    for _ in itertools.islice(run_rounds(spec(), out=tmp_path / "run"), 2):
        pass
    with pytest.raises(RunError, match="has no settings of rounds yet"):
        settings_of_run(tmp_path / "run")
    assert main(["audit", str(tmp_path / "run")]) != 0
    assert "written when the run is finished" in " ".join(capsys.readouterr().err.split())
