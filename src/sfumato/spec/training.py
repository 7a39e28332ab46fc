"""``training``: rounds, local work, aggregation periods, participation, the server's optimizer."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Discriminator, Field, Tag

from sfumato.spec.base import (
    TAG,
    BelowOne,
    Count,
    CountOrAll,
    CountPerEdge,
    Flag,
    GroupwiseSection,
    NonNegative,
    Positive,
    Rate,
    Section,
    by_kind,
    count_limit,
    numbers_in,
)
from sfumato.spec.limits import MAX_AGGREGATIONS, MAX_ROUNDS, MAX_STEPS
from sfumato.spec.refusals import Refusals

Rounds = Annotated[
    int, Field(ge=1, le=MAX_ROUNDS), count_limit(MAX_ROUNDS, "a run keeps a row of every round")
]
Steps = Annotated[
    int,
    Field(ge=1, le=MAX_STEPS),
    count_limit(MAX_STEPS, "devices do them one after the other in every round"),
]


class Everyone(Section):
    """Every device takes part in every round."""

    kind: Literal["all"] = "all"


class PoissonParticipation(GroupwiseSection):
    """Every device takes part in a round independently with this probability; groups may differ."""

    number_and_list = "rate", "rates"
    kind: Literal["poisson"] = "poisson"
    rate: Rate
    rates: Annotated[tuple[Rate, ...], Field(min_length=1)] | None = Field(
        default=None, description="groups: one for each group; a list under rate says the same"
    )


class FixedParticipation(Section):
    """This many devices of every edge or group (of all, in a star), uniformly without replacement."""

    kind: Literal["fixed"] = "fixed"
    count: CountPerEdge


Participation = Annotated[
    Annotated[Everyone, Tag("=all")]
    | Annotated[PoissonParticipation, Tag("=poisson")]
    | Annotated[FixedParticipation, Tag("=fixed")],
    by_kind("all", "poisson", "fixed", rate="poisson", count="fixed", rates="poisson"),
]


class ConstantRate(Section):
    """The same step size in every round."""

    kind: Literal["constant"] = "constant"
    initial: Positive


class InverseSqrtRate(Section):
    """``initial / sqrt(round + 1)``: H2FDP's schedule (Theorem 4.3)."""

    kind: Literal["inverse-sqrt"] = "inverse-sqrt"
    initial: Positive


class ExponentialRate(Section):
    """``initial * decay ** round``."""

    kind: Literal["exponential"] = "exponential"
    initial: Positive
    decay: Rate


class StepRate(Section):
    """``initial * decay ** (round // every)``."""

    kind: Literal["step"] = "step"
    initial: Positive
    decay: Rate
    every: Count


class CosineRate(Section):
    """From ``initial`` down to ``final`` over the rounds, along half a cosine."""

    kind: Literal["cosine"] = "cosine"
    initial: Positive
    final: NonNegative = 0.0


RateSchedule = Annotated[
    Annotated[ConstantRate, Tag("=constant")]
    | Annotated[InverseSqrtRate, Tag("=inverse-sqrt")]
    | Annotated[ExponentialRate, Tag("=exponential")]
    | Annotated[StepRate, Tag("=step")]
    | Annotated[CosineRate, Tag("=cosine")],
    by_kind("constant", "inverse-sqrt", "exponential", "step", "cosine"),
]


def _tag_of_learning_rate(value: object) -> str:
    """The union tag of ``value``, a learning rate: ``=number`` for a number, ``=schedule`` for a section."""
    return TAG + ("schedule" if isinstance(value, dict | Section) else "number")


LearningRate = Annotated[
    Annotated[Positive, Tag("=number")] | Annotated[RateSchedule, Tag("=schedule")],
    Discriminator(_tag_of_learning_rate),
]


class UniformWeights(Section):
    """Every device counts alike."""

    kind: Literal["uniform"] = "uniform"


class CappedWeights(Section):
    """A device of n examples counts ``min(n / examples, 1)``: HDP's user weights (Algorithm 1)."""

    kind: Literal["capped"] = "capped"
    examples: Positive = Field(description="the example cap: a device that has as many, or more, counts 1")


