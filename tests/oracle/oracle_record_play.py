"""What a coalition makes of messages whose values are drawn, given how they enter what it receives."""

from __future__ import annotations

import itertools
from collections import defaultdict
from collections.abc import Sequence
from typing import Protocol

import numpy as np
import numpy.typing as npt
from oracle_mixture import Experiment, Part
from oracle_record_laws import MessageLaw, summed

Vector = npt.NDArray[np.float64]
Law = list[tuple[float, float, float]]
"""Probability, mean and standard deviation of every part of a mixture."""


class Rows(Protocol):
    """What is received, when all but the unit's messages is settled."""

    @property
    def moves(self) -> Vector:
        """Of every row, by the unit's messages ``[rows, messages]``."""

    @property
    def noise(self) -> Vector:
        """Of every row ``[rows, sources]``."""


def apart(moves: Vector, noise: Vector, laws: Sequence[MessageLaw]) -> list[Experiment] | None:
    """Independent experiments, one for messages that do not overlap in what is received.

    Whitened, every message points in one direction. Directions that are orthogonal are received apart: what
    is received is as good as a number for each. Of messages that overlap one number is looked at, along all
    of them. ``None`` where some message arrives without noise, or has too many values.
    """
    scale = np.linalg.norm(noise, axis=1)
    if not noise.size or (scale <= 1e-12 * max(1.0, float(scale.max(initial=0.0)))).any():
        return None
    u, s, _ = np.linalg.svd(noise / scale[:, None], full_matrices=False)
    kept = s > 1e-8 * s[0]
    moved = moves / scale[:, None]
    along = u[:, kept].T @ moved
    if np.linalg.norm(moved - u[:, kept] @ along) > 1e-6 * np.linalg.norm(moved):
        return None
    along /= s[kept][:, None]
    found = []
    for block in _blocks(along.T @ along):
        sizes = np.array([laws[place].reach for place in block])
        direction = along[:, block] @ sizes
        length = float(np.linalg.norm(direction))
        if length == 0:
            continue
        weights = (direction @ along[:, block] / length).tolist()
        both = [
            summed([getattr(laws[place], world) for place in block], weights)
            for world in ("with_record", "without")
        ]
        if both[0] is None or both[1] is None:
            return None
        parts = [tuple(Part(None, p, mean, 1.0) for p, mean in law) for law in both if law is not None]
        found.append(Experiment(parts[0], parts[1]))
    return found or [Experiment((Part(None, 1.0, 0.0, 1.0),), (Part(None, 1.0, 0.0, 1.0),))]


def _blocks(gram: Vector) -> list[list[int]]:
    """Messages that overlap, directly or through others."""
    size = np.sqrt(np.maximum(np.diag(gram), 0.0))
    meets = np.abs(gram) > 1e-7 * np.outer(size, size)
    left, found = set(np.flatnonzero(size > 0).tolist()), []
    while left:
        block, fresh = set(), {min(left)}
        while fresh:
            block |= fresh
            fresh = {int(other) for one in fresh for other in np.flatnonzero(meets[one])} & left - block
        found.append(sorted(block))
        left -= block
    return found


def projected(
    rows: Rows,
    direction: Vector | None,
    laws: Sequence[MessageLaw],
    weight: float,
    constants: Vector | None = None,
) -> tuple[Law, Law] | None:
    """The mixture that a linear function of what is received is, with the unit and without.

    Args:
        rows: what is received.
        direction: the function; ``None``: nothing is looked at.
        laws: of the unit's messages, in multiples of ``weight``.
        weight: of the messages.
        constants: what every row has in both worlds.
    """
    if direction is None:
        return [(1.0, 0.0, 0.0)], [(1.0, 0.0, 0.0)]
    constant = 0.0 if constants is None else float(direction @ constants)
    std = float(np.linalg.norm(direction @ rows.noise))
    if std < max(1e-9 * float(np.linalg.norm(np.abs(direction) @ np.abs(rows.noise))), 1e-13):
        std = 0.0  # what rounding left of noise that cancels; lengths are in units of the clip
    weights = (weight * (direction @ rows.moves)).tolist()
    both = [summed([getattr(law, world) for law in laws], weights) for world in ("with_record", "without")]
    if both[0] is None or both[1] is None:
        return None
    with_unit, without = ([(p, constant + mean, std) for p, mean in law] for law in both if law is not None)
    return with_unit, without


def added(a: dict[float, float], b: dict[float, float]) -> dict[float, float]:
    """The law of a sum of two independent numbers."""
    total: dict[float, float] = defaultdict(float)
    for (x, p), (y, q) in itertools.product(a.items(), b.items()):
        total[x + y] += p * q
    return dict(total)
