"""``privacy``: delta, clipping, and how much noise."""

from __future__ import annotations

import math
from typing import Annotated, Any, Literal

from pydantic import Field, Tag, model_validator

from sfumato.spec.base import (
    Flag,
    GroupwiseSection,
    NonNegative,
    OpenUnit,
    Positive,
    Section,
    ShareOrList,
    by_kind,
    in_range,
)
from sfumato.spec.limits import LEAST_DELTA, LEAST_SHARE, LEAST_SOURCE, MOST_SOURCE
from sfumato.spec.refusals import Refusals

Delta = Annotated[float, Field(ge=LEAST_DELTA, le=1 - LEAST_SHARE), in_range(LEAST_DELTA, 1 - LEAST_SHARE)]
SourceMultiplier = Annotated[
    float, Field(ge=0, le=MOST_SOURCE), in_range(LEAST_SOURCE, MOST_SOURCE, or_zero=True)
]
Unit = Literal["device", "record", "person", "both"]
"""What a spec protects: all data of a device, any one record of it, any one person in it, or a device and a
record."""

OBSERVER_KINDS = ("cloud", "own-edge", "other-edge", "edge", "peer", "other-device", "device", "public")


class AdaptiveNorm(Section):
    """How the clip norm follows the lengths of updates (Andrew et al. 2021); ``norm`` is that of round 1.

    After a round the norm is multiplied by ``exp(-rate * (b - quantile))``, where b is the noised share of
    the messages that clipping left as they were. Each message has a coordinate for it, which is noised with
    the rest.
    """

    quantile: OpenUnit = Field(
        default=0.5, description="share of the messages that the clip should leave as they are"
    )
    rate: Positive = Field(default=0.2, description="step of the logarithm of the norm")
    share: OpenUnit = Field(
        default=0.01,
        description="share of a message's squared bound that is spent on telling whether it was clipped",
    )


class ClipSettings(GroupwiseSection):
    """What is clipped to ``norm``: whole messages, mini-batch gradients, or gradients of single examples."""

    number_and_list = "norm", "norms"
    kind: Literal["update", "step", "example"]
    norm: Positive
    norms: Annotated[tuple[Positive, ...], Field(min_length=1)] | None = Field(
        default=None, description="groups: one for each group; a list under norm says the same"
    )
    per_layer: Annotated[tuple[Positive, ...], Field(min_length=1)] | None = Field(
        default=None,
        description="trees, kind update: a norm for every layer; norm is then the root of their squares",
    )
    adapt: AdaptiveNorm | None = Field(
        default=None, description="trees, kind update: the norm follows a quantile of the updates' lengths"
    )

    @model_validator(mode="before")
    @classmethod
    def _norm_of_layers(cls, value: Any) -> Any:
        """The section as written, ``value``, with the norm of all layers if it has ``per_layer`` alone.

        It is the root of the sum of their squared norms.
        """
        layers = value.get("per_layer") if isinstance(value, dict) else None
        if not isinstance(layers, list | tuple) or {"norm", "norms"} & value.keys():
            return value
        try:
            return {**value, "norm": math.hypot(*map(float, layers))}
        except (TypeError, ValueError):
            return value  # the field's own check says what is wrong

    def refusals(self) -> Refusals:
        """Rows as of `Section.refusals`.

        They refuse ``per_layer`` or ``adapt`` with another ``kind`` than ``update``, both together, and
        beside ``per_layer`` a ``norm`` other than the root of the sum of its squares.
        """
        yield from super().refusals()
        adapts, layers = self.adapt is not None, self.per_layer
        allowed = "goes with kind: update: it follows the lengths of whole messages"
        yield adapts and self.kind != "update", "adapt", None, allowed
        if layers is not None:
            yield self.kind != "update", "per_layer", list(layers), "goes with kind: update"
            yield adapts, "adapt", None, "must be left out with per_layer: only one norm is adapted"
            whole = math.hypot(*layers)
            allowed = f"must be {whole!r}, the root of the squares of per_layer"
            yield not math.isclose(self.norm, whole, rel_tol=1e-9), "norm", self.norm, allowed

    @property
    def message_bound(self) -> float:
        """Largest l2 norm of a message, in clip norms: 1, or with ``adapt`` 1 / sqrt(1 - share)."""
        return 1.0 if self.adapt is None else 1 / math.sqrt(1 - self.adapt.share)


class Placement(Section):
    """Which zones' noise is added where (HDP). Shares of the zones, or lists of zone numbers.

    A zone is the devices under one aggregator of the lowest level. Shares are rounded half up and drawn with
    the seed; no zone is in both ``device`` and ``edge``.
    """

    device: ShareOrList | None = Field(default=None, description="zones in which every device adds noise")
    edge: ShareOrList | None = Field(default=None, description="zones whose edge adds noise")
    device_fraction: ShareOrList | None = Field(
        default=None, description="inside every zone: the share, or numbers, of the devices that add noise"
    )
    levels: dict[str, ShareOrList] = Field(
        default_factory=dict,
        description="deeper trees: level name: which aggregators of that level add noise to their average",
    )
    cloud: Flag = Field(default=False, description="true: the cloud adds noise to the global average")


class NoNoise(Section):
    """No noise at all: no guarantee."""

    kind: Literal["none"] = "none"


