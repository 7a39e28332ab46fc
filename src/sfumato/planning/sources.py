"""Classes of interchangeable noise sources of a plan, and the spec in which each has a given intensity.

A *source* is a class of interchangeable parties that add noise at one level of aggregation. Its *intensity*
is the square of its noise multiplier, so the variance of every release is linear in the intensities. The
spec decides which parties add noise: by the placement or the sources that it lists, otherwise by trust.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from sfumato.errors import SpecError
from sfumato.families import family_of
from sfumato.schedule.base import Plan
from sfumato.schedule.resolve import resolve
from sfumato.spec.document import Spec
from sfumato.spec.privacy import Noise, NoiseByMultiplier, NoiseBySource, SourceNoise

FloatArray = npt.NDArray[np.float64]


@dataclass(frozen=True)
class NoiseSource:
    """Interchangeable parties that add noise at one level of aggregation.

    Attributes:
        owners: their names in ``privacy.noise.sources``.
        level: the tier that aggregates; 0 is the cloud. Groups have one level, 0.
    """

    owners: tuple[str, ...]
    level: int


def with_noise(spec: Spec, noise: Noise) -> Spec:
    """``spec`` with ``noise`` as its noise section."""
    return spec.model_copy(update={"privacy": spec.privacy.model_copy(update={"noise": noise})})


def with_intensities(plan: Plan, sources: Iterable[NoiseSource], intensities: FloatArray) -> Plan:
    """Resolve ``plan`` anew with noise of these ``intensities`` ``[sources]`` and no other noise.

    An intensity is a squared noise multiplier; there is one for each of ``sources``.
    """
    levels = family_of(plan.spec).planning().level_count(plan)
    rows: defaultdict[str, list[float]] = defaultdict(lambda: [0.0] * levels)
    for source, intensity in zip(sources, intensities, strict=True):
        for owner in source.owners:
            rows[owner][source.level] = math.sqrt(intensity)
    alike: defaultdict[tuple[float, ...], list[str]] = defaultdict(list)
    for owner, row in rows.items():
        alike[tuple(row)].append(owner)
    listed = tuple(SourceNoise(owners=tuple(owners), multipliers=row) for row, owners in alike.items())
    return resolve(with_noise(plan.spec, NoiseBySource(sources=listed)))


def noise_of_unit_multipliers(noise: Noise) -> Noise:
    """A noise section in which every party, and level, that adds noise under ``noise`` has a multiplier of 1.

    Raises:
        SpecError: ``noise`` is added at local steps.
    """
    match noise:
        case NoiseByMultiplier(at="step"):
            allowed = (
                "must be message: plans size the noise of messages; noise at local steps has one multiplier, "
                "whose ε sfumato account tells"
            )
            raise SpecError("privacy.noise.at", "step", allowed)
        case NoiseBySource():
            ones = [
                SourceNoise(owners=s.owners, multipliers=tuple(float(m > 0) for m in s.multipliers))
                for s in noise.sources
            ]
            return NoiseBySource(sources=tuple(ones))
        case NoiseByMultiplier():
            return NoiseByMultiplier(multiplier=1.0, placement=noise.placement)
        case _:
            return NoiseByMultiplier(multiplier=1.0)


def names_noise_owners(noise: Noise) -> bool:
    """Whether the section ``noise`` itself names the parties that add noise, rather than trust."""
    return isinstance(noise, NoiseBySource) or (
        isinstance(noise, NoiseByMultiplier) and noise.placement is not None
    )
