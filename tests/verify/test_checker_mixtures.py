"""Visible mixtures: what the accountant states passes, and any claim of more noise is found."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from random_tree_facts import coalitions, ledgers, make_ledger, mixed_ledgers

from sfumato.privacy.certificate import _to_json
from sfumato.privacy.charges import ways_to_charge
from sfumato.privacy.observers import Party
from sfumato.privacy.release import DrawnNoise, DrawnReleases, Exposure, NoiseLaw, Release
from sfumato.privacy.sampling import Sampling
from sfumato.privacy.tree.facts import AggregationFacts
from sfumato.privacy.tree.releases import TreeReleases
from sfumato.privacy.tree.shape import DeviceClasses
from sfumato.verify.drawn_noise import chances_of_larger_mu, mixture_problems, noise_of_drawn_others
from sfumato.verify.draws import read_draw
from sfumato.verify.spec_tree import certainty_problems
from sfumato.verify.tree_exposures import CheckedTree

RELEASE = Release("step", "sum", 1.0, 0.0, 0.25, False)
TWO = (RELEASE, replace(RELEASE, name="later", own_sensitivity=0.5, variance=0.1))


def drawn(
    noise: tuple[DrawnNoise, ...], releases: tuple[Release, ...] = TWO, *, rate: float = 0.3, count: int = 4
) -> DrawnReleases:
    return DrawnReleases(Sampling("poisson", rate, False), releases, count, drawn_noise=noise)


def stated(draw: DrawnReleases, relation: Any = "zero-out") -> tuple[list[dict[str, Any]], float]:
    """The terms of the accountant as a certificate has them, and the probability of failure."""
    (way,) = ways_to_charge(Exposure("flow", (draw,)), relation)
    return [_to_json(term) for term in way.terms], way.failure_probability


def problems(draw: DrawnReleases, terms: list[dict[str, Any]], failure: float, relation: str = "zero-out"):
    releases = [_to_json(release) for release in draw.releases]
    certified = _to_json(draw) | {"releases": range(len(releases))}
    mine = read_draw(certified, releases)
    return list(mixture_problems([mine], relation, 1.0, terms, failure))


VARIANCES = st.sampled_from([0.0, 0.01, 0.02, 0.3, 1.0, math.pi])
NOISE = st.lists(
    st.builds(DrawnNoise, st.integers(0, 60), st.tuples(VARIANCES, VARIANCES)), min_size=1, max_size=4
)


@settings(max_examples=40, deadline=None)
@given(
    noise=NOISE,
    rate=st.sampled_from([0.01, 0.2, 0.9]),
    sure=st.sampled_from([0.0, 0.25]),
    standing=st.booleans(),
    relation=st.sampled_from(["zero-out", "replace"]),
)
def test_what_the_accountant_states_passes(noise, rate, sure, standing, relation):
    """Equal and different variances, in one proportion, two or more, with and without sure noise."""
    releases = tuple(replace(r, variance=sure, noise_is_draw_independent=standing) for r in TWO)
    draw = drawn(tuple(noise), releases, rate=rate)
    draw = replace(draw, sampling=Sampling("poisson", rate, standing))
    assert problems(draw, *stated(draw, relation), relation) == []


def test_the_chances_are_those_of_all_draws():
    """Beside a listing of who of three and two others is drawn."""
    noise = (DrawnNoise(3, (0.2, 0.1)), DrawnNoise(2, (0.0, 0.4)))
    draw = read_draw(_to_json(drawn(noise)) | {"releases": [0, 1]}, [_to_json(release) for release in TWO])
    levels = np.array([0.0, 1.0, 2.0, 3.0, 4.0, 5.0])
    expected = np.zeros(len(levels))
    for who in np.ndindex(2, 2, 2, 2, 2):
        chance = math.prod(0.3 if one else 0.7 for one in who)
        first, second = sum(who[:3]), sum(who[3:])
        square = 1 / (0.25 + 0.2 * first) + 0.25 / (0.1 + 0.1 * first + 0.4 * second)
        expected += chance * (square > levels)
    found, bare = chances_of_larger_mu(draw, "zero-out", levels)
    assert found == pytest.approx(expected, rel=1e-12)
    assert bare == 0


def test_only_two_proportions_count():
    """Those with the most noise: what the accountant counts."""
    noise = (DrawnNoise(3, (1.0, 0.5)), DrawnNoise(9, (0.0, 1.0)), DrawnNoise(1, (0.1, 0.0)))
    draw = read_draw(_to_json(drawn(noise)) | {"releases": [0, 1]}, [_to_json(release) for release in TWO])
    assert [side[0].tolist() for side in noise_of_drawn_others(draw)] == [[0.0, 1.0], [1.0, 0.5]]


def test_rounds_without_any_noise_are_failures():
    """Each of four rounds has no noise with probability .7^20, and uses the unit with .3."""
    bare = tuple(replace(release, variance=0.0) for release in TWO)
    draw = drawn((DrawnNoise(20, (0.2, 0.1)),), bare)
    terms, failure = stated(draw)
    assert failure == pytest.approx(1 - (1 - 0.3 * 0.7**20) ** 4, rel=1e-9)
    assert problems(draw, terms, failure) == []
    (problem,) = problems(draw, terms, failure * 0.999)
    assert "failure_probability: stated" in problem
    (problem,) = problems(draw, terms, failure * 1.01)
    assert "rounds without any noise give" in problem


def test_a_mixture_of_more_than_the_draw_has_is_found():
    """The terms of a draw with one more other, of a rarer draw, of fewer rounds."""
    draw = drawn((DrawnNoise(20, (0.2, 0.1)),))
    more = stated(drawn((DrawnNoise(21, (0.2, 0.1)),)))
    assert any("terms: scales" in problem for problem in problems(draw, *more))
    assert any(
        "over draws at rate 0.3" in p
        for p in problems(draw, *stated(replace(draw, sampling=Sampling("poisson", 0.2, False))))
    )
    assert any("4 times" in problem for problem in problems(draw, *stated(replace(draw, count=3))))
    assert any("must be one mixture" in problem for problem in problems(draw, [], 0.0))


def test_a_draw_with_the_least_noise_always_is_a_sound_mixture():
    """Others may count for nothing, not for more."""
    draw = drawn((DrawnNoise(20, (0.2, 0.1)),))
    assert problems(draw, *stated(replace(draw, drawn_noise=()))) == []


def test_a_record_under_a_filter_is_charged_four_times():
    draw = drawn((DrawnNoise(20, (0.2, 0.1)),))
    terms, failure = stated(draw)
    releases = [_to_json(release) for release in draw.releases]
    mine = read_draw(_to_json(draw) | {"releases": [0, 1]}, releases)
    found = list(mixture_problems([mine], "zero-out", 4.0, terms, failure))
    assert any("terms: scales" in problem for problem in found)
    wide = [term | {"multiplier": term["multiplier"] / 2} for term in terms]
    assert list(mixture_problems([mine], "zero-out", 4.0, wide, failure)) == []


# --- which noise of others counts -------------------------------------------------------------------


def zones(**more: Any) -> TreeReleases:
    """Two zones of 4 and 3 devices under a region each, drawn by chance; the last device weighs less."""
    stds = (np.zeros(1), np.zeros(2), np.zeros(2))
    repeated = np.zeros(2, dtype=bool)
    steps = [
        AggregationFacts("zones", 2, np.ones(2), np.array([1.0, 0.5]), stds, repeated),
        AggregationFacts("global", 0, np.ones(2), np.array([1.0, 0.5]), stds, repeated),
    ]
    hops = ("plain", "plain", "secure-aggregation")
    weights = np.array([1.0, 1.0, 1.0, 1.0, 1.0, 1.0, 0.4])
    given = {
        "kind": "poisson", "rate": 0.4, "participants": [1.6, 1.2], "hops": hops,
        "rounds": 2, "denominators": np.array([1.6, 1.2]), "most_denominators": np.array([4.0, 3.0]),
        "device_classes": DeviceClasses.of(np.array([4, 3]), weights, None),
    }  # fmt: skip
    return make_ledger([[2], [1, 1], [4, 3]], steps, **(given | more))


PUBLIC, EDGE, OTHER_EDGE = Party("public"), Party("node", 2, 0), Party("node", 2, 1)
OTHER_REGION, PEER, STRANGER = Party("node", 1, 1), Party("device", 0, 1), Party("device", 0, 4)
COALITIONS = [
    (PUBLIC,), (Party("node", 0, 0),), (EDGE,), (OTHER_EDGE,), (OTHER_REGION,), (PEER,), (STRANGER,),
    (EDGE, PEER), (PUBLIC, PEER, STRANGER), (OTHER_EDGE, STRANGER),
]  # fmt: skip


def claims(
    claimed: DrawnReleases, ledger: TreeReleases, coalition: tuple[Party, ...], bound: str = "flow"
) -> list[str]:
    """What the checker finds where this drawn noise is claimed towards a coalition."""
    facts = CheckedTree(ledger.to_dict())
    members = [facts.party_named(ledger.party_name(member)) for member in coalition]
    steps = [n for n in range(2) if bound == "flow" or facts.sees_average(n, 0, members)]
    releases = [_to_json(release) for release in claimed.releases]
    draw = read_draw(_to_json(claimed) | {"releases": range(len(releases))}, releases)
    return list(facts.drawn_noise_problems(draw, steps, 0, members))


@pytest.mark.parametrize(
    "coalition", COALITIONS, ids=lambda members: "+".join(f"{m.kind}{m.tier}.{m.index}" for m in members)
)
def test_the_noise_of_others_is_that_of_the_facts_and_no_more(coalition):
    """One device more, or one part in a million more noise of it, is found."""
    ledger = zones()
    for exposure in ledger.exposures(0, coalition):
        (honest,) = exposure.draws
        bound = exposure.bound_name
        assert claims(honest, ledger, coalition, bound) == []
        for place, noise in enumerate(honest.drawn_noise):
            for forged in (
                replace(noise, count=noise.count + 1),
                replace(noise, variances=tuple(v * (1 + 1e-6) for v in noise.variances)),
            ):
                listed = [*honest.drawn_noise[:place], forged, *honest.drawn_noise[place + 1 :]]
                found = claims(replace(honest, drawn_noise=tuple(listed)), ledger, coalition, bound)
                assert any(f"drawn noise: {forged.count} others" in problem for problem in found)
        twice = replace(honest, drawn_noise=honest.drawn_noise * 2)
        assert bool(claims(twice, ledger, coalition, bound)) == bool(honest.drawn_noise)


def test_what_a_drawn_device_adds():
    """In the zone of the unit over the least denominator, in the other over the largest, then by region."""
    facts = CheckedTree(zones().to_dict())
    nobody = [facts.party_named("public")]
    assert facts._variance_added_if_drawn(0, 0, nobody) == pytest.approx([1 / 1.6**2, 0, 0])
    expected = [1 / 3.2**2, (0.5 / 6) ** 2, (0.5 * 0.4 / 6) ** 2]
    assert sorted(facts._variance_added_if_drawn(1, 0, nobody)) == pytest.approx(sorted(expected))


def test_noise_that_members_know_or_unmask_counts_for_nothing():
    """That from below a member off the path, of members, and of a zone whose edge and a device collude."""
    ledger = zones()
    (towards_all,) = ledger.exposures(0, (PUBLIC,))[0].draws
    for coalition in ((OTHER_EDGE,), (OTHER_REGION,), (STRANGER,), (PEER,), (EDGE, PEER), (EDGE,)):
        assert any("drawn noise" in problem for problem in claims(towards_all, ledger, coalition)), coalition
    (towards_the_edge,) = ledger.exposures(0, (EDGE,))[0].draws
    few = replace(towards_the_edge, drawn_noise=(replace(towards_the_edge.drawn_noise[0], count=2),))
    assert claims(few, ledger, (EDGE,)) == []
    assert claims(few, ledger, (EDGE, PEER)) != []


def test_a_message_that_is_met_alone_has_no_noise_of_others():
    plain = zones(hops=("plain", "plain", "plain"))
    (honest,) = plain.exposures(0, (EDGE,))[0].draws
    assert not honest.drawn_noise
    (summed,) = zones().exposures(0, (EDGE,))[0].draws
    assert any("drawn noise: 3 others" in problem for problem in claims(summed, plain, (EDGE,)))


@pytest.mark.parametrize(
    ("change", "why"),
    [
        ({"guaranteed_contributors": np.zeros(2, dtype=np.int64)}, "devices may drop out"),
        ({"all_nodes_always_send": False}, "devices may drop out"),
        ({"rounds_after_noise": True}, "messages are rounded"),
        ({"hops": ("plain", "plain", "air")}, "over the air"),
        ({"kind": "fixed"}, "draws are not Poisson"),
        ({"rate": 1.0}, "draws are not Poisson"),
        ({"noise_law": NoiseLaw("Laplace", "no Gaussian")}, "not composed"),
    ],
)
def test_where_the_noise_of_others_never_counts(change, why):
    (honest,) = zones().exposures(0, (PUBLIC,))[0].draws
    (problem,) = claims(honest, zones(**change), (PUBLIC,))
    assert "drawn noise: counts for nothing where" in problem
    assert why in problem


def test_where_a_step_tells_who_was_drawn():
    ledger = zones()
    (honest,) = ledger.exposures(0, (PUBLIC,))[0].draws
    tells = replace(ledger, steps=(replace(ledger.steps[0], reveals_draw=True), ledger.steps[1]))
    (problem,) = claims(honest, tells, (PUBLIC,))
    assert "more than messages tells who was drawn" in problem


@settings(max_examples=60, deadline=None)
@given(ledger=ledgers(kinds=("poisson",)) | mixed_ledgers(kinds=("poisson",)), data=st.data())
def test_noise_of_others_that_the_accountant_counts_is_in_the_facts(ledger, data):
    """In random trees, towards random coalitions."""
    coalition = data.draw(coalitions(ledger, 0))
    for exposure in ledger.exposures(0, coalition):
        facts = CheckedTree(ledger.to_dict())
        members = [facts.party_named(ledger.party_name(member)) for member in coalition]
        for draw in exposure.draws:
            steps = [
                n
                for n in range(len(ledger.steps))
                if exposure.bound_name == "flow" or facts.sees_average(n, 0, members)
            ]
            releases = [_to_json(release) for release in draw.releases]
            mine = read_draw(_to_json(draw) | {"releases": range(len(releases))}, releases)
            assert list(facts.drawn_noise_problems(mine, steps, 0, members)) == []


@pytest.mark.parametrize(
    ("part", "what"),
    [
        ({"faults": {"dropout_rate": 0.1}}, "devices_may_drop_out"),
        ({"faults": {"dropout_rate": {"share": 0.1}}}, "devices_may_drop_out"),
        ({"faults": {"supernode_failure_rate": 0.1}}, "devices_may_drop_out"),
        ({"compression": {"bits": 4}}, "rounded_after_noise"),
        ({"compression": {"error_feedback": True}}, "tells_who_was_drawn"),
        ({"training": {"drift_correction": {"kind": "scaffold"}}}, "tells_who_was_drawn"),
    ],
)
def test_what_the_spec_says_about_draws_is_in_the_facts(part, what):
    facts = CheckedTree(zones().to_dict())
    assert list(certainty_problems({}, facts)) == []
    assert any(what in problem for problem in certainty_problems(part, facts))
