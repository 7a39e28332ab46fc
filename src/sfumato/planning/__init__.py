"""Planning: from privacy targets to how much noise each source adds (docs/planning.md). Needs no torch."""

from sfumato.planning.planned import PlannedSpec
from sfumato.planning.planner import plan

__all__ = ["PlannedSpec", "plan"]
