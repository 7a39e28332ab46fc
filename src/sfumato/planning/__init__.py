"""Planning: from privacy targets to how much noise each source adds (docs/planning.md). Needs no torch."""

from sfumato.planning.planner import plan
from sfumato.planning.result import PlannedSpec

__all__ = ["PlannedSpec", "plan"]