Weights = Annotated[
    Annotated[UniformWeights, Tag("=uniform")] | Annotated[CappedWeights, Tag("=capped")],
    by_kind("uniform", "capped", examples="capped"),
]


class FixedDenominator(Section):
    """Sums of an edge are divided by the weight expected of its participants, a public constant."""

    kind: Literal["fixed"] = "fixed"


class ClippedDenominator(Section):
    """Sums are divided by the weight that came, or by what ``min_weight`` lets expect, if that is more."""

    kind: Literal["clipped"] = "clipped"
    min_weight: Positive = Field(description="W_min: of all devices of an edge; times the share drawn")


Denominator = Annotated[
    Annotated[FixedDenominator, Tag("=fixed")] | Annotated[ClippedDenominator, Tag("=clipped")],
    by_kind("fixed", "clipped", min_weight="clipped"),
]


class SGD(Section):
    """Stochastic gradient descent; its momentum is ``training.momentum``."""

    kind: Literal["sgd"] = "sgd"


class Adam(Section):
    """Adam (Kingma and Ba 2015), from moments of zero at the begin of every message."""

    kind: Literal["adam"] = "adam"
    beta1: BelowOne = Field(default=0.9, description="what is kept of the mean of gradients at a step")
    beta2: BelowOne = Field(default=0.999, description="what is kept of the mean of their squares at a step")
    epsilon: Positive = Field(default=1e-8, description="added to the root of the mean of squares")


Optimizer = Annotated[
    Annotated[SGD, Tag("=sgd")] | Annotated[Adam, Tag("=adam")],
    by_kind("sgd", "adam", beta1="adam", beta2="adam", epsilon="adam"),
]


class NoCorrection(Section):
    """Plain local steps."""

    kind: Literal["none"] = "none"


class FedProx(Section):
    """Local steps are drawn back to the model that they started from (Li et al. 2020)."""

    kind: Literal["fedprox"] = "fedprox"
    mu: Positive = Field(description="weight of mu/2 times the squared distance from that model")


class Scaffold(Section):
    """Local steps are corrected by control variates (Karimireddy et al. 2020, option II)."""

    kind: Literal["scaffold"] = "scaffold"


DriftCorrection = Annotated[
    Annotated[NoCorrection, Tag("=none")]
    | Annotated[FedProx, Tag("=fedprox")]
    | Annotated[Scaffold, Tag("=scaffold")],
    by_kind("none", "fedprox", "scaffold", mu="fedprox"),
]


class Server(Section):
    """What the aggregator does with the averaged update: post-processing, so free of privacy cost."""

    optimizer: Literal["sgd", "adam"] = "sgd"
    learning_rate: Positive = 1.0
    momentum: BelowOne = Field(default=0.0, description="sgd only")
    beta1: BelowOne = Field(default=0.9, description="adam only")
    beta2: BelowOne = Field(default=0.99, description="adam only")
    epsilon: Positive = Field(default=1e-3, description="adam only")


