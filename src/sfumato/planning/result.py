"""What a plan says: the spec to run, which targets bind, at what price."""

from __future__ import annotations

import math
from dataclasses import dataclass

from sfumato.planning.costs import TrainingCost
from sfumato.planning.noise_response import global_variance
from sfumato.planning.targets import EpsilonTarget
from sfumato.schedule.tree import TreePlan
from sfumato.spec.document import Spec

BINDING = 1e-3


@dataclass(frozen=True)
class MetTarget:
    """A target and what ``account`` says of the planned spec.

    Attributes:
        target: as asked for.
        unit: the worst one.
        observer: towards whom it is worst.
        epsilon: of that pair, at the spec's delta.
        price: percent of the total noise variance that a target 1 % larger would save; 0 where it does not
            bind.
    """

    target: EpsilonTarget
    unit: str
    observer: str
    epsilon: float
    price: float

    @property
    def is_binding(self) -> bool:
        """Whether the target is met with no more than a thousandth to spare."""
        return self.epsilon >= self.target.epsilon * (1 - BINDING)


@dataclass(frozen=True)
class PlannedSource:
    """Who adds how much.

    Attributes:
        owners: as ``privacy.noise.sources`` names them.
        aggregation: at whose aggregations: ``global``, or a tier's name.
        multiplier: noise standard deviation over the zero-out sensitivity of the message noised.
    """

    owners: tuple[str, ...]
    aggregation: str
    multiplier: float


@dataclass(frozen=True)
class Option:
    """A participation and a length of rounds that were weighed (`choices`).

    Attributes:
        participation: devices of every edge (of the star) in a round.
        local_steps: local steps a round; 0 where work is counted in epochs.
        noise: least that meets the targets, root mean square a coordinate of the global model.
        relative_noise: of the farthest that the global model can move in the whole training.
        cost: of the training.
        allowed: whether the noise is.
        chosen: whether it is the plan's.
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
    """A spec whose noise meets every target, and how it came about.

    Attributes:
        plan: resolved; its spec is what ``run`` takes.
        targets: in the order asked for.
        sources: of noise.
        own_noise: of the spec's own split of noise, all of it scaled until the same targets hold; NaN where
            the spec has none, or where no scale does.
        untargeted: kinds of observers that no target names.
        options: what energy or delay was chosen from; none where noise was to be small.
        notes: what the user should hear.
    """

    plan: TreePlan
    targets: tuple[MetTarget, ...]
    sources: tuple[PlannedSource, ...]
    own_noise: float
    untargeted: tuple[Untargeted, ...]
    options: tuple[Option, ...]
    notes: tuple[str, ...]

    @property
    def spec(self) -> Spec:
        """The planned spec, every source's noise written out."""
        return self.plan.spec

    @property
    def noise(self) -> float:
        """Noise in the global model, root mean square a coordinate (`global_noise_rms`)."""
        return global_noise_rms(self.plan)

    @property
    def saved(self) -> float:
        """Share of the noise variance of ``own_noise`` that the plan does without."""
        return 1.0 - (self.noise / self.own_noise) ** 2


def global_noise_rms(plan: TreePlan) -> float:
    """Noise that the training leaves in the global model: root mean square a coordinate, in its unit."""
    return math.sqrt(global_variance(plan))
