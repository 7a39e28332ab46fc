"""Dropouts in groups: the fewest survivors' noise is counted, and nothing is amplified by a missing sum."""

from __future__ import annotations

import itertools
import math
from dataclasses import replace

import pytest

import sfumato as sf
from sfumato.errors import SpecError
from sfumato.privacy.groups.exposure_problem import ChargedSum
from sfumato.privacy.groups.facts import GroupDraw
from sfumato.privacy.groups.received_sums import ReceivedSums
from sfumato.privacy.groups.releases import GroupReleases
from sfumato.privacy.groups.vector_clocks import GroupStructure
from sfumato.privacy.observers import Party
from sfumato.schedule.participation import colluders_that_unmask, threshold_of
from sfumato.schedule.resolve import resolve
from sfumato.spec.faults import Faults

SECURE = {"devices_to_master": "secure-aggregation"}
UNTRUSTED = {"trusted_aggregators": []}
FIXED = {"kind": "fixed", "count": 4}
POISSON = {"kind": "poisson", "rate": 0.3}


def spec_of(*, participation=None, **sections):
    document = {
        "name": "dropouts",
        "protocol": "dp-ogl",
        "seed": 1,
        "data": {"source": "synthetic", "examples_per_device": 20},
        "topology": {"kind": "groups", "structure": "clusters", "groups": 2, "devices": 20},
        "training": {
            "rounds": 3,
            "local_steps": 1,
            "batch_size": 4,
            "learning_rate": 0.1,
            "participation": participation or {"kind": "all"},
        },
        "privacy": {"clip": {"kind": "update", "norm": 1.0}, "noise": {"multiplier": 3.0}},
        "faults": {"dropout_rate": 0.2},
    }
    return sf.load_spec({key: value for key, value in (document | sections).items() if value is not None})


def ledger_of(**sections):
    return resolve(spec_of(**sections)).releases


def worst_that_may_happen(drawn, least, *, own, linking, members):
    """The largest squared move over variance, of all sets of survivors that are released.

    Worker 0 is the unit where ``own``, the next ``linking`` ones link, the last ``members`` are the
    coalition's. Not everybody need be drawn: ``drawn`` of ten are.
    """
    size, found = 7, 0.0
    for cohort in itertools.combinations(range(size), drawn):
        for count in range(max(least, 1), drawn + 1):
            for left in itertools.combinations(cohort, count):
                move = sum((1 if own and w == 0 else 2) for w in left if w < own + linking)
                noisers = sum(w < size - members for w in left)
                found = max(found, move**2 / noisers if move else 0.0)
    return found


@pytest.mark.parametrize("drawn", [4, 7])
@pytest.mark.parametrize("least", [0, 3, 4])
def test_no_survivors_leave_less_noise_than_is_counted(drawn, least):
    """What is charged of a sum is the worst of all that may happen, and not more."""
    draw = GroupDraw.of(7, 1.0, drawn, least)
    for own, linking, members in itertools.product((False, True), range(5), range(4)):
        if not 0 < own + linking <= 7 - members:
            continue
        moved = own + draw.norms_moved_by_others(own=own, others=linking)
        charged = moved**2 / draw.sure_noisers(own=own, linking=linking, known=members)
        truth = worst_that_may_happen(drawn, least, own=own, linking=linking, members=members)
        assert truth == pytest.approx(charged), (own, linking, members)


@pytest.mark.parametrize(
    ("sections", "least"),
    [
        ({}, (0, 0)),  # sent one by one, anybody may be the only one
        ({"transport": SECURE}, (7, 7)),
        ({"transport": SECURE, "participation": FIXED}, (3, 3)),
        ({"transport": SECURE, "participation": POISSON}, (0, 0)),
        ({"transport": SECURE, "participation": {"kind": "poisson", "rate": [1.0, 0.3]}}, (7, 0)),
        ({"transport": SECURE, "faults": {"dropout_rate": 0.2, "survival_threshold": 0.9}}, (9, 9)),
        ({"transport": SECURE, "faults": {"dropout_rate": {"unmask": 0.2}}}, (7, 7)),
    ],
)
def test_the_fewest_survivors_follow_from_the_threshold(sections, least):
    assert ledger_of(**sections).least_survivors == (least,)


def test_later_groups_have_thresholds_of_their_own():
    eras = [{"from_round": 2, "groups": [list(range(4)), list(range(4, 20))]}]
    topology = {"kind": "groups", "structure": "list", "eras": eras}
    topology |= {"groups": [list(range(10)), list(range(10, 20))]}
    assert ledger_of(topology=topology, transport=SECURE).least_survivors == ((7, 7), (3, 11))


def variance_of_a_sum(**sections):
    """Over the square of the clip norm, towards a worker of the group."""
    declared = ledger_of(trust=UNTRUSTED, **sections)
    flow, *_ = declared.exposures(0, (Party("device", 0, 1),))
    (found,) = {release.variance / 9.0 for release in flow.releases}
    return found