class Training(Section):
    """Local work of a round is counted in ``local_steps`` or in ``local_epochs``."""

    rounds: Rounds
    local_steps: Steps | None = None
    local_epochs: Steps | None = None
    edge_every: CountPerEdge | None = Field(
        default=None, description="local steps between edge aggregations; one for all edges, or one for each"
    )
    edge_at_global: Flag | None = Field(
        default=None, description="edges whose period ends at a global step broadcast their own average too"
    )
    aggregate_every: Annotated[tuple[Count, ...], Field(min_length=1)] | None = Field(
        default=None, description="deeper trees: local steps between aggregations of each level, top down"
    )
    merge_every: Count | None = Field(default=None, description="groups: rounds between exchanges of groups")
    batch_size: CountOrAll = Field(description="examples a step; all: a device's whole data (FedSGD)")
    batches: Literal["shuffled", "poisson"] = Field(
        default="shuffled",
        description="shuffled: cut from passes over a device's shuffled data; poisson: every example is in a "
        "step by an independent draw, batch_size of them on average, which the sum is divided by",
    )
    learning_rate: LearningRate
    momentum: BelowOne = Field(default=0.0, description="of local steps with optimizer sgd")
    optimizer: Optimizer = Field(default=SGD(), description="of local steps")
    weight_decay: NonNegative = Field(
        default=0.0,
        description="lambda: every local step first makes the model 1 - learning_rate * lambda times as long "
        "(decoupled from the gradient; without momentum the L2 term of SGD)",
    )
    loss: str | None = Field(
        default=None,
        description="task: regression: squared-error (default), absolute-error or huber; other tasks have "
        "one each; or package.module:function",
    )
    participation: Participation = Everyone()
    global_update: Literal["increment", "resend"] = Field(
        default="increment", description="what a device sends at the global step (docs/concepts.md)"
    )
    weights: Weights = Field(default=UniformWeights(), description="trees: how much each device counts")
    denominator: Denominator = Field(
        default=FixedDenominator(), description="hdp: what the sum of an edge's messages is divided by"
    )
    server: Server = Server()
    drift_correction: DriftCorrection = Field(
        default=NoCorrection(), description="what keeps local steps of unlike devices together"
    )

    @property
    def keeps_variates(self) -> bool:
        """Whether devices keep a state from round to round: the control variates of SCAFFOLD."""
        return self.drift_correction.kind == "scaffold"

    @property
    def takes_plain_steps(self) -> bool:
        """Whether an update is a weighted sum of gradients: SGD, with or without momentum, no decay."""
        return self.optimizer.kind == "sgd" and not self.weight_decay

    def refusals(self) -> Refusals:
        """Rows as of `Section.refusals`.

        They refuse ``weight_decay`` above 1 / learning rate, ``local_steps`` beside ``local_epochs``,
        ``edge_at_global`` without ``edge_every``, and periods of aggregation that are stated in two ways or
        without local steps, that are longer than the period above, or that make too many aggregations a
        round.
        """
        rate, steps = self.learning_rate, self.local_steps
        written = (getattr(rate, name, 0.0) for name in ("initial", "final"))
        largest = max(written) if isinstance(rate, Section) else rate
        allowed = f"must be at most 1 / learning_rate, {1 / largest:g}: a step would turn the model round"
        yield self.weight_decay * largest > 1, "weight_decay", self.weight_decay, allowed
        both = steps is not None and self.local_epochs is not None
        yield (
            both,
            "",
            None,
            "give local_steps or local_epochs; found both (null leaves one out, e.g. local_steps: null)",
        )
        periods, every = self.aggregate_every or (), self.edge_every
        allowed = "says the same as edge_every: give one"
        yield every is not None and periods, "aggregate_every", list(periods), allowed
        allowed = "goes with edge_every, which says when edges aggregate"
        yield self.edge_at_global and every is None, "edge_at_global", True, allowed
        edges = () if every is None else numbers_in(every)
        if not periods and not edges:
            return
        key = "aggregate_every" if periods else "edge_every"
        value = getattr(self, key)
        yield steps is None, key, value, "goes with local_steps: it counts local steps"
        bound, name = steps or 1, "local_steps"
        for period in edges or periods:
            yield period > bound, key, period, f"must be at most {name}, which is {bound}"
            if periods:
                bound, name = period, "the period of the level above"
        found = _aggregations(steps or 1, edges or periods[-1:])
        most = f"at most {MAX_AGGREGATIONS:,}: each is accounted for by itself"
        yield found > MAX_AGGREGATIONS, key, value, f"makes {found:,} aggregations a round; {most}"


def _aggregations(steps: int, periods: tuple[int, ...]) -> int:
    """How many local steps of a round end with an aggregation at an edge.

    Args:
        steps: local steps of a round.
        periods: of the edges, in local steps.

    Returns:
        The number; only a lower bound where it is more than ``MAX_AGGREGATIONS``.
    """
    found = steps // min(periods)
    if found <= MAX_AGGREGATIONS and len(set(periods)) > 1:
        found = len({step for period in set(periods) for step in range(period, steps + 1, period)})
    return found
