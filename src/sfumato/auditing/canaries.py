"""One run in which everybody who stands as the unit does sends a direction of their own, or does not.

What runs of a real training allow, without replaying thousands: a rigorous but small bound (`one_run`), and
an estimate (`one_shot`). Canaries are hidden by each other as much as by noise; with few of them, or in few
dimensions, both say little.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import torch

from sfumato.auditing import one_run, one_shot
from sfumato.auditing.harness import AuditHarness
from sfumato.auditing.trials import RoundTests, null_update
from sfumato.privacy.guarantee import number
from sfumato.privacy.relation import Neighbours
from sfumato.random import Stream, generator, seed_at

FloatArray = npt.NDArray[np.float64]
_DIMENSIONS = 4096
_FEWEST_CANARIES, _MOST_CANARIES = 20, 200
_LEAST_TO_ESTIMATE = 64


@dataclass(frozen=True)
class OneRun:
    """What one run showed.

    Attributes:
        canaries: how many units had their coin thrown.
        lower: bound on ε (Steinke, Nasr and Jagielski 2023), wrong with probability at most ``error``.
        error: as stated for ``lower``; larger than that of a replay, as one run shows little.
        estimate: of ε (Andrew et al. 2023): no bound; ``None`` with too few canaries.
    """

    canaries: int
    lower: float
    error: float
    estimate: float | None

    def to_dict(self) -> dict[str, Any]:
        """For ``audit --json``; what could not be estimated is ``null``."""
        return {
            "canaries": self.canaries,
            "lower": self.lower,
            "error": self.error,
            "estimate": None if self.estimate is None else number(self.estimate),
        }


def one_run_audit(
    harness: AuditHarness,
    rounds: Sequence[RoundTests],
    neighbours: Neighbours,
    *,
    delta: float,
    error: float,
    seed: int,
) -> OneRun | None:
    """Play all rounds once with a canary in every mate of the unit; ``None`` with too few of them.

    A fair coin decides whether a mate sends its random direction, or (under zero-out) nothing, or (under
    replace) the opposite. ``None`` under remove, too: mates cannot be gone from one run independently of how
    it goes for the others, which sums are divided by. Members of the coalition hold no office.
    """
    units = harness.exchangeable_devices[:_MOST_CANARIES]
    mates = len(units)
    if mates < _FEWEST_CANARIES or neighbours == "remove":
        return None
    rng = generator(seed, Stream.AUDIT, 3)
    directions = rng.normal(size=(mates, _DIMENSIONS))
    directions /= np.linalg.norm(directions, axis=1, keepdims=True)
    coins = rng.random(mates) < 0.5
    signs = np.where(coins, 1.0, null_update(neighbours))
    updates = torch.from_numpy(signs[:, None] * directions * (1 - 1e-6)).float()
    seen = np.zeros_like(directions)
    for piece, learned in enumerate(rounds):
        observed = harness.simulate_canaries(piece, units, updates, seed_at(seed, Stream.AUDIT, 4, piece))
        for row, of_mate in enumerate(observed):
            for fitted, vectors in zip(learned.tests[0], of_mate, strict=True):
                seen[row] += fitted.combine(vectors, _DIMENSIONS)
    along = (seen * directions).sum(axis=1)
    lower = one_run.from_scores(along, coins, delta=delta, error=error)
    lengths = np.linalg.norm(seen, axis=1)
    sent = coins & (lengths > 0)
    if sent.sum() < _LEAST_TO_ESTIMATE:  # a fitted variance says nothing yet
        return OneRun(mates, lower, error, None)
    cosines = along[sent] / lengths[sent]
    return OneRun(mates, lower, error, one_shot.epsilon_estimate(cosines, _DIMENSIONS, delta=delta))
