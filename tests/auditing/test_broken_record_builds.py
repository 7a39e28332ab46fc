"""Accountants broken on purpose where records are the unit: audits catch them, at an error of 1e-6 a row."""

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import pytest
from audit_worlds import hidden_edges_plan, hospitals_plan, records_plan

from sfumato.auditing import audit_pair, record_trials
from sfumato.privacy.charges import Composition
from sfumato.privacy.records import BatchFacts, RecordCharge, RecordNeighbours, RecordReleases
from sfumato.privacy.release import Exposure, total_mu_squared
from sfumato.privacy.sampling import GaussianTerm, Sampling
from sfumato.schedule.resolve import tree as resolve_tree
from sfumato.spec.document import Spec

TRIALS = 4_000


def patch_terms(monkeypatch: pytest.MonkeyPatch, factor: float = 1.0, steps: int | None = None) -> None:
    """Make the accountant scale what a record moves, or count that many local steps a message."""
    right = RecordReleases.term

    def wrong(self: RecordReleases, rate: float, neighbours: RecordNeighbours) -> GaussianTerm:
        term = right(replace(self, moves=self.moves[:steps]), rate, neighbours)
        return replace(term, multiplier=term.multiplier / factor)

    monkeypatch.setattr(RecordReleases, "term", wrong)


@pytest.mark.parametrize("clip", ["update", "step"])
def test_the_forgotten_factor_two_is_caught(monkeypatch: pytest.MonkeyPatch, clip: str) -> None:
    """As if a record could move a message only by what its device's absence moves it."""
    plan = records_plan(clip, privacy={"noise": {"multiplier": 0.7}})
    assert audit_pair(plan, "record:4", "edge:1", trials=TRIALS).holds
    patch_terms(monkeypatch, factor=0.5)
    assert not audit_pair(plan, "record:4", "edge:1", trials=TRIALS).holds


def test_two_replaced_records_charged_as_one_zeroed_out_are_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    often = {"examples_per_device": 4}  # drawn with probability 1/2: else zero-out is hardly less
    plan = hospitals_plan(privacy={"neighbours": "replace", "noise": {"multiplier": 1.5}}, data=often)
    assert audit_pair(plan, "record:0", "cloud", trials=TRIALS).holds
    right = RecordReleases.term
    monkeypatch.setattr(RecordReleases, "term", lambda self, rate, _: right(self, rate, "zero-out"))
    assert not audit_pair(plan, "record:0", "cloud", trials=TRIALS).holds


def test_the_rate_of_a_single_step_is_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    """Prop. 3.1 of H2FDP takes q where a message holds several steps (erratum H1)."""
    plan = records_plan(training={"local_steps": 12, "edge_every": None})
    assert audit_pair(plan, "record:4", "edge:1", trials=TRIALS).holds
    patch_terms(monkeypatch, steps=1)
    assert not audit_pair(plan, "record:4", "edge:1", trials=TRIALS).holds


def test_shuffled_batches_that_are_amplified_are_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    plan_of = {"training": {"batches": "shuffled"}, "data": {"examples_per_device": 2}}
    right = records_plan(**plan_of)
    assert audit_pair(right, "record:4", "edge:1", trials=TRIALS).holds

    def drawn(spec: Spec, places: np.ndarray, pieces: Sequence[Sequence[int]]) -> BatchFacts:
        moves = tuple((1.0,) * steps for steps in pieces[0])
        return BatchFacts(np.full(int(places.sum()), 0.05), moves)

    monkeypatch.setattr(resolve_tree, "batch_facts", drawn)
    found = audit_pair(records_plan(**plan_of), "record:4", "edge:1", trials=TRIALS)
    assert found.upper < audit_pair(right, "record:4", "edge:1", trials=TRIALS).upper
    assert not found.holds


def test_less_noise_at_local_steps_than_charged_is_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    plan = hospitals_plan(privacy={"noise": {"multiplier": 0.8, "at": "step"}})
    assert audit_pair(plan, "record:0", "cloud", trials=TRIALS).holds
    patch_terms(monkeypatch, factor=0.5)
    assert not audit_pair(plan, "record:0", "cloud", trials=TRIALS).holds


def amplify_hidden(self: RecordCharge, exposure: Exposure) -> tuple[Composition, ...]:
    """What is hidden charged with the probability that the record is drawn into one message."""
    terms = tuple(
        GaussianTerm(
            total_mu_squared(draw.releases, "replace") ** -0.5, draw.count, Sampling.poisson(self.rate or 1.0)
        )
        for draw in exposure.draws
    )
    return (Composition(terms, "zero-out", "amplified"),)


def test_hidden_releases_that_are_amplified_are_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    """A device finds in its edge's model, which the cloud does not receive, that the record was drawn."""
    plan = hidden_edges_plan()
    assert audit_pair(plan, "record:0", "cloud", trials=TRIALS).holds
    monkeypatch.setattr(RecordCharge, "ways", amplify_hidden)
    assert not audit_pair(plan, "record:0", "cloud", trials=TRIALS).holds
    monkeypatch.setattr(record_trials, "_answer_thresholds", lambda *_: ())
    assert audit_pair(plan, "record:0", "cloud", trials=TRIALS).holds  # the answers are what shows it
