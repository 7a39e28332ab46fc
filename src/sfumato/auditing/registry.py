"""Which stage plays a plan for an audit: one place that knows them all."""

from __future__ import annotations

from collections.abc import Sequence
from functools import singledispatch

from sfumato.auditing.groups import GroupedStage
from sfumato.auditing.harness import Stage
from sfumato.auditing.tree import TieredStage
from sfumato.errors import SpecError
from sfumato.privacy.observers import Party
from sfumato.schedule.base import Plan
from sfumato.schedule.groups import GroupPlan
from sfumato.schedule.tree import TreePlan


@singledispatch
def stage_of(plan: Plan, unit: int, coalition: Sequence[Party]) -> Stage:
    """The stage on which ``unit`` is the target and ``coalition`` listens.

    Raises:
        SpecError: the plan mixes the coordinates of messages, or its releases depend on earlier ones.
    """
    raise TypeError(f"nothing audits a {type(plan).__name__}")


@stage_of.register
def _(plan: TreePlan, unit: int, coalition: Sequence[Party]) -> Stage:
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
    return TieredStage(plan, unit, coalition)


@stage_of.register
def _(plan: GroupPlan, unit: int, coalition: Sequence[Party]) -> Stage:
    return GroupedStage(plan, unit, coalition)
