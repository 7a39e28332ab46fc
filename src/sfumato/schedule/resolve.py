"""Resolve, calibrate, freeze: from a spec to the plan that ``account`` judges and ``run`` plays."""

from __future__ import annotations

from sfumato.families import family_of
from sfumato.schedule.base import Plan
from sfumato.schedule.watch import check_watch
from sfumato.spec.document import Spec, require_spec


def resolve(spec: Spec) -> Plan:
    """Make every random choice of ``spec``, size every noise source, and freeze the result.

    Resolving the spec of the result gives the same plan again, whatever became of files that ``spec`` names.

    Raises:
        SpecError: sections that do not fit each other or the data, or a protocol this version does not run.
    """
    require_spec(spec)
    plan: Plan = family_of(spec).resolve(spec)
    check_watch(plan)
    return plan
