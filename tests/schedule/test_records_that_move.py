"""Records drawn one by one in a network that moves: by hand, rows, targets, runs and the checker."""

import math
from copy import deepcopy

import dp_accounting as dp
import numpy as np
import pytest
import torch
from dp_accounting import pld
from test_moves import DELTA, VISITS, changed

import sfumato as sf
from sfumato.data.partition import Partition
from sfumato.privacy.tree.moving_releases import MovingReleases
from sfumato.protocols.tree.local_work import batches_of
from sfumato.schedule.resolve import resolve
from sfumato.simulation import run as simulate
from sfumato.spec.load import load_spec
from sfumato.verify.checker import check_run

VISITS_OF_RECORDS = changed(VISITS, training={"batches": "poisson"}, privacy={"unit": "record"})
"""Batches of 4 of 20 records: a record is in a step with probability 0.2."""
DRAWS = {"batches": "poisson", "rounds": 2}
UNEQUAL = {"source": "digits", "partition": {"kind": "dirichlet", "alpha": 0.5}}


def composed(rate, squares):
    """ε of sampled Gaussians at these μ² of a device; a record moves messages up to twice as far."""
    accountant = pld.PLDAccountant(dp.NeighboringRelation.ADD_OR_REMOVE_ONE)
    for square in squares:
        gaussian = dp.GaussianDpEvent(1 / (2 * math.sqrt(square)))
        accountant.compose(dp.PoissonSampledDpEvent(rate, gaussian))
    return accountant.get_epsilon(DELTA)


class TestByHand:
    """The figures of docs/accounting.md."""

    @pytest.mark.parametrize(
        ("observer", "squares"), [("edge:2", (1 / 8, 1 / 20, 1 / 4)), ("cloud", (1 / 4, 1 / 4, 1 / 16))]
    )
    def test_a_device_that_visits_three_edges(self, observer, squares):
        report = sf.account(load_spec(VISITS_OF_RECORDS), unit="record:0", observer=observer)
        assert report.epsilon("record:0", observer) == pytest.approx(composed(0.2, squares), rel=1e-3)

    def test_an_edge_that_was_trusted_while_the_device_was_there_has_its_raw_updates(self):
        for edge in (0, 1):
            report = sf.account(load_spec(VISITS_OF_RECORDS), unit="record:0", observer=f"edge:{edge}")
            assert report.epsilon("record:0", f"edge:{edge}") == math.inf

    def test_steps_behind_a_message_are_those_of_the_edge_of_the_round(self):
        """Under edge 0 a message has one step, under edge 1 two, under edge 2 all four of the round."""
        document = changed(
            VISITS_OF_RECORDS,
            training={"local_steps": 4, "edge_every": [1, 2, 4]},
            trust={"trusted_edges": []},
        )
        parts = resolve(load_spec(document)).releases.record_releases(0, ())
        assert [len(part.moves) for part in parts] == [1] * 4 + [2] * 2 + [4]

    def test_noise_at_local_steps_is_charged_for_the_steps_of_every_round(self):
        document = changed(
            VISITS_OF_RECORDS,
            training={"local_steps": 5},
            privacy={"clip": {"kind": "example", "norm": 1.0}, "noise": {"multiplier": 2.0, "at": "step"}},
        )
        parts = resolve(load_spec(document)).releases.record_releases(0, ())
        assert sum(part.count for part in parts) == 15


class TestDevicesOfOneRow:
    def document(self):
        return changed(VISITS_OF_RECORDS, data={}) | {"data": UNEQUAL}

    def test_a_row_is_about_the_device_with_the_largest_rate_of_those_that_it_stands_for(self):
        declared = resolve(load_spec(self.document())).releases
        assert isinstance(declared, MovingReleases)
        rates = declared.batches.rates
        assert len(np.unique(rates)) > 3
        worst = {units.unit: units for units in declared.units_outside(frozenset())}
        assert (worst[0].count, worst[0].least) == (1, None)  # nobody else visits three edges
        for first, last in ((1, 3), (3, 6), (6, 9)):
            unit = first + int(rates[first:last].argmax())
            assert (worst[unit].count, worst[unit].least) == (
                last - first,
                first + int(rates[first:last].argmin()),
            )
        assert {pair.unit for pair in declared.pair_classes()} == set(worst)

    def test_no_record_is_above_its_row(self):
        document = changed(self.document(), training=DRAWS)
        report = sf.account(load_spec(document))
        rows = [row for row in report.guarantees if row.observer == "cloud"]
        assert sum(row.stands_for for row in rows) == 9
        one_by_one = sorted(report.epsilon(f"record:{unit}", "cloud") for unit in range(9))
        stated = sorted(row.epsilon for row in rows for _ in range(row.stands_for))
        assert all(a <= b * (1 + 1e-9) for a, b in zip(one_by_one, stated, strict=True))
        assert one_by_one[-1] == pytest.approx(stated[-1], rel=1e-9)


def test_a_target_for_records_is_met_and_not_exceeded():
    document = changed(
        VISITS_OF_RECORDS,
        trust={"trusted_edges": [0, 1, 2]},
        training=DRAWS,
        privacy={"noise": {"epsilon": 1.0, "for": "public"}},
    )
    report = sf.account(load_spec(document))
    worst = max(row.epsilon for row in report.guarantees if row.observer == "public")
    assert 0.999 < worst <= 1.0


def test_many_trees_are_refused_as_with_drawn_participants():
    document = changed(VISITS_OF_RECORDS, training={"rounds": 60})
    document["topology"]["moves"] = {"rate": 0.2}
    with pytest.raises(sf.SpecError, match="with participants or records drawn at most 20"):
        resolve(load_spec(document))


class TestRuns:
    @pytest.mark.parametrize(
        "privacy",
        [
            {"clip": {"kind": "update", "norm": 1.0}, "unit": "both"},
            {"clip": {"kind": "example", "norm": 1.0}},
            {"clip": {"kind": "example", "norm": 1.0}, "noise": {"multiplier": 2.0, "at": "step"}},
        ],
        ids=["update", "example", "at step"],
    )
    def test_the_folder_is_verified(self, privacy, tmp_path):
        document = deepcopy(changed(VISITS_OF_RECORDS, training=DRAWS, privacy=privacy))
        document["data"] = UNEQUAL
        simulate.run(load_spec(document), out=tmp_path / "run", device="cpu")
        outcome = check_run(tmp_path / "run")
        assert outcome.problems == []
        assert outcome.finite > 5

    def test_a_device_draws_alike_wherever_it_is(self):
        """Its draws depend on the round and on its own data, not on its edge or on who else is there."""
        still = deepcopy(VISITS_OF_RECORDS)
        del still["topology"]["moves"]
        one, other = (resolve(load_spec(document)) for document in (VISITS_OF_RECORDS, still))
        everybody, rows = np.arange(9), Partition(np.arange(180), np.arange(0, 181, 20))
        drawn = [[batches_of(plan.at(n), rows, everybody, n) for n in range(3)] for plan in (one, other)]
        for mine, theirs in zip(*drawn, strict=True):
            assert torch.equal(mine.rows, theirs.rows)
            assert torch.equal(mine.counts, theirs.counts)
        assert not torch.equal(drawn[0][0].counts, drawn[0][1].counts)  # anew in every round
