"""``faults``: who drops out, which supernodes fail, and what is done about it."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import Discriminator, Field, Tag

from sfumato.spec.base import TAG, BelowOne, Rate, Section
from sfumato.spec.refusals import Refusals

PHASE_NAMES = ("advertise", "share", "mask", "consent", "unmask")


class PhaseRates(Section):
    """Probability that a device falls silent before its message of a phase of secure aggregation."""

    advertise: BelowOne = 0.0
    share: BelowOne = 0.0
    mask: BelowOne = 0.0
    consent: BelowOne = 0.0
    unmask: BelowOne = 0.0


def _tag_of_drop_rate(value: Any) -> str:
    """The union tag of a value of ``faults.dropout_rate``: ``=one`` for a number, ``=phases`` otherwise."""
    return TAG + ("phases" if isinstance(value, dict | PhaseRates) else "one")


DropRates = Annotated[
    Annotated[BelowOne, Tag("=one")] | Annotated[PhaseRates, Tag("=phases")], Discriminator(_tag_of_drop_rate)
]


class Faults(Section):
    """Simulated failures; every draw is anew in every aggregation."""

    dropout_rate: DropRates = Field(
        default=0.0,
        description="probability that a device drops out before it sends its message; or one for each phase",
    )
    supernode_failure_rate: BelowOne = Field(
        default=0.0, description="probability that an elected supernode fails in mid-round"
    )
    survival_threshold: Rate | None = Field(
        default=None,
        description="secure aggregation: share of a session's parties that must survive, above 1/2; "
        "more than 2/3 by default",
    )
    when_supernode_fails: Literal["repeat", "skip"] = Field(
        default="repeat",
        description="the next in the succession gets the very same messages, or the zone sits the round out",
    )

    def refusals(self) -> Refusals:
        """Rows as of `Section.refusals`; they refuse a ``survival_threshold`` of at most 1/2."""
        threshold = self.survival_threshold
        allowed = "must be above 1/2: two sums of one round would tell apart"
        yield threshold is not None and threshold <= 0.5, "survival_threshold", threshold, allowed

    @property
    def drop_rates(self) -> tuple[float, ...]:
        """Probability that a device drops out in each phase of a round, in the order of `PHASE_NAMES`.

        A single number in the spec is the rate of the phase in which messages are sent; the others are 0.
        """
        if isinstance(self.dropout_rate, PhaseRates):
            return tuple(getattr(self.dropout_rate, name) for name in PHASE_NAMES)
        return (0.0, 0.0, self.dropout_rate, 0.0, 0.0)