def test_untrusted_masters_noise_is_that_of_the_fewest_survivors():
    """A member adds one of the seven noises, and knows it; one by one only the unit's own is sure."""
    assert variance_of_a_sum(faults=None) == pytest.approx(9.0)
    assert variance_of_a_sum(transport=SECURE) == pytest.approx(6.0)
    assert variance_of_a_sum(transport=SECURE, participation=FIXED) == pytest.approx(2.0)
    assert variance_of_a_sum() == pytest.approx(1.0)
    assert variance_of_a_sum(participation=FIXED) == pytest.approx(1.0)


def epsilons(**sections):
    return [(row.unit, row.observer, row.epsilon) for row in sf.account(spec_of(**sections)).guarantees]


@pytest.mark.parametrize("transport", [None, SECURE])
def test_with_trusted_masters_epsilon_is_that_without_dropouts(transport):
    assert epsilons(transport=transport) == epsilons(transport=transport, faults=None)


@pytest.mark.parametrize("participation", [POISSON, FIXED])
def test_masters_noise_still_amplifies_where_no_sum_is_missing(participation):
    """Sent one by one, a lost message is one of zeros; a threshold may be met because the unit was drawn."""
    elsewhere = (Party("device", 0, 15),)

    def amplified(transport, trust, faults):
        declared = ledger_of(
            participation=participation, transport=transport, trust=trust, faults=faults,
            topology={"kind": "groups", "structure": "ring", "groups": 3, "devices": 21},
        )  # fmt: skip
        flow, *_ = declared.exposures(2, elsewhere)
        return {drawn.amplifies for drawn in flow.draws}

    drops = {"dropout_rate": 0.2}
    assert amplified(None, {}, drops) == amplified(SECURE, {}, None) == {True}
    assert amplified(SECURE, {}, drops) == {False}
    assert amplified(None, UNTRUSTED, drops) == {False}


def test_a_group_where_workers_noise_may_be_lost_claims_no_lower_bound():
    """Linking workers that meet may then cost less than apart."""
    groups = (tuple(range(9)), tuple(range(1, 10)))
    plan = GroupReleases(
        "dp-ogl", 10, (GroupStructure(1, groups),), 6, 2, (1.0,) * 2, (1.0,) * 2, (1.0,) * 2,
        noise_owner=("devices",) * 2, transport="secure-aggregation", least_survivors=((5, 5),),
    )  # fmt: skip
    scene = plan.exposure_problem(int(plan.kinds.of[0]), (Party("device", 0, 9),))
    price = ReceivedSums(plan, scene, plan.view((Party("node", 1, 0),), 1), {}).price
    extra = [price(ChargedSum(0, 0, True, n)) - price(ChargedSum(0, 0, True, 0)) for n in range(9)]
    assert extra[8] < 2 * extra[4]
    assert not scene.links_add_up
    trusting = replace(plan, noise_owner=())
    assert trusting.exposure_problem(int(plan.kinds.of[0]), (Party("device", 0, 9),)).links_add_up


@pytest.mark.parametrize("share", [None, 0.51, 0.7, 0.9, 1.0])
@pytest.mark.parametrize("parties", [2, 3, 5, 12])
def test_no_session_that_may_be_drawn_is_unmasked_by_fewer(share, parties):
    faults = None if share is None else Faults(survival_threshold=share)
    found = colluders_that_unmask(faults, parties, drawn=True)
    enough = [size - 1 for size in range(2, parties + 1) if threshold_of(faults, size) <= size - 1]
    assert found == min(enough) if enough else found >= parties
    assert colluders_that_unmask(faults, parties, drawn=False) == threshold_of(faults, parties)


def test_a_target_is_met_with_dropouts():
    """The noise is sized for the fewest survivors: 7 of 10, one of them the observer."""
    noise = {"epsilon": 2.0, "for": "peer"}
    privacy = {"clip": {"kind": "update", "norm": 1.0}, "noise": noise}
    lost, kept = (
        resolve(spec_of(privacy=privacy, transport=SECURE, trust=UNTRUSTED, faults=faults))
        for faults in ({"dropout_rate": 0.2}, None)
    )
    assert lost.multipliers[0] / kept.multipliers[0] == pytest.approx(math.sqrt(9 / 6), rel=1e-3)


@pytest.mark.parametrize(
    ("sections", "message"),
    [
        ({"faults": {"supernode_failure_rate": 0.1}}, "groups have masters, not supernodes"),
        ({"faults": {"dropout_rate": 0.1, "survival_threshold": 0.8}}, "goes with secure aggregation"),
        ({"faults": {"dropout_rate": 1.0}}, "faults.dropout_rate"),
    ],
)
def test_what_has_no_meaning_in_groups_is_refused(sections, message):
    with pytest.raises(SpecError, match=message):
        spec_of(**sections)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"least_survivors": ((11, 7),)}, "got 11 for group 0; must be 0..10"),
        ({"least_survivors": ((7, 7), (7, 7))}, "2 counts for each of 1 eras"),
        ({"least_survivors": ((7, 7),), "transport": "plain"}, "must be 0..0"),
        ({"least_survivors": ((7, 7),), "rate": (0.5, 1.0)}, "got 7 for group 0; must be 0..0"),
    ],
)
def test_facts_out_of_range_are_refused(change, message):
    with pytest.raises(ValueError, match=message):
        replace(ledger_of(transport=SECURE), **change)
