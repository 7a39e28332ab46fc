"""Ranks exchange sums of messages where no more than the sums is needed, and else every update."""

from __future__ import annotations

import pytest
from resumed_specs import CONTROLLED, PFELS, VARIANTS

from sfumato.distributed.ranks import ALONE, Alone
from sfumato.protocols.message_hooks import ListenerGroup
from sfumato.protocols.tree.gathering import ranks_of_sums
from sfumato.schedule.resolve import resolve
from sfumato.schedule.tree import TreePlan
from sfumato.spec.document import Spec

AIR = PFELS.model_dump() | {"compression": {"kind": "rand-k", "ratio": 0.3}}
SUMS = {
    "plain": VARIANTS["server momentum"],
    "clips of examples": VARIANTS["clips of examples"],
    "an adapted clip norm": VARIANTS["an adapted clip norm"],
    "no noise": VARIANTS["no noise"],
    "air": Spec.model_validate(AIR),
    "control variates": VARIANTS["SCAFFOLD"],
    "error feedback": PFELS,
    "sums of integers": VARIANTS["secure aggregation, elections and faults"],
}


def plan_of(spec: Spec) -> TreePlan:
    plan = resolve(spec)
    assert isinstance(plan, TreePlan)
    return plan


@pytest.mark.parametrize("name", SUMS)
def test_sums_are_exchanged(name: str) -> None:
    ranks = Alone()
    assert ranks_of_sums(ranks, plan_of(SUMS[name]), None) is ranks


def test_who_sends_rounds_again_needs_every_update() -> None:
    plan = plan_of(VARIANTS["edges with schedules of their own"])
    assert ranks_of_sums(Alone(), plan, None) is ALONE


def test_whoever_listens_needs_every_update() -> None:
    plan = plan_of(CONTROLLED)
    assert ranks_of_sums(Alone(), plan, ListenerGroup([])) is ALONE
