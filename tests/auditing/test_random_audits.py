"""Random specs: no audit shows more than the accountant promises.

Specs are those of the oracles (tests/oracle): trees, stars and groups; faults, elections, placements,
weights, denominators, secure sums, periods, draws, relations, coalitions. Where every promise holds, a test
fails with a probability of at most 1e-6: each of its lower bounds is wrong with that over their number
(Bonferroni).
"""

from __future__ import annotations

from collections.abc import Iterator
from random import Random
from typing import Any

import pytest
from oracle_random_groups import random_groups
from oracle_random_groups import random_pair as pair_in_groups
from oracle_random_trees import random_pair as pair_in_tree
from oracle_random_trees import random_tree
from pydantic import ValidationError

from sfumato.auditing import audit_pair
from sfumato.auditing.report import AuditedPair
from sfumato.errors import SpecError
from sfumato.schedule.base import Plan
from sfumato.schedule.resolve import resolve
from sfumato.spec.document import Spec

ERROR = 1e-6


def random_spec(rng: Random) -> tuple[dict[str, Any], int, str]:
    """A spec, a unit, and an observer or coalition."""
    if rng.random() < 0.25:
        spec = random_groups(rng)
        return spec, *pair_in_groups(spec, rng)
    spec = random_tree(rng)
    if spec["training"].get("participation", {}).get("kind") == "poisson" and rng.random() < 0.4:
        spec["privacy"]["neighbours"] = "remove"
    return spec, *pair_in_tree(spec, rng)


def plans(seed: int, count: int) -> Iterator[tuple[Plan, int, str]]:
    """So many pairs of plans that are valid, and audited; what is refused is drawn again."""
    rng = Random(seed)
    while count:
        document, unit, observer = random_spec(rng)
        if "compression" in document:
            continue
        try:
            plan = resolve(Spec.model_validate(document))
        except (SpecError, ValidationError):
            continue
        count -= 1
        yield plan, unit, observer


def audited(seed: int, count: int, trials: int) -> Iterator[tuple[Plan, AuditedPair]]:
    for plan, unit, observer in plans(seed, count):
        yield plan, audit_pair(plan, f"device:{unit}", observer, trials=trials, error=ERROR / count)


def check(seed: int, count: int, trials: int) -> None:
    """All hold; and among promises that can be refuted some are nearly, else the audit is worth nothing."""
    shown = []
    for plan, found in audited(seed, count, trials):
        assert found.holds, f"{found}\n{plan.spec.model_dump(exclude_defaults=True, mode='json')}"
        if 0 < found.upper < float("inf"):
            shown.append(found.lower.epsilon / found.upper)
    assert sum(ratio > 0.1 for ratio in shown) > 0.3 * len(shown), sorted(shown)


def test_random_audits_hold() -> None:
    check(seed=4, count=20, trials=400)


@pytest.mark.slow
def test_many_random_audits_hold() -> None:
    check(seed=5, count=500, trials=2_000)
