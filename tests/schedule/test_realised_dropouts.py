"""After a run: rows charge the noise of who was left and the terms of office that were."""

import math

import numpy as np
import pytest
from one_aggregation import Aggregation
from places import ROOT

from sfumato.accounting import account
from sfumato.privacy.losses import gaussian
from sfumato.privacy.observers import Party
from sfumato.schedule.faults.dropouts import turnout_of
from sfumato.schedule.faults.realised_dropouts import RealisedDropouts
from sfumato.schedule.resolve import resolve
from sfumato.simulation.after_run import with_participations
from sfumato.spec.load import load_spec

pytestmark = pytest.mark.usefixtures("coarse_losses")

EXAMPLES = ROOT / "examples" / "hdp"
ROUNDS = 6
SMALL = ["topology={edges: 3, devices_per_edge: 4}", f"training.rounds={ROUNDS}"]
ELECTED = "topology={edges: 3, devices_per_edge: 4, supernodes: elected}"


def true_square(plan, unit, observer):
    """mu^2 of what was met, message by message, in the rounds that were."""
    total, everybody = 0.0, np.arange(plan.tree.device_count)
    for number in range(ROUNDS):
        turnout = turnout_of(plan, number, 0, everybody)
        heard = [int(d) for d in everybody[turnout.received]]
        if unit not in heard:
            continue
        offices = [Party("node", 1, z) for z, served in enumerate(turnout.terms) if observer.index in served]
        coalitions = [(observer, *(offices if observer.kind == "device" else ()))]
        if observer.kind == "node" and turnout.terms:  # any who held the office, and know their own noise
            holders = [d for d in turnout.terms[observer.index] if d != unit]
            coalitions = [(observer, Party("device", 0, d)) for d in holders]
        game = Aggregation(plan.releases, heard, absent=np.flatnonzero(~turnout.formed).tolist())
        met = [game.charge(unit, c) for c in coalitions]
        total += max(met, default=0.0)
    return total


@pytest.mark.parametrize("case", ["c1", "c3", "c5"])
@pytest.mark.parametrize(
    "overrides",
    [
        ["faults={dropout_rate: 0.2, survival_threshold: 0.6}"],
        [ELECTED],
        [ELECTED, "faults={dropout_rate: 0.1, supernode_failure_rate: 0.3, survival_threshold: 0.6}"],
        [ELECTED, "faults={supernode_failure_rate: 0.3, when_supernode_fails: skip}"],
    ],
    ids=["dropouts", "elections", "both", "skip"],
)
def test_a_row_after_the_run_is_never_below_what_any_of_its_pairs_met(case, overrides):
    plan = resolve(load_spec(EXAMPLES / f"{case}.yaml", [*SMALL, *overrides]))
    turnout = RealisedDropouts.of(plan, ROUNDS)
    declared = plan.releases
    charged = {
        (pair.unit, pair.observer): turnout.mu_squared(pair, ROUNDS) for pair in declared.pair_classes()
    }
    for unit in range(declared.device_count):
        observers = [Party("public"), *(Party("node", 1, z) for z in range(3))]
        observers += [Party("device", 0, d) for d in range(declared.device_count) if d != unit]
        for observer in observers:
            met = true_square(plan, unit, observer)
            row = max(
                square
                for (u, o), square in charged.items()
                if (o.kind, o.tier) == (observer.kind, observer.tier)
                and _alike(declared, u, unit)
                and _related(declared, u, o, unit, observer)
            )
            assert row >= met * (1 - 1e-9), (unit, observer)


def _alike(declared, one, other):
    orbits = declared.leaf_classes
    kinds = [(orbits[declared.leaf_of(d)], declared.classes.kind(declared.class_of(d))) for d in (one, other)]
    return kinds[0] == kinds[1]


def _related(declared, u, o, unit, observer):
    def place(a, b):
        if b.kind == "public":
            return None
        leaf = declared.leaf_of(b.index) if b.kind == "device" else b.index
        return leaf == declared.leaf_of(a), declared.leaf_classes[leaf]

    return place(u, o) == place(unit, observer)


def test_one_unit_of_a_class_of_its_own_is_charged_exactly():
    """One zone, nobody elected: the public meets the sum of the survivors, whoever they are."""
    one = "topology={edges: 1, devices_per_edge: 6}"
    plan = resolve(
        load_spec(EXAMPLES / "c1.yaml", [one, f"training.rounds={ROUNDS}", "faults={dropout_rate: 0.2}"])
    )
    turnout = RealisedDropouts.of(plan, ROUNDS)
    sums = [turnout_of(plan, n, 0, np.arange(6)).received.sum() for n in range(ROUNDS)]
    expected = sum(1 / (1.1**2 * n) for n in sums if n)
    assert len(set(sums)) > 1
    public = next(p for p in plan.releases.pair_classes() if p.relation.words == "public")
    assert turnout.mu_squared(public, ROUNDS) == pytest.approx(expected)


def test_of_all_rounds_the_worst_count():
    """A unit that came less often may have missed any of them: the ones with the least noise are charged."""
    one = "topology={edges: 1, devices_per_edge: 6}"
    plan = resolve(
        load_spec(
            EXAMPLES / "c1.yaml",
            [one, f"training.rounds={ROUNDS}", "faults={dropout_rate: 0.3, survival_threshold: 0.51}"],
        )
    )
    sums = [turnout_of(plan, n, 0, np.arange(6)).received.sum() for n in range(ROUNDS)]
    squares = sorted((1 / (1.1**2 * n) for n in sums if n), reverse=True)
    assert squares[0] > squares[-1]
    turnout = RealisedDropouts.of(plan, ROUNDS)
    public = next(p for p in plan.releases.pair_classes() if p.relation.words == "public")
    for times in range(len(squares) + 1):
        assert turnout.mu_squared(public, times) == pytest.approx(sum(squares[:times]))


def test_rows_say_what_they_amount_to_after_the_run():
    spec = load_spec(EXAMPLES / "c1.yaml", [*SMALL, "faults={dropout_rate: 0.1, survival_threshold: 0.6}"])
    report = account(spec)
    turnout = RealisedDropouts.of(report.plan, ROUNDS)
    after = with_participations(report, np.full(12, ROUNDS - 1), ROUNDS, 650)
    for row, found, pair in zip(
        after.guarantees, after.ex_post, report.plan.releases.pair_classes(), strict=True
    ):
        mu = math.sqrt(turnout.mu_squared(pair, ROUNDS - 1))
        assert found.epsilon == pytest.approx(gaussian.epsilon(delta=1e-5, mu=mu))
        assert found.epsilon <= row.epsilon * (1 + 1e-9)
        assert found.participations == ROUNDS - 1


def test_nothing_to_say_where_everybody_is_there_and_nobody_elected():
    assert RealisedDropouts.of(resolve(load_spec(EXAMPLES / "c1.yaml", SMALL)), ROUNDS) is None
