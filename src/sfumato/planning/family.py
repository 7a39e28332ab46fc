"""What a plan needs to know of a family of topologies; `sfumato.families` says where each has it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, NoReturn, Protocol

from sfumato.spec.document import Spec

if TYPE_CHECKING:
    from sfumato.planning.allocate import Allocation
    from sfumato.planning.problem import PlanProblem
    from sfumato.planning.sources import NoiseSource
    from sfumato.planning.targets import EpsilonTarget, PairTarget, PlanTargets
    from sfumato.privacy.observers import Party
    from sfumato.schedule.base import Plan


class PlannedFamily(Protocol):
    """The noise sources of a family's plans, and the search for their least noise."""

    models: str
    """What the noise is in: ``the global model``."""

    def refuse_unsupported(self, spec: Spec) -> None:
        """Raise a SpecError if ``spec`` has something that plans of this family do not support."""

    def level_count(self, plan: Any) -> int:
        """Number of levels of aggregation in ``plan``; an owner of noise has a multiplier for each."""

    def level_name(self, plan: Any, level: int) -> str:
        """The name of the aggregations of ``level`` (from 0) in ``plan``, such as ``global``."""

    def sources(self, plan: Any, named: frozenset[Party]) -> tuple[NoiseSource, ...]:
        """The sources that add noise in ``plan``, by classes of interchangeable parties with one multiplier.

        A party in ``named``, which a target names, is in a class of its own.
        """

    def extra_sources(self, plan: Any, named: frozenset[Party]) -> tuple[NoiseSource, ...]:
        """Trusted aggregators, as sources at the levels at which they add no noise in ``plan``; () in groups.

        They are given by classes of interchangeable parties. A party in ``named``, which a target names, is
        in a class of its own.
        """

    def variance(self, plan: Any) -> float:
        """Variance, a coordinate, of all noise that training by ``plan`` leaves in the `models`.

        The least of it is searched for.
        """

    def unattainable_targets(
        self, plan: Any, sources: Sequence[NoiseSource], pair_targets: Sequence[PairTarget]
    ) -> list[PairTarget]:
        """Those of ``pair_targets`` that no noise of ``sources`` in ``plan`` can meet, however large."""

    def count_devices(self, plan: Any, units: set[int], *, alike: bool) -> int:
        """The number of ``units``, which are numbers of devices of ``plan``.

        With ``alike``, all devices of their classes are counted: those that the accountant charges as it
        charges one of them.
        """

    def plan_least_noise(
        self, problem: PlanProblem, targets: Sequence[EpsilonTarget]
    ) -> tuple[Plan, Allocation]:
        """The plan of least noise whose guarantees meet ``targets``, and how the noise is allocated in it."""

    def own_noise(self, plan: Any, targets: Sequence[EpsilonTarget]) -> float:
        """The noise of ``plan`` as the spec divides it among its sources, scaled until ``targets`` hold.

        Returns:
            Root of `variance`; NaN if it is not known.
        """

    def refuse_too_much_noise(self, problem: PlanProblem, requested: PlanTargets) -> NoReturn:
        """Raise the SpecError on targets of ``problem`` that need more noise than ``requested`` allows."""
