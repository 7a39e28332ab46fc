"""The releases of one step: what each vector that is received adds to those received before it.

All vectors of a step are linear maps of what senders contribute and of independent noise sources.
Contributions that do not depend on the unit are the same in both worlds: vectors made of these alone tell
noise and nothing else, and are taken off first. Then each vector that depends on the unit is reduced by those
before it (Gram and Schmidt, in the metric of the noise): the rest is independent of them, and is one release.
A coarser sum of a finer one leaves nothing of the unit, and so is no release.
"""

from __future__ import annotations

import math
from collections.abc import Hashable, Mapping
from dataclasses import dataclass, field
from typing import TypeAlias, TypeVar

from message_graph.noise import Source

Coordinate: TypeAlias = tuple[str, Hashable]
_Name = TypeVar("_Name", bound=Hashable)
_ROUNDING = 1e-10


@dataclass(frozen=True)
class Innovation:
    """What is new in a vector.

    Attributes:
        shift: coefficients of what depends on the unit.
        variance: of the noise that is new in it.
    """

    shift: Mapping[Coordinate, float]
    variance: float


@dataclass(frozen=True, eq=False)
class Innovations:
    """The vectors of one step, taken in one after another.

    Attributes:
        variances: of every noise source.
    """

    variances: Mapping[Source, float]
    _noisy: list[tuple[dict[Source, float], dict[Coordinate, float]]] = field(default_factory=list)
    _noiseless: list[dict[Coordinate, float]] = field(default_factory=list)

    def add(self, noise: Mapping[Source, float], shift: Mapping[Coordinate, float]) -> Innovation | None:
        """What a vector of this noise and this shift adds; ``None`` where nothing of the unit is new."""
        rest, moved = dict(noise), dict(shift)
        before, moved_before = self._square(rest), max(map(abs, moved.values()), default=0.0)
        for direction, along in self._noisy:
            share = self._product(rest, direction)
            _subtract(rest, direction, share)
            _subtract(moved, along, share)
        variance = self._square(rest)
        if variance <= _ROUNDING * before:
            variance = 0.0
        for along in self._noiseless:
            pivot = max(along, key=lambda coordinate: abs(along[coordinate]))
            _subtract(moved, along, moved.get(pivot, 0.0) / along[pivot])
        scale = max(moved_before, 1e-300)
        moved = {name: value for name, value in moved.items() if abs(value) > _ROUNDING * scale}
        if variance > 0:
            size = math.sqrt(variance)
            self._noisy.append(
                (
                    {source: value / size for source, value in rest.items()},
                    {name: value / size for name, value in moved.items()},
                )
            )
        elif moved:
            self._noiseless.append(moved)
        return Innovation(moved, variance) if moved else None

    def _product(self, one: Mapping[Source, float], other: Mapping[Source, float]) -> float:
        return math.fsum(value * other.get(s, 0.0) * self.variances[s] for s, value in one.items())

    def _square(self, one: Mapping[Source, float]) -> float:
        return self._product(one, one)


def _subtract(one: dict[_Name, float], other: Mapping[_Name, float], times: float) -> None:
    for name, value in other.items():
        one[name] = one.get(name, 0.0) - times * value
