"""A privacy filter: what may be sent when noise and schedule are chosen from what was sent before.

Composition theorems for figures fixed in advance do not apply there. The one for a preset budget does: if
every release, given all before it, is a Gaussian with (sensitivity / noise std) = mu_t, the mu_t may be
chosen from the past at will as long as the sum of mu_t^2 never passes B^2, and the whole is B-GDP (Smith and
Thakurta 2022; Koskela, Tobaben and Honkela 2023, who keep one such account for every individual, charged only
when it takes part). Participation must be drawn without looking at the data.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt

from sfumato.privacy.release import Exposure
from sfumato.privacy.sampling import Neighbours

FloatArray = npt.NDArray[np.float64]

_ROUNDING = 1e-12


def squared_mu_of_exposure(exposure: Exposure, neighbours: Neighbours) -> float:
    """Σ (sensitivity / noise std)² over all releases of ``exposure``, as if the unit took part every time.

    Sensitivities are those under ``neighbours``.
    """
    counted = [(release, count) for release, count in exposure.counted_releases if count > 0]
    return math.fsum(count * release.mu_squared(neighbours) for release, count in counted)


@dataclass(frozen=True)
class GaussianFilter:
    """What every unit may still reveal to every observer, and has revealed so far, as sums of μ².

    Attributes:
        budget: the most that may be spent, mu^2, ``[units, observers]``; infinite where nothing is promised.
        spent: so far.

    Raises:
        ValueError: the shapes differ, or more is spent than the budget.
    """

    budget: FloatArray
    spent: FloatArray

    def __post_init__(self) -> None:
        """Raise a ValueError unless ``spent`` has the shape of ``budget`` and exceeds it nowhere."""
        if self.budget.shape != self.spent.shape:
            raise ValueError(f"spent: got shape {self.spent.shape}; must be {self.budget.shape}")
        if np.any(self.spent > self.budget * (1 + _ROUNDING)):
            raise ValueError("spent: is more than the budget")

    @classmethod
    def fresh(cls, budget: FloatArray) -> GaussianFilter:
        """A filter with this ``budget``, μ² ``[units, observers]``, of which nothing is spent."""
        return cls(budget, np.zeros_like(budget))

    def allows(self, charge: FloatArray, units: Sequence[int] | npt.NDArray[np.int64]) -> bool:
        """Whether the budgets of ``units`` have room for ``charge``, μ² ``[len(units), observers]``."""
        return bool(np.all(self.spent[units] + charge <= self.budget[units] * (1 + _ROUNDING)))

    def tightest(self, charge: FloatArray, units: Sequence[int] | npt.NDArray[np.int64]) -> tuple[int, int]:
        """The unit and observer that would have used the largest share of their budget after ``charge``.

        Args:
            charge: μ² ``[len(units), observers]``, added to what is spent.
            units: numbers of the units charged, one or more.

        Returns:
            The number of the unit, and the column of the observer; the first of equals.
        """
        with np.errstate(divide="ignore", invalid="ignore"):
            used = np.nan_to_num((self.spent[units] + charge) / self.budget[units], posinf=np.inf)
        row, column = np.unravel_index(int(used.argmax()), used.shape)
        return int(units[int(row)]), int(column)

    def after(self, charge: FloatArray, units: Sequence[int] | npt.NDArray[np.int64]) -> GaussianFilter:
        """A filter in which ``units`` have spent ``charge`` more; each unit is given at most once.

        Args:
            charge: μ², ``[len(units), observers]``.
            units: numbers of the units charged.

        Raises:
            ValueError: the budget does not allow it: ask `allows` first.
        """
        spent = self.spent.copy()
        spent[units] += charge
        return replace(self, spent=spent)

    def setting_aside(
        self, amount: float | FloatArray, units: Sequence[int] | npt.NDArray[np.int64]
    ) -> GaussianFilter | None:
        """A filter in which each of ``units`` has spent ``amount`` more μ² towards every observer.

        ``amount`` is one number or ``[len(units)]``. ``None`` where a budget has less left.
        """
        charge = np.broadcast_to(np.asarray(amount, dtype=np.float64), (len(units),))[:, None]
        return self.after(charge, units) if self.allows(charge, units) else None

    def noise_factor(
        self, charge: FloatArray, units: Sequence[int] | npt.NDArray[np.int64], times: float | FloatArray
    ) -> float:
        """The least factor on all noise stds at which the remaining budgets allow ``times`` such charges.

        Args:
            charge: μ² of one charge, ``[len(units), observers]``.
            units: numbers of the units charged.
            times: how many charges, one number or ``[len(units)]``, at least 1.

        Returns:
            The factor that the tightest unit and observer need; 0 if nothing is charged against a finite
            budget, ∞ where one has nothing left.
        """
        left = np.maximum(self.budget[units] - self.spent[units], 0.0)
        bounded = np.isfinite(left) & (charge > 0)
        if not bounded.any():
            return 0.0
        with np.errstate(divide="ignore"):
            wanted = charge * np.broadcast_to(np.asarray(times), (len(charge),))[:, None]
            return float(np.sqrt((wanted[bounded] / left[bounded]).max()))