class NoiseByMultiplier(GroupwiseSection):
    """Noise standard deviation over the zero-out sensitivity of what is noised, at each noiser."""

    number_and_list = "multiplier", "multipliers"
    kind: Literal["multiplier"] = "multiplier"
    multiplier: NonNegative
    at: Literal["message", "step"] = Field(
        default="message",
        description="message: where messages leave trusted hands; step: every device, at every local step",
    )
    multipliers: Annotated[tuple[NonNegative, ...], Field(min_length=1)] | None = Field(
        default=None, description="groups: one for each group; a list under multiplier says the same"
    )
    placement: Placement | None = None


class NoiseByTarget(Section):
    """Every source is scaled by itself so that each unit's epsilon towards ``for`` equals ``epsilon``."""

    kind: Literal["target"] = "target"
    epsilon: Positive
    towards: str = Field(
        alias="for",
        min_length=1,
        description=f"an observer kind ({', '.join(OBSERVER_KINDS)}) or an observer",
    )


class NoiseByFormula(Section):
    """A paper's own formula; its claim is shown beside the rigorous figure."""

    kind: Literal["formula"] = "formula"
    formula: Literal["h2fdp", "pfels"]
    epsilon: Positive
    c2: Positive = Field(default=1.0, description="h2fdp: the constant of (15), which the paper leaves open")


class SourceNoise(Section):
    """One multiplier for each aggregating level (the global step first), shared by all of ``owners``."""

    owners: Annotated[tuple[str, ...], Field(min_length=1)] = Field(
        description="cloud, edge:3, master:2 (an aggregator that adds noise), edge:3/devices (each of them), "
        "edge:3/devices:0-4,7 (these of them, counted within the edge)"
    )
    multipliers: Annotated[tuple[SourceMultiplier, ...], Field(min_length=1)] = Field(
        description="noise standard deviation over zero-out sensitivity, a level of aggregation, top down"
    )


StatedNoise = Annotated[
    Annotated[NoiseByMultiplier, Tag("=multiplier")]
    | Annotated[NoiseByTarget, Tag("=target")]
    | Annotated[NoiseByFormula, Tag("=formula")],
    by_kind(
        "multiplier", "target", "formula",
        formula="formula", multiplier="multiplier", epsilon="target", multipliers="multiplier",
        at="multiplier", **{"for": "target"},
    ),
]  # fmt: skip


class NoiseBySource(Section):
    """Every source by name: what calibration and planning write, and a run folder keeps."""

    kind: Literal["sources"] = "sources"
    sources: Annotated[tuple[SourceNoise, ...], Field(min_length=1)]
    calibrated_from: StatedNoise | None = Field(
        default=None, description="the noise section these sources were calibrated from"
    )


Noise = Annotated[
    Annotated[NoNoise, Tag("=none")]
    | Annotated[NoiseByMultiplier, Tag("=multiplier")]
    | Annotated[NoiseByTarget, Tag("=target")]
    | Annotated[NoiseByFormula, Tag("=formula")]
    | Annotated[NoiseBySource, Tag("=sources")],
    by_kind(
        "none", "multiplier", "target", "formula", "sources",
        sources="sources", formula="formula", multiplier="multiplier", epsilon="target",
        multipliers="multiplier", at="multiplier", **{"for": "target"},
    ),
]  # fmt: skip


class Mechanism(Section):
    """A noise mechanism from outside the package. Its law is stated here: accounting runs no code."""

    kind: Annotated[
        str,
        Field(pattern=r"^([\w.]+|.+\.py):\w+$", description="package.module:factory or FILE.py:factory"),
    ]
    law: Literal["gaussian", "other"] = Field(
        default="other", description="of its noise; any other than gaussian is charged as no noise"
    )


class Privacy(Section):
    """What is protected, by how much."""

    delta: Delta = 1e-5
    unit: Unit = Field(
        default="device",
        description="whom guarantees and targets are about: a device (all its data), any one record of it, "
        "any one person in it (all rows with one value of data.person_column), or both a device and a record "
        "(then targets are met for devices)",
    )
    clip: ClipSettings | None = Field(default=None, description="required wherever there is noise")
    noise: Noise = NoNoise()
    mechanism: Mechanism | None = Field(
        default=None, description="a noise mechanism of one's own; default Gaussian"
    )
    neighbours: Literal["zero-out", "remove", "replace"] = Field(
        default="zero-out",
        description="the other world: the device sends zeros and counts as before; it is gone with its "
        "weight (with participation poisson); it holds any other data and counts as before",
    )

    @property
    def clips_examples(self) -> bool:
        """Whether the gradient of every single example is clipped (``clip.kind: example``)."""
        return self.clip is not None and self.clip.kind == "example"

    @property
    def unit_within_device(self) -> bool:
        """Whether the privacy unit is a part of what a device holds: a record or a person."""
        return self.unit in ("record", "person")

    @property
    def step_noise(self) -> float:
        """Multiplier of the noise that devices add at every local step; 0 where they add none at steps."""
        noise = self.noise
        return noise.multiplier if isinstance(noise, NoiseByMultiplier) and noise.at == "step" else 0.0

    @property
    def requested_noise(self) -> Noise:
        """The noise section as the user wrote it, even where a run folder holds the sources it led to."""
        if isinstance(self.noise, NoiseBySource) and self.noise.calibrated_from is not None:
            return self.noise.calibrated_from
        return self.noise
