"""One run with many canaries: a fair coin decides whether each exchangeable device sends its own direction.

It gives a rigorous but small lower bound (`one_run`) and an estimate (`one_shot`), without replaying
thousands of trainings. The messages of other canaries hide a canary as noise does; with few canaries, or in
few dimensions, both results are weak.
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
from sfumato.privacy.sampling import Neighbours
from sfumato.random import Stream, generator, seed_at

FloatArray = npt.NDArray[np.float64]
_DIMENSIONS = 4096
_FEWEST_CANARIES, _MOST_CANARIES = 20, 200
_LEAST_TO_ESTIMATE = 64


@dataclass(frozen=True)
class OneRun:
    """The results of one run with canaries.

    Attributes:
        canaries: number of canaries.
        lower: bound on ε (Steinke, Nasr and Jagielski 2023), wrong with probability at most ``error``.
        error: error probability of ``lower``; larger than that of replayed trials, as one run shows little.
        estimate: of ε (Andrew et al. 2023), not a bound; ``None`` with too few canaries.
    """

    canaries: int
    lower: float
    error: float
    estimate: float | None

    def to_dict(self) -> dict[str, Any]:
        """The object in ``audit --json``; an estimate that is missing is ``null``."""
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
    """Simulate all rounds once with a canary in every device that is exchangeable with the unit.

    A fair coin decides whether such a device sends its random direction, or (under zero-out) nothing, or
    (under replace) the opposite direction. Members of the coalition hold no office.

    Returns:
        ``None`` with too few canaries, and under remove: devices that leave a run change the denominators of
        its sums, so the canaries would not be independent.
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
    if sent.sum() < _LEAST_TO_ESTIMATE:  # too few to fit a variance
        return OneRun(mates, lower, error, None)
    cosines = along[sent] / lengths[sent]
    return OneRun(mates, lower, error, one_shot.epsilon_estimate(cosines, _DIMENSIONS, delta=delta))
