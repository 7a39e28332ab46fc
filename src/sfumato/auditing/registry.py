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
    """The stage on which ``unit`` is the target and ``coalition`` listens.

    Raises:
        SpecError: the plan mixes the coordinates of messages, or its releases depend on earlier ones.
    """
    raise TypeError(f"nothing audits a {type(plan).__name__}")


@harness_for.register
def _(plan: TreePlan, unit: int, coalition: Sequence[Party]) -> AuditHarness:
    if plan.air is not None or plan.spec.compression is not None:
        # one coordinate is no trial of its own where power or the choice of coordinates is shared by all
        what = "transport" if plan.air is not None else "compression"
        raise SpecError(
            what, None, "is not audited in this version: air and compression tie coordinates together"
        )
    if plan.spec.control is not None:
        raise SpecError(
            "control",
            None,
            "is not audited: noise and rounds follow the training; audit with --set control=null",
        )
    return TreeHarness(plan, unit, coalition)


@harness_for.register
def _(plan: GroupPlan, unit: int, coalition: Sequence[Party]) -> AuditHarness:
    return GroupHarness(plan, unit, coalition)
