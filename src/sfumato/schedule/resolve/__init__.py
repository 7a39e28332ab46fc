"""Resolve, calibrate, freeze: from a spec to the plan that ``account`` judges and ``run`` plays.

    tree               trees: choices made, noise sized, the result frozen
    groups             the same for overlapping groups
    single_cluster     pedpfl: all devices under one edge
    protocol_defaults  what the name of a protocol of trees settles
    drift_correction   FedProx and SCAFFOLD: their account, and what they are refused with
    group_compression  what compressing messages settles and refuses in groups

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
    """
    require_spec(spec)
    plan = family_of(spec).resolve(spec)
    check_watch(plan)
    return plan
