"""What a plan needs to know of a family of topologies; `sfumato.families` says where each has it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, NoReturn, Protocol

from sfumato.spec.document import Spec

if TYPE_CHECKING:
    from sfumato.planning.allocate import Allocation, PairTarget
    from sfumato.planning.problem import PlanProblem
    from sfumato.planning.sources import NoiseSource
    from sfumato.planning.targets import EpsilonTarget, PlanTargets
    from sfumato.privacy.observers import Party
    from sfumato.schedule.base import Plan


class PlannedFamily(Protocol):
    """The noise sources of a family's plans, and the search for their least noise."""

    models: str
    """What the noise is in: ``the global model``."""

    def refuse_unsupported(self, spec: Spec) -> None:
        """Refuse with a SpecError what this family has and plans do not support."""

    def level_count(self, plan: Any) -> int:
        """How many multipliers an owner of noise has: one for each level of aggregation."""

    def level_name(self, plan: Any, level: int) -> str:
        """What the aggregations of a level are called."""

    def sources(self, plan: Any, named: frozenset[Party]) -> tuple[NoiseSource, ...]:
        """The sources that add noise in a plan of equal multipliers, by classes of interchangeable parties.

        A party that a target names is in a class of its own.
        """

    def extra_sources(self, plan: Any, named: frozenset[Party]) -> tuple[NoiseSource, ...]:
        """Sources that add no noise in the plan and could."""

    def variance(self, plan: Any) -> float:
        """Variance per coordinate of all noise that the training leaves in the `models`: the objective."""

    def unattainable_targets(
        self, plan: Any, sources: Sequence[NoiseSource], pair_targets: Sequence[PairTarget]
    ) -> list[PairTarget]:
        """Pairs whose target no noise of these sources can meet."""

    def count_devices(self, plan: Any, units: set[int], *, alike: bool) -> int:
        """How many devices ``units`` stand for, with (``alike``) or without those of the same class."""

    def plan_least_noise(
        self, problem: PlanProblem, targets: Sequence[EpsilonTarget]
    ) -> tuple[Plan, Allocation]:
        """The plan of least noise in which account confirms all ``targets``."""

    def own_noise(self, plan: Any, targets: Sequence[EpsilonTarget]) -> float:
        """`variance`'s root for the plan's own noise scaled until ``targets`` hold; NaN if not computed."""

    def refuse_too_much_noise(self, problem: PlanProblem, requested: PlanTargets) -> NoReturn:
        """Raise the SpecError that says which targets need more than the noise that is allowed."""
