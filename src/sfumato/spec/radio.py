"""``radio``: the wireless links, by a link budget (H2FDP) or by gains and SNR limits (PFELS); or none."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import AfterValidator, Discriminator, Field, Tag, model_validator

from sfumato.spec.base import TAG, Count, Decibels, Positive, Section, count_limit, in_range, refused_error
from sfumato.spec.limits import LEAST, MOST_METRES, MOST_PATHLOSS, MOST_SHADOWING_DB
from sfumato.spec.refusals import Refusals

REFERENCE_M = 1.0
"""Distance at which the reference gain holds; the law says nothing about shorter ones."""
RICIAN_K_DB = 10.0
_AIR_KEYS = ("gain", "snr_db", "noise_std", "subcarriers", "slot_s", "spacing_hz")


Metres = Annotated[float, Field(ge=REFERENCE_M, le=MOST_METRES), in_range(REFERENCE_M, MOST_METRES)]
"""The path loss is given from the reference distance on."""


PathlossExponent = Annotated[float, Field(ge=LEAST, le=MOST_PATHLOSS), in_range(LEAST, MOST_PATHLOSS)]


class Gain(Section):
    """Distribution of the channel gain's magnitude (linear), held within bounds."""

    kind: Literal["exponential", "rayleigh", "rician", "constant"]
    mean: Positive = Field(description="before the bounds")
    min: Positive = Field(default=1e-4, description="above 0: a device divides by its gain")
    max: Positive = 1.0
    k_factor_db: Decibels | None = Field(
        default=None, description="of rician: direct over scattered power, dB"
    )

    def refusals(self) -> Refusals:
        """Rows as of `Section.refusals`.

        They refuse a ``min`` above ``max``, a constant gain outside these, and ``k_factor_db`` of another
        kind than rician.
        """
        low, mean, high = self.min, self.mean, self.max
        yield low > high, "min", low, f"must be at most max ({high})"
        is_outside = self.kind == "constant" and not low <= mean <= high
        yield is_outside, "mean", mean, f"must be from min ({low}) to max ({high})"
        k_factor, allowed = self.k_factor_db, "goes with kind: rician"
        yield self.kind != "rician" and k_factor is not None, "k_factor_db", k_factor, allowed

    @property
    def least(self) -> float:
        """Smallest magnitude of the channel gain (linear): ``mean`` where it is constant, else ``min``."""
        return self.mean if self.kind == "constant" else self.min

    @property
    def largest(self) -> float:
        """Largest magnitude of the channel gain (linear): ``mean`` where it is constant, else ``max``."""
        return self.mean if self.kind == "constant" else self.max


PFELS_GAIN = Gain(kind="exponential", mean=0.02, min=1e-4, max=0.1)


def _ascending(bounds: tuple[float, ...]) -> tuple[float, ...]:
    """``bounds``, if they are two numbers, the smaller first; a validation error is raised otherwise."""
    if len(bounds) != 2 or bounds[0] > bounds[1]:
        raise refused_error("", list(bounds), "must be a list of two numbers, the smaller first")
    return bounds


Distances = Annotated[
    Annotated[tuple[Metres, ...], Tag(TAG + "list")] | Annotated[str, Tag(TAG + "file")],
    Discriminator(lambda value: TAG + ("file" if isinstance(value, str) else "list")),
]


BitsPerParameter = Annotated[int, Field(ge=1, le=64), count_limit(64)]


class _Links(Section):
    access: Literal["tdma", "ofdma"]
    bits_per_parameter: BitsPerParameter = Field(
        default=32, description="Q: of a message that is not compressed"
    )
    wired_power_dbm: Decibels = Field(default=38.0, description="of an aggregator towards its parent")
    wired_rate_bps: Positive = Field(default=100e6, description="each aggregator has a line of its own")


