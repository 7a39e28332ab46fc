"""Periods and counts of single edges: what may be written, what it means, what is refused."""

import json

import numpy as np
import pytest

import sfumato as sf
from sfumato.auditing.tree import tree_harness
from sfumato.errors import SpecError
from sfumato.schedule.local_steps import aggregations, edge_aggregations
from sfumato.schedule.resolve import resolve
from sfumato.spec.load import load_spec

SITES = [{"name": "north", "trusted": True, "devices": 3}, {"name": "south", "devices": 4}]
TRAINING = {"rounds": 3, "local_steps": 6, "edge_every": 2, "batch_size": 5, "learning_rate": 0.1}


def document(training=(), privacy=(), **sections):
    return {
        "name": "edges",
        "protocol": "h2fdp",
        "seed": 1,
        "data": {"source": "synthetic", "examples_per_device": 20},
        "topology": {"kind": "tree", "sites": SITES},
        "training": TRAINING | dict(training),
        "privacy": {"clip": {"kind": "step", "norm": 1.0}, "noise": {"multiplier": 1.0}} | dict(privacy),
    } | sections


def plan_of(training=(), privacy=(), **sections):
    return resolve(load_spec(document(training, privacy, **sections)))


def short(found):
    return [(a.step, a.tier, list(a.steps_of(2))) for a in found]


def test_every_edge_aggregates_at_multiples_of_its_period():
    assert short(edge_aggregations(6, [2, 3])) == [
        (2, 1, [2, 0]),
        (3, 1, [0, 3]),
        (4, 1, [2, 0]),
        (6, 0, [2, 3]),
    ]


def test_a_step_at_which_several_are_due_is_one_aggregation():
    assert short(edge_aggregations(9, [2, 4])) == [
        (2, 1, [2, 0]),
        (4, 1, [2, 4]),
        (6, 1, [2, 0]),
        (8, 1, [2, 4]),
        (9, 0, [1, 1]),
    ]


@pytest.mark.parametrize(("steps", "period"), [(20, 5), (10, 4), (7, 7), (6, 1)])
def test_equal_periods_are_the_one_period(steps, period):
    assert edge_aggregations(steps, [period] * 3) == aggregations(steps, [period])


def test_only_edges_that_are_due_broadcast_at_the_global_step():
    assert edge_aggregations(6, [2, 4], edge_at_global=True)[-1].edge_broadcasts == (True, False)
    assert edge_aggregations(6, [4, 5], edge_at_global=True)[-1].edge_broadcasts == ()


@pytest.mark.parametrize(
    ("written", "wanted"),
    [
        ([2, 3], (2, 3)),
        ({"north": 2, "south": 3}, (2, 3)),
        ({"edge:1": 3, "edge:0": 2}, (2, 3)),
        ({"trusted": 2, "untrusted": 3}, (2, 3)),
        ({"trusted": 3, "untrusted": 3}, 3),
        ([3, 3], 3),
    ],
)
def test_ways_to_write_the_same(written, wanted):
    training = plan_of({"edge_every": written, "participation": {"count": written}}).spec.training
    assert training.edge_every == wanted
    assert training.participation.count == wanted


def same(one, other):
    assert one.spec == other.spec
    assert json.dumps(one.releases.to_dict()) == json.dumps(other.releases.to_dict())


def test_a_list_of_equal_numbers_is_the_number():
    """The resolved spec is the same, and with it all that a run or an account makes of it."""
    count = {"trusted": 3, "untrusted": 3}
    same(
        plan_of({"edge_every": 2, "participation": {"count": 3}}),
        plan_of({"edge_every": [2, 2], "participation": {"count": count}}),
    )
    calibrated = {"noise": {"epsilon": 3, "for": "cloud"}}
    same(plan_of({"edge_every": 2}, calibrated), plan_of({"edge_every": [2, 2]}, calibrated))


