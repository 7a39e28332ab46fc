"""Which stage plays a plan for an audit."""

from __future__ import annotations

from collections.abc import Sequence

from sfumato.auditing.harness import AuditHarness
from sfumato.families import family_of
from sfumato.privacy.observers import Party
from sfumato.schedule.base import Plan


def harness_for(plan: Plan, unit: int, coalition: Sequence[Party]) -> AuditHarness:
    """The harness in which ``unit`` is the target and ``coalition`` the observer.

    Raises:
        SpecError: the plan mixes the coordinates of messages, or its releases depend on earlier ones.
    """
    harness: AuditHarness = family_of(plan.spec).audit(plan, unit, coalition)
    return harness
