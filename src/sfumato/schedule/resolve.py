"""Resolve, calibrate, freeze: from a spec to the plan that ``account`` judges and ``run`` plays."""

from __future__ import annotations

from sfumato.errors import SpecError
from sfumato.families import family_of
from sfumato.schedule.base import Plan
from sfumato.spec.document import Spec


def resolve(spec: Spec) -> Plan:
    """Make every random choice of ``spec``, size every noise source, and freeze the result.

    Resolving the spec of the result gives the same plan again, whatever became of files that ``spec`` names.

    Raises:
        SpecError: sections that do not fit each other or the data, or a protocol this version does not run.
    """
    _refuse_what_is_not_built(spec)
    plan: Plan = family_of(spec).resolve(spec)
    return plan


def _refuse_what_is_not_built(spec: Spec) -> None:
    if spec.privacy.clip is not None and spec.privacy.clip.kind == "example":
        raise SpecError("privacy.clip.kind", "example", "is not in this version yet; use update or step")
