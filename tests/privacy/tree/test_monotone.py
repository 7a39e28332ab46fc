"""Over random trees, hops, placements of noise and coalitions: whoever knows more has no smaller ε, and more
noise makes none larger."""

from __future__ import annotations

from copy import deepcopy
from random import Random
from typing import Any

import pytest
from oracle_random_trees import random_pair, random_tree

from sfumato.errors import SpecError
from sfumato.privacy.declared_releases import bounds_of
from sfumato.privacy.observers import Party
from sfumato.schedule.resolve import resolve
from sfumato.schedule.rows.observers import parse_coalition
from sfumato.schedule.tree import TreePlan
from sfumato.spec.load import load_spec

ROUNDING = 1e-6


def resolved(document: dict[str, Any]) -> TreePlan | None:
    try:
        plan: TreePlan = resolve(load_spec(document))
    except SpecError:  # the random spec asks for what is refused
        return None
    return plan if plan.tree.device_count <= 60 else None


def epsilon(plan: TreePlan, unit: int, coalition: tuple[Party, ...]) -> float:
    privacy, exposures = plan.spec.privacy, plan.releases.exposures(unit, coalition)
    bounds = bounds_of(plan.releases, exposures, delta=privacy.delta, neighbours=privacy.neighbours)
    return min(bound.epsilon for bound in bounds.values())


def compared(numbers: range) -> tuple[int, int]:
    """Checks trees of these numbers; how many coalitions, and noises, were compared."""
    coalitions = noises = 0
    for number in numbers:
        rng = Random(f"mono/{number}")
        document = random_tree(rng)
        plan = resolved(document)
        if plan is None:
            continue
        unit, observer = random_pair(document, rng)
        _, more = random_pair(document, rng)
        some = parse_coalition(observer, plan.parties)
        together = tuple(dict.fromkeys((*some, *parse_coalition(more, plan.parties))))
        alone = epsilon(plan, unit, some)
        if Party("device", 0, unit) not in together and len(together) > len(some):
            assert alone <= epsilon(plan, unit, together) * (1 + ROUNDING), (number, observer, more)
            coalitions += 1
        noise = document["privacy"]["noise"]
        if "multiplier" in noise:
            louder = deepcopy(document)
            louder["privacy"]["noise"] = noise | {"multiplier": 1.5 * noise["multiplier"]}
            with_more = resolved(louder)
            assert with_more is not None
            assert epsilon(with_more, unit, some) <= alone * (1 + ROUNDING), (number, observer)
            noises += 1
    return coalitions, noises


def test_more_knowledge_and_more_noise() -> None:
    coalitions, noises = compared(range(15))
    assert coalitions > 5
    assert noises > 5


@pytest.mark.slow
@pytest.mark.parametrize("first", range(0, 3000, 500))
def test_thousands_of_trees(first: int) -> None:
    coalitions, _ = compared(range(first, first + 500))
    assert coalitions > 150
