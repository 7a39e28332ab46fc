"""Visible mixtures: what the accountant states passes, and any claim of more noise is found."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sfumato.privacy.certificate import _plain
from sfumato.privacy.charges import charges
from sfumato.privacy.release import DrawnNoise, DrawnReleases, Exposure, Release
from sfumato.privacy.sampling import Sampling
from sfumato.verify import checker

RELEASE = Release("step", "sum", 1.0, 0.0, 0.25, False)
TWO = (RELEASE, replace(RELEASE, name="later", own_sensitivity=0.5, variance=0.1))


def drawn(
    noise: tuple[DrawnNoise, ...], releases: tuple[Release, ...] = TWO, *, rate: float = 0.3, count: int = 4
) -> DrawnReleases:
    return DrawnReleases(Sampling("poisson", rate, False), releases, count, drawn_noise=noise)


def stated(draw: DrawnReleases, relation: Any = "zero-out") -> tuple[list[dict[str, Any]], float]:
    """The terms of the accountant as a certificate has them, and the probability of failure."""
    (way,) = charges(Exposure("flow", (draw,)), relation)
    return [_plain(term) for term in way.terms], way.failure_probability


def problems(draw: DrawnReleases, terms: list[dict[str, Any]], failure: float, relation: str = "zero-out"):
    releases = [_plain(release) for release in draw.releases]
    certified = _plain(draw) | {"releases": range(len(releases))}
    mine = checker._draw(certified, releases)
    return list(checker.mixture_problems(mine, relation, 1.0, terms, failure))


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
    draw = checker._draw(_plain(drawn(noise)) | {"releases": [0, 1]}, [_plain(release) for release in TWO])
    levels = np.array([0.0, 1.0, 2.0, 3.0, 4.0, 5.0])
    expected = np.zeros(len(levels))
    for who in np.ndindex(2, 2, 2, 2, 2):
        chance = math.prod(0.3 if one else 0.7 for one in who)
        first, second = sum(who[:3]), sum(who[3:])
        square = 1 / (0.25 + 0.2 * first) + 0.25 / (0.1 + 0.1 * first + 0.4 * second)
        expected += chance * (square > levels)
    found, bare = checker.chances_above(draw, "zero-out", levels)
    assert found == pytest.approx(expected, rel=1e-12)
    assert bare == 0


def test_only_two_proportions_count():
    """Those with the most noise: what the accountant counts."""
    noise = (DrawnNoise(3, (1.0, 0.5)), DrawnNoise(9, (0.0, 1.0)), DrawnNoise(1, (0.1, 0.0)))
    draw = checker._draw(_plain(drawn(noise)) | {"releases": [0, 1]}, [_plain(release) for release in TWO])
    assert [side[0].tolist() for side in checker.noise_beside(draw)] == [[0.0, 1.0], [1.0, 0.5]]


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
    releases = [_plain(release) for release in draw.releases]
    mine = checker._draw(_plain(draw) | {"releases": [0, 1]}, releases)
    found = list(checker.mixture_problems(mine, "zero-out", 4.0, terms, failure))
    assert any("terms: scales" in problem for problem in found)
    wide = [term | {"multiplier": term["multiplier"] / 2} for term in terms]
    assert list(checker.mixture_problems(mine, "zero-out", 4.0, wide, failure)) == []
