"""What released messages tell about gradients: estimates that cost no privacy.

H2FDP has its parties send what Lin et al. (2021, section IV-C) estimate the constants from; sent as they are,
those numbers leak. Everything here is computed from noised vectors that somebody has received anyway, so it
is post-processing and free. The noise's own share, known in expectation, is taken off; what is left counts
only where it stands out from that share's fluctuation. In the noise that H2FDP's formula asks for, it rarely
does: then the value stated beforehand stays (docs/control.md).
"""

from __future__ import annotations

import math
from dataclasses import dataclass

# A false alarm a round with probability below 1e-6 (normal approximation of a chi-square of many degrees).
_STANDS_OUT = 5.0


@dataclass(frozen=True)
class NoisySquaredNorm:
    """A sum of squared lengths of noised vectors, and what of it is noise.

    Attributes:
        total: as observed.
        noise: expectation of the noise's share: number of coordinates times variance, summed.
        variance: of the noise's share: twice coordinates times variance squared, summed.
    """

    total: float = 0.0
    noise: float = 0.0
    variance: float = 0.0

    def plus(self, square: float, variance: float, coordinates: int) -> NoisySquaredNorm:
        """The sum with the squared length of one more vector.

        Args:
            square: its squared length as observed.
            variance: of its noise, in each coordinate.
            coordinates: how many it has.
        """
        return NoisySquaredNorm(
            self.total + square,
            self.noise + coordinates * variance,
            self.variance + 2 * coordinates * variance**2,
        )

    @property
    def signal(self) -> float | None:
        """The observed total less the expected noise; ``None`` unless it is above 0 and five noise stds."""
        found = self.total - self.noise
        return found if found > _STANDS_OUT * math.sqrt(self.variance) and found > 0 else None


def largest_distance(energies: list[NoisySquaredNorm]) -> float | None:
    """The largest of several distances, noise taken off; ``None`` if noise hides all of them.

    ``energies``: the squared distances as observed, with their noise; those without a `signal` do not count.
    """
    found = [energy.signal for energy in energies]
    kept = [math.sqrt(signal) for signal in found if signal is not None]
    return max(kept, default=None)