def test_an_edge_that_differs_leaves_the_others_as_they_were():
    """A device of the edge whose period stays has the same epsilon towards its own edge."""
    rows = [
        sf.account(load_spec(document({"edge_every": every})), unit="device:4", observer="edge:1")
        for every in (3, [2, 3])
    ]
    one, other = (row.guarantees[0].epsilon for row in rows)
    assert one == other


def test_the_formula_counts_each_edges_own_aggregations():
    """(15): sigma grows with the root of the edge's own aggregations, over what its message holds."""
    formula = {"noise": {"formula": "h2fdp", "epsilon": 1}}
    mixed = plan_of({"edge_every": [2, 3]}, formula)
    for edge, period in enumerate((2, 3)):
        alone = plan_of({"edge_every": period}, formula)
        mine, theirs = (
            plan.noise.node[1][0] if edge == 0 else plan.noise.device[1] for plan in (mixed, alone)
        )
        np.testing.assert_array_equal(mine, theirs)


def test_a_target_is_met_by_every_edge():
    spec = load_spec(document({"edge_every": [1, 6]}, {"noise": {"epsilon": 4, "for": "cloud"}}))
    found = [row.epsilon for row in sf.account(spec).guarantees if row.observer == "cloud"]
    assert found == pytest.approx([4.0] * len(found), rel=1e-3)
    assert len(found) == 2


def test_records_are_in_the_messages_of_their_own_edge():
    """The busy edge's messages hold two local steps, the quiet one's three."""
    declared = plan_of({"edge_every": [2, 3], "batches": "poisson"}).releases
    assert [len(part.moves) for part in declared.record_releases(0, ())] == [2, 2, 2]
    assert [len(part.moves) for part in declared.record_releases(4, ())] == [3, 3]


def test_a_trusted_edge_noises_what_it_broadcasts_where_the_cloud_is_trusted_too():
    training, trust = {"edge_at_global": True}, {"cloud": True}
    steps = plan_of(training, trust=trust).releases.steps
    assert steps[-1].node_std[1][0] == steps[0].node_std[1][0] > 0
    assert plan_of(trust=trust).releases.steps[-1].node_std[1][0] == 0


LEVELS = {"kind": "tree", "levels": [2, 2, 2], "level_names": ["region", "edge"]}
AIR = {"transport": {"devices_to_edge": "air"}, "radio": {"preset": "pfels"}, "air": {}}
REFUSED = {
    "a list of another length": ({"edge_every": [2, 3, 4]}, {}, "must list one number for each edge: 2 here"),
    "a name of no edge": ({"edge_every": {"west": 2, "south": 2}}, {}, "is no edge; there are"),
    "an edge without a number": ({"edge_every": {"north": 2}}, {}, "must have a number for edge:1 too"),
    "a kind without a number": ({"edge_every": {"trusted": 2}}, {}, "must have a number for untrusted"),
    "two numbers for one": ({"edge_every": {"north": 2, "edge:0": 2}}, {}, "must have one number"),
    "a period beyond the round": ({"edge_every": [2, 7]}, {}, "must be at most local_steps"),
    "no number": ({"edge_every": [2, "often"]}, {}, "must be a whole number"),
    "more than an edge has": ({"participation": {"count": [4, 3]}}, {}, "at most the 3 devices of edge:0"),
    "deeper trees": ({"edge_every": [2, 3]}, {"topology": LEVELS}, "goes with edges under the cloud"),
    "both without a period": ({"edge_every": None, "edge_at_global": True}, {}, "goes with edge_every"),
    "control": ({"edge_every": [2, 3]}, {"control": {}}, "must be one number with control"),
    "the air": ({"edge_every": [2, 3]}, AIR, "not derived over the air"),
}


@pytest.mark.parametrize("case", REFUSED)
def test_refused_in_one_sentence(case):
    training, sections, reason = REFUSED[case]
    with pytest.raises(SpecError, match=reason) as found:
        plan_of(training, **sections)
    assert "\n" not in str(found.value)


def test_an_audit_refuses_schedules_of_single_edges():
    with pytest.raises(SpecError, match="cannot be audited where edges aggregate at steps of their own"):
        tree_harness(plan_of({"edge_every": [2, 3]}), 0, ())
