"""Which stage plays a plan for an audit: one place that knows them all."""

from __future__ import annotations

from collections.abc import Sequence
from functools import singledispatch

from sfumato.auditing.groups import GroupHarness
from sfumato.auditing.harness import AuditHarness
from sfumato.auditing.tree import TreeHarness
from sfumato.errors import SpecError
from sfumato.privacy.observers import Party
from sfumato.schedule.base import Plan
from sfumato.schedule.groups import GroupPlan
from sfumato.schedule.tree import TreePlan


@singledispatch
def harness_for(plan: Plan, unit: int, coalition: Sequence[Party]) -> AuditHarness:
    """The harness in which ``unit`` is the target and ``coalition`` the observer.

    Raises:
        SpecError: the plan mixes the coordinates of messages, or its releases depend on earlier ones.
    """
    raise TypeError(f"there is no audit harness for a {type(plan).__name__}")


@harness_for.register
def _(plan: TreePlan, unit: int, coalition: Sequence[Party]) -> AuditHarness:
    if plan.air is not None or plan.spec.compression is not None:
        # coordinates are not independent trials if they share transmission power or are chosen together
        what = "transport" if plan.air is not None else "compression"
        allowed = "cannot be audited: air and compression make the coordinates of a message dependent"
        raise SpecError(what, None, allowed)
    if plan.spec.control is not None:
        raise SpecError(
            "control",
            None,
            "cannot be audited: noise and rounds depend on the training; audit with --set control=null",
        )
    return TreeHarness(plan, unit, coalition)


@harness_for.register
def _(plan: GroupPlan, unit: int, coalition: Sequence[Party]) -> AuditHarness:
    return GroupHarness(plan, unit, coalition)
