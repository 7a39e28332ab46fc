"""The curve of a distribution of losses on a grid, added up point by point."""

import numpy as np

from sfumato.privacy.losses.grid_losses import GridLosses, PairLosses


def delta_of(one: GridLosses, interval: float, level: float) -> float:
    """δ at ε = ``level``, which may be negative."""
    losses = (one.first + np.arange(len(one.masses))) * interval
    beyond = losses > level
    return float(one.masses[beyond] @ -np.expm1(level - losses[beyond])) + one.infinite


def worst_delta(pair: PairLosses, interval: float, level: float) -> float:
    """The larger δ of both directions."""
    return max(delta_of(one, interval, level) for one in pair)
