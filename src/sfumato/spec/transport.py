"""``transport``, ``air`` and ``compression``: how messages travel, and what of them."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from sfumato.spec.base import Flag, NonNegative, Positive, Rate, Section, count_limit
from sfumato.spec.refusals import Refusals

Hop = Literal["plain", "secure-aggregation", "air"]
PowerControl = Literal["pfels", "wfl-p", "wfl-pdp", "fixed"]
MOST_BITS = 16


class ChannelKnowledge(Section):
    """How well devices know their channels; exactly unless said otherwise."""

    gain_error: NonNegative = Field(
        default=0.0, description="standard deviation of the true gain over the gain that is known, minus 1"
    )
    phase_error_rad: NonNegative = Field(default=0.0, description="standard deviation")
    max_error_std: Positive | None = Field(
        default=None, description="no error exceeds this many standard deviations; without, nothing protects"
    )

    @property
    def is_wrong(self) -> bool:
        """Whether devices know their channel gains with an error, of amplitude or of phase."""
        return self.gain_error > 0 or self.phase_error_rad > 0


class Air(Section):
    """Superposed transmission: how devices align, and who stays silent."""

    power_control: PowerControl | None = Field(
        default=None, description="(36), (37), (38) of PFELS, or a fixed beta; the protocol's own by default"
    )
    beta: Positive | None = Field(
        default=None, description="with power_control: fixed; amplitude received for an update of norm 1"
    )
    min_gain: Positive | None = Field(
        default=None, description="a device whose channel is weaker stays silent in that round"
    )
    csi: ChannelKnowledge = ChannelKnowledge()

    def refusals(self) -> Refusals:
        """Rows as of `Section.refusals`; they refuse ``beta`` but with ``power_control: fixed``."""
        is_fixed, allowed = self.power_control == "fixed", "goes with power_control: fixed, and only with it"
        yield is_fixed != (self.beta is not None), "beta", self.beta, allowed


class Compression(Section):
    """Which coordinates of a device's message are sent, and in how many bits each.

    ``rand-k``: drawn anew for every aggregation from a shared seed; ``top-k``: where the global model that
    everybody has already is largest. Either way the coordinates are public.
    """

    kind: Literal["rand-k", "top-k"]
    ratio: Rate = Field(description="share of the coordinates that is sent; 1 sends them all")
    error_feedback: Flag = Field(
        default=False, description="a device adds what it did not send to its next message, before the clip"
    )
    bits: Annotated[int, Field(ge=2, le=MOST_BITS), count_limit(MOST_BITS, least=2)] | None = Field(
        default=None, description="of a coordinate, sign included (QSGD); 32-bit floats without"
    )
