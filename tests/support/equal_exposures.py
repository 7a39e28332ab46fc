"""Whether two ways to compute exposures give the same releases, up to rounding."""

import math
from collections import Counter

import pytest

TOLERANCE = 1e-9


def rows(exposure):
    """Everything that charging depends on, draw by draw, in one order."""
    found = {}
    for drawn in exposure.draws:
        columns = list(zip(*(noise.variances for noise in drawn.drawn_noise), strict=True))
        noised = [
            (release_row(release, drawn.sampling), columns[number] if columns else ())
            for number, release in enumerate(drawn.releases)
        ]
        noised.sort(key=lambda pair: (shortened(pair[0]), shortened(sorted(pair[1]))))
        releases = [row for row, _ in noised]
        draw = (drawn.sampling.kind, drawn.sampling.rate, drawn.sampling.hidden, drawn.sampling.population,
                drawn.sampling.sample, drawn.max_weight_ratio, drawn.amplifies, drawn.moved_rate,
                *noise_of_others(drawn, [column for _, column in noised]))  # fmt: skip
        key = (draw, tuple(map(shortened, releases)))
        before = found.get(key, (draw, releases, 0))[2]
        found[key] = (draw, releases, before + drawn.count)
    return [found[key] for key in sorted(found)]


def noise_of_others(drawn, columns):
    """Numbers of others, after the variances that they add to the releases; one after another."""
    counts = Counter()
    for number, noise in enumerate(drawn.drawn_noise):
        counts[shortened([column[number] for column in columns])] += noise.count
    return [value for variances, count in sorted(counts.items()) for value in (*variances, count)]


def release_row(release, sampling):
    """A release as numbers. Whether its noise depends on the draw matters only where the draw is hidden."""
    return (
        release.own_sensitivity,
        release.propagated_sensitivity,
        release.variance,
        float(release.noise_is_draw_independent and sampling.amplifies),
        float(release.divides_by_drawn and not release.is_unprotected),
        float(release.linking),
    )


def shortened(row):
    """The row to seven digits, to put rows in order by."""
    return tuple(value if math.isinf(value) else float(f"{value:.7g}") for value in row)


def assert_equal(one, other):
    """Fails where two exposures differ in a release, a draw or a count."""
    assert one.bound_name == other.bound_name
    mine, theirs = rows(one), rows(other)
    assert len(mine) == len(theirs), (mine, theirs)
    for (draw, releases, count), (draw2, releases2, count2) in zip(mine, theirs, strict=True):
        assert count == count2, (mine, theirs)
        assert draw[0] == draw2[0]
        assert draw[1:] == pytest.approx(draw2[1:], rel=TOLERANCE), (mine, theirs)
        assert len(releases) == len(releases2), (mine, theirs)
        for release, release2 in zip(releases, releases2, strict=True):
            assert release == pytest.approx(release2, rel=TOLERANCE, abs=1e-15), (mine, theirs)
