"""Fixed cohorts in groups: what is computed quickly is what their graph of messages gives."""

from random import Random

import pytest
from oracle_group_world import members
from oracle_random_groups import random_groups
from slow import first_quick
from test_groups_equal_messages import compare, compare_pairs, random_structure

from sfumato.errors import SpecError
from sfumato.privacy.groups.releases import GroupReleases
from sfumato.privacy.groups.vector_clocks import GroupStructure
from sfumato.privacy.observers import Party
from sfumato.schedule.resolve import resolve
from sfumato.spec.load import load_spec


@pytest.mark.parametrize("batch", first_quick(range(6), 1, 3))
def test_random_specs(batch):
    """1 to 5 groups of any shape, every kind, masters or devices noising, any count from 1 to everybody."""
    compared = 0
    for number in range(50 * batch, 50 * (batch + 1)):
        rng = Random(f"cohorts/{number}")
        document = random_groups(rng)
        document["training"]["rounds"] = min(document["training"]["rounds"], 5)
        counts = [rng.randint(1, len(group)) for group in members(document["topology"])]
        document["training"]["participation"] = {"kind": "fixed", "count": counts}
        try:
            plan = resolve(load_spec(document))
        except SpecError:
            continue  # untrusted masters in DP-OGL+
        compared += compare_pairs(plan, document, rng)
    assert compared > 60


@pytest.mark.parametrize("number", first_quick(range(24), 4, 12))
def test_groups_that_change(number):
    """The same count of groups whose sizes change: other rates, and now and then everybody."""
    rng = Random(f"cohorts of eras/{number}")
    workers, count, rounds = rng.randint(3, 7), rng.randint(1, 4), rng.randint(2, 8)
    every = rng.choice((1, 2, 3))
    kind = rng.choice(("dp-ogl", "dp-ogl-local")) if every > 1 else "dp-ogl"
    starts = sorted({1, *(1 + every * rng.randint(0, 4) for _ in range(2))})
    eras = tuple(GroupStructure(start, random_structure(rng, workers, count)) for start in starts)
    cohort = tuple(rng.randint(1, min(len(era.groups[g]) for era in eras)) for g in range(count))
    owners = tuple(rng.choice(("master", "devices")) for _ in range(count))
    noise = tuple(rng.choice((0.5, 2.0)) for _ in range(count))
    ones = (1.0,) * count
    declared = GroupReleases(
        kind, workers, eras, rounds, every, ones, noise, ones, noise_owner=owners, cohort=cohort
    )
    for _ in range(6):
        unit = rng.randrange(workers)
        others = [Party("device", 0, worker) for worker in range(workers) if worker != unit]
        masters = [Party("node", 1, group) for group in range(count)]
        everybody = others + masters
        compare(declared, unit, tuple(rng.sample(everybody, rng.randint(1, min(3, len(everybody))))), rng)
