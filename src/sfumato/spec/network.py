"""``transport``, ``radio`` and ``compression``: how messages travel."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import AfterValidator, Field, model_validator

from sfumato.spec.base import NonNegative, Positive, Rate, Real, Section, refuse

Hop = Literal["plain", "secure-aggregation", "air"]


class Gain(Section):
    """Distribution of the channel gain's magnitude (linear)."""

    kind: Literal["exponential", "rayleigh", "rician", "constant"]
    mean: Positive
    min: NonNegative = 0.0
    max: Positive = 1.0

    @model_validator(mode="after")
    def _ascending(self) -> Gain:
        if self.min > self.max:
            raise refuse("min", self.min, f"must be at most max ({self.max})")
        return self


def _ascending(bounds: tuple[float, ...]) -> tuple[float, ...]:
    if len(bounds) != 2 or bounds[0] > bounds[1]:
        raise refuse("", list(bounds), "must be a list of two numbers, the smaller first")
    return bounds


class Radio(Section):
    """The wireless channel (PFELS, section 8.1)."""

    gain: Gain
    noise_std: NonNegative = Field(default=1.0, description="receiver noise, standard deviation a coordinate")
    snr_db: Annotated[tuple[Real, ...], AfterValidator(_ascending)] = Field(
        description="range of the devices' maximum SNR, dB: smallest and largest"
    )


class Compression(Section):
    """Which coordinates of an update are sent."""

    kind: Literal["rand-k", "top-k"]
    ratio: Rate
