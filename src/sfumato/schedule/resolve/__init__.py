"""Resolve, calibrate, freeze: from a spec to the plan that ``account`` judges and ``run`` plays.

    tree               trees: choices made, noise sized, the result frozen
    tree_refusals      what trees are refused with once their rounds are known
    groups             the same as `tree` for overlapping groups
    group_refusals     what groups are refused with
    protocol_defaults  what the name of a protocol of trees settles; counts listed edge by edge
    shared_refusals    what both are refused with

Imported by what is above ``schedule``; imports ``schedule`` and what ``schedule`` imports.
"""

from __future__ import annotations

from sfumato.families import family_of
from sfumato.schedule.base import Plan
from sfumato.schedule.rows.watch import check_watch
from sfumato.spec.document import Spec, require_spec


def resolve(spec: Spec) -> Plan:
    """Make every random choice of ``spec``, size every noise source, and freeze the result.

    Resolving the spec of the result gives the same plan again, whatever became of files that ``spec`` names.

    Raises:
        SpecError: sections that do not fit each other or the data, or a protocol this version does not run.
        DataError: the data are in a file that cannot be read.
    """
    require_spec(spec)
    plan = family_of(spec).resolve(spec)
    if spec.watch is not None:
        check_watch(plan)
    return plan