class LinkRadio(_Links):
    """Links by their budget: power, path loss, fading, noise (H2FDP, Appendix D)."""

    # the others never get here: they are named so that a refusal lists all
    preset: Literal["h2fdp", "pfels", "none"] = "h2fdp"
    access: Literal["tdma", "ofdma"] = "tdma"
    power_dbm: Decibels = Field(default=24.0, description="of a device")
    bandwidth_hz: Positive = Field(default=1e6, description="of a cell: in turns, or split")
    noise_density_dbm_hz: Decibels = -173.0
    reference_gain_db: Decibels = Field(default=-30.0, description="at 1 m")
    pathloss_exponent: PathlossExponent = 3.75
    fading: Literal["rayleigh", "rician", "none"] = "rayleigh"
    k_factor_db: Decibels | None = Field(
        default=None, description="of rician: direct over scattered power, dB"
    )
    shadowing_db: Annotated[
        float, Field(ge=0, le=MOST_SHADOWING_DB), in_range(LEAST, MOST_SHADOWING_DB, or_zero=True)
    ] = Field(default=0.0, description="standard deviation; drawn once a device")
    radius_m: Metres = Field(default=100.0, description="devices are uniform over a disc around the edge")
    distances_m: Distances | None = Field(
        default=None, description="instead of the disc: a list, or a text file of one number a line"
    )
    broadcast_power_dbm: Decibels = Field(default=24.0, description="of an edge towards its devices")

    def refusals(self) -> Refusals:
        """Rows as of `Section.refusals`.

        They refuse ``k_factor_db`` without Rician fading, and a ``radius_m`` of at most the reference
        distance.
        """
        k_factor, allowed = self.k_factor_db, "goes with fading: rician"
        yield self.fading != "rician" and k_factor is not None, "k_factor_db", k_factor, allowed
        yield self.radius_m <= REFERENCE_M, "radius_m", self.radius_m, f"must be above {REFERENCE_M:g}"


class AirRadio(_Links):
    """Links by the distribution of their gains and the devices' SNR limits (PFELS, section 8.1)."""

    preset: Literal["pfels"] | None = None
    access: Literal["tdma", "ofdma"] = Field(
        default="ofdma", description="of messages that are not superposed"
    )
    gain: Gain = PFELS_GAIN
    noise_std: Positive = Field(default=1.0, description="receiver noise, standard deviation a coordinate")
    snr_db: Annotated[tuple[Decibels, ...], AfterValidator(_ascending)] = Field(
        default=(2.0, 15.0),
        description="range of the devices' maximum SNR, dB: smallest and largest",
    )
    subcarriers: Count = Field(default=3300, description="K: coordinates sent in a slot")
    slot_s: Positive = 0.01
    spacing_hz: Positive = Field(default=15e3, description="of subcarriers; a slot holds at least a symbol")

    @model_validator(mode="before")
    @classmethod
    def _with_gain_of_preset(cls, value: Any) -> Any:
        """``value``, the section as written, with the gain of its preset where it has none."""
        if not isinstance(value, dict):
            return value
        gain = value.get("gain")
        if value.get("preset") is None:
            for key in ("gain", "snr_db"):
                if key not in value:
                    raise refused_error(
                        key, None, "is required without a preset (there are h2fdp, pfels, none)"
                    )
        elif isinstance(gain, dict) and "kind" not in gain:
            return value | {"gain": PFELS_GAIN.model_dump() | gain}
        return value

    def refusals(self) -> Refusals:
        """Rows as of `Section.refusals`; they refuse ``slot_s`` below 1 / ``spacing_hz``, one symbol."""
        spacing, slot_s = self.spacing_hz, self.slot_s
        allowed = f"must hold a symbol of subcarriers {spacing:g} Hz apart: {1 / spacing:g} s"
        yield slot_s * spacing < 1, "slot_s", slot_s, allowed


class NoRadio(Section):
    """No radio: bytes are counted, energy and time are not."""

    preset: Literal["none"] = "none"
    bits_per_parameter: BitsPerParameter = Field(default=32, description="Q: of a message")

    @model_validator(mode="before")
    @classmethod
    def _by_name(cls, value: Any) -> Any:
        """An empty section if ``value`` is the name ``none``; anything else as it is."""
        return {} if value == "none" else value


def _tag_of_radio(value: Any) -> str:
    """The union tag of the kind of radio that ``value`` describes: ``=h2fdp``, ``=pfels`` or ``=none``."""
    if value == "none" or isinstance(value, NoRadio):
        return TAG + "none"
    if isinstance(value, Section):
        return TAG + ("pfels" if isinstance(value, AirRadio) else "h2fdp")
    if not isinstance(value, dict) or value.get("preset") is not None:
        preset = value.get("preset") if isinstance(value, dict) else None
        if preset == "none":
            return TAG + "none"
        return TAG + ("pfels" if preset == "pfels" else "h2fdp")
    return TAG + ("pfels" if any(key in value for key in _AIR_KEYS) else "h2fdp")


Radio = Annotated[
    Annotated[LinkRadio, Tag(TAG + "h2fdp")]
    | Annotated[AirRadio, Tag(TAG + "pfels")]
    | Annotated[NoRadio, Tag(TAG + "none")],
    Discriminator(_tag_of_radio),
]
