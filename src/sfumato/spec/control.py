"""``control``: H2FDP's adaptive control (h2fdp.txt, section 5)."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Discriminator, Field, Tag

from sfumato.spec.base import TAG, Count, Flag, NonNegative, Positive, Section
from sfumato.spec.refusals import Refusals
from sfumato.spec.training import Steps


class NoisedEstimates(Section):
    """Devices measure the smoothness themselves and send it noised; every observer is charged for it."""

    multiplier: Positive = Field(description="noise standard deviation over bound, at each device")
    bound: Positive = Field(description="what a device measured is cut off at")


def _tag_of_estimates(value: object) -> str:
    """The union tag of a value of ``control.estimates``: ``=name`` for a text, ``=noised`` for a section."""
    return TAG + ("noised" if isinstance(value, dict | Section) else "name")


Estimates = Annotated[
    Annotated[Literal["released"], Tag("=name")] | Annotated[NoisedEstimates, Tag("=noised")],
    Discriminator(_tag_of_estimates),
]


class KnownBounds(Section):
    """What the user knows of the loss, and nobody needs to estimate."""

    smoothness: Positive | None = Field(
        default=None, description="beta: no two gradients differ by more than this times the distance"
    )
    gradient: Positive | None = Field(
        default=None, description="G: the longest gradient, where it is shorter than the clip norm"
    )


class Control(Section):
    """Step size, interval and participation chosen anew each round (problem P), held by a privacy filter."""

    energy: NonNegative = Field(default=1e-3, description="alpha1, weight of a joule")
    delay: NonNegative = Field(default=1e-3, description="alpha2, weight of a second")
    optimality_gap_weight: NonNegative = Field(
        default=1.0, description="alpha3, weight of the bound on the optimality gap"
    )
    optimality_gap_scale: Positive = Field(default=1e3, description="phi, which the gap is divided by")
    max_steps: Steps = Field(default=40, description="tau_max, most local steps a round")
    max_devices: Count | None = Field(default=None, description="most participants of an edge; default all")
    per_edge: Flag | None = Field(
        default=None, description="a number of participants for each edge, not one for each kind of edge"
    )
    draw: Literal["poisson"] | None = Field(
        default=None,
        description="poisson: every device takes part by a draw of its own, so many of an edge in "
        "expectation; default: as many as are chosen, without replacement",
    )
    smoothness: Positive = Field(
        default=1.0, description="beta, as long as no estimate shows that it is larger"
    )
    step_size: Literal["stable", "theorem", "scheduled"] = Field(
        default="stable",
        description="stable: training.learning_rate, at most 1/beta; theorem: section 5.1; scheduled: "
        "training.learning_rate",
    )
    bounds: KnownBounds = Field(default=KnownBounds(), description="bounds that are known and hold")
    estimates: Estimates = Field(
        default="released", description="what beta is estimated from: released, or {multiplier, bound}"
    )
    budget_policy: Literal["spread", "stop"] = Field(
        default="spread",
        description="spread: noise that makes the budget last; stop: noise as stated, until it is spent",
    )

    def refusals(self) -> Refusals:
        """Rows as of `Section.refusals`.

        They refuse ``energy``, ``delay`` and ``optimality_gap_weight`` that are all 0, and ``estimates``
        other than ``released`` where ``bounds`` gives the smoothness, so that nothing is estimated.
        """
        allowed = (
            "must have energy, delay or optimality_gap_weight above 0: with weights of 0 all settings of a "
            "round are alike, and there is nothing to choose by"
        )
        yield not (self.energy or self.delay or self.optimality_gap_weight), "", None, allowed
        is_known, allowed = self.bounds.smoothness is not None, "must be released with bounds.smoothness"
        yield is_known and self.estimates != "released", "estimates", None, f"{allowed}: nothing is estimated"
