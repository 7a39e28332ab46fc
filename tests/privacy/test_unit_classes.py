"""Which devices one row stands for, and which of them is the worst."""

from __future__ import annotations

from itertools import pairwise
from random import Random

import numpy as np
import pytest

from sfumato.privacy.charges import Composition, smallest_epsilon
from sfumato.privacy.observers import UnitClass, unit_classes
from sfumato.privacy.records import RecordCharge, RecordReleases
from sfumato.privacy.release import Release

DEVICES = np.array([3, 4, 6, 7])
RATES = np.array([0.9, 0.9, 0.9, 0.2, 0.5, 0.9, 0.5, 0.1])


def classes(rates=None, sites=None, *, apart=False):
    given = None if rates is None else np.asarray(rates), None if sites is None else np.asarray(sites)
    return list(unit_classes(3, 4, lambda: DEVICES, rates=given[0], sites=given[1], apart=apart))


def test_without_rates_the_first_stands_for_all():
    assert classes() == [UnitClass(3, 4)]
    assert list(unit_classes(3, 4, pytest.fail, rates=None, sites=None, apart=True)) == [UnitClass(3, 4)]


def test_the_first_of_those_drawn_most_often_is_the_worst():
    assert classes(RATES) == [UnitClass(4, 4, 7)]
    assert classes(np.full(8, 0.3)) == [UnitClass(3, 4)]


def test_sites_whose_records_are_drawn_equally_often_share_a_row():
    each = np.arange(8)
    assert classes(RATES, each, apart=True) == [
        UnitClass(3, 1, None, (3,)),
        UnitClass(4, 2, None, (4, 6)),
        UnitClass(7, 1, None, (7,)),
    ]
    assert classes(RATES, each) == [UnitClass(4, 4, 7, (3, 4, 6, 7))]
    assert classes(None, each, apart=True) == [UnitClass(3, 4, None, (3, 4, 6, 7))]


def test_a_site_of_several_devices_has_a_row_of_its_worst_device():
    sites = [0, 0, 0, 1, 1, 1, 2, 2]
    assert classes(RATES, sites, apart=True) == [UnitClass(4, 2, 3, (1,)), UnitClass(6, 2, 7, (2,))]


@pytest.mark.parametrize("seed", range(6))
@pytest.mark.parametrize("neighbours", ["zero-out", "replace"])
def test_epsilon_never_falls_with_the_probability_that_a_record_is_drawn(seed, neighbours):
    """So the device that draws its records most often is the worst of its class."""
    rng = Random(seed)
    steps = rng.choice((1, 2, 3))
    moves = tuple(sorted((rng.uniform(0.2, 1.0) for _ in range(steps)), reverse=True))
    release = Release("r", "v", 1.0, 0.0, rng.choice((0.3, 1.0, 4.0)), True)
    blind = rng.choice((1.0, 1.0, 0.4))
    part = RecordReleases((release,), rng.choice((1, 3)), moves, participation=blind)
    found = []
    for rate in (0.05, 0.2, 0.6, 1.0):
        charge = RecordCharge(rate, (part,), "", neighbours)
        way = Composition(charge.drawn_terms(), neighbours, "", 0.0)
        found.append(smallest_epsilon([way], 1, delta=1e-5).epsilon)
    assert all(a <= b * (1 + 1e-6) + 1e-9 for a, b in pairwise(found))
    assert found[0] < found[-1]
