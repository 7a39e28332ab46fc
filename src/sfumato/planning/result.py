"""The result of a plan: the spec to run, which targets are binding, and what each costs in noise."""

from __future__ import annotations

import math
from dataclasses import dataclass

from sfumato.families import family_of
from sfumato.planning.costs import TrainingCost
from sfumato.planning.noise_response import global_variance
from sfumato.planning.targets import EpsilonTarget
from sfumato.schedule.base import Plan
from sfumato.spec.document import Spec

BINDING = 1e-3


@dataclass(frozen=True)
class MetTarget:
    """A target and the guarantee of the planned spec.

    Attributes:
        target: as requested.
        unit: the unit with the largest ε.
        observer: the observer towards which it is largest.
        epsilon: of that pair, at the spec's δ.
        price: percent of the total noise variance that a target 1 % larger would save; 0 if it is not
            binding.
    """

    target: EpsilonTarget
    unit: str
    observer: str
    epsilon: float
    price: float

    @property
    def is_binding(self) -> bool:
        """Whether ε is within a thousandth of the target."""
        return self.epsilon >= self.target.epsilon * (1 - BINDING)


@dataclass(frozen=True)
class PlannedSource:
    """The noise multiplier of interchangeable parties at one kind of aggregation.

    Attributes:
        owners: their names in ``privacy.noise.sources``.
        aggregation: the kind of aggregation: ``global``, or the name of a tier.
        multiplier: noise standard deviation over the zero-out sensitivity of the message noised.
    """

    owners: tuple[str, ...]
    aggregation: str
    multiplier: float


@dataclass(frozen=True)
class Option:
    """A participation and a round length that were compared (`cost_search.candidates_of`).

    Attributes:
        participation: devices of every edge (of the star) in a round.
        local_steps: in a round; 0 if the work is counted in epochs.
        noise: the least that meets the targets, root mean square per coordinate of the global model.
        relative_noise: relative to the largest distance that the global model can move in the training.
        cost: of the training.
        allowed: whether the noise is allowed.
        chosen: whether the plan uses this option.
    """

    participation: str
    local_steps: int
    noise: float
    relative_noise: float
    cost: TrainingCost
    allowed: bool
    chosen: bool


@dataclass(frozen=True)
class Untargeted:
    """The worst epsilon towards a kind of observer that no target names."""

    observer_kind: str
    epsilon: float


@dataclass(frozen=True)
class PlannedSpec:
    """A spec whose noise meets every target, with the figures of the plan.

    Attributes:
        plan: resolved; its spec can be run.
        targets: in the order in which they were requested.
        sources: all noise sources.
        own_noise: noise of the spec's own allocation, scaled until the same targets hold; NaN if the spec
            has no noise, or if no scale meets the targets.
        untargeted: kinds of observers that no target names.
        options: the options that were compared for energy or delay; none when noise was minimised.
        notes: messages for the user.
    """

    plan: Plan
    targets: tuple[MetTarget, ...]
    sources: tuple[PlannedSource, ...]
    own_noise: float
    untargeted: tuple[Untargeted, ...]
    options: tuple[Option, ...]
    notes: tuple[str, ...]

    def __repr__(self) -> str:
        """Targets and noise in one line."""
        met = ", ".join(f"{target.observer}={target.epsilon:g}" for target in self.targets)
        return f"PlannedSpec({self.spec.name!r}, targets: {met}, noise in {self.models}: {self.noise:.4g})"

    @property
    def spec(self) -> Spec:
        """The planned spec, every source's noise written out."""
        return self.plan.spec

    @property
    def noise(self) -> float:
        """Noise in the `models`, root mean square per coordinate (`global_noise_rms`)."""
        return global_noise_rms(self.plan)

    @property
    def models(self) -> str:
        """What the noise is in, as text: ``the global model``, or ``the groups' models``."""
        return family_of(self.spec).planning().models

    @property
    def saved(self) -> float:
        """1 minus the plan's noise variance over that of `own_noise`; NaN if that is not known."""
        return 1.0 - (self.noise / self.own_noise) ** 2


def global_noise_rms(plan: Plan) -> float:
    """Root mean square, a coordinate, of the noise that training leaves in the global (or groups') models."""
    return math.sqrt(global_variance(plan))
