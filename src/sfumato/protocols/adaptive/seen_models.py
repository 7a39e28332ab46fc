"""The released models of the last rounds, which the smoothness is estimated from."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Self

import numpy as np
import torch
from torch import Tensor

from sfumato.adaptive_control.smoothness_interval import WINDOW, Moves

_CHUNK = 1 << 18  # coordinates that are turned into double precision at a time


@dataclass(frozen=True, eq=False)
class SeenModels:
    """Models as broadcast, noise included: what is computed from them costs no privacy.

    Attributes:
        models: before and after each of the last rounds, ``[rounds + 1, M]``.
        lengths: step size times local steps of each of these rounds.
        variances: of the known noise in a coordinate of each round's mean gradient.
    """

    models: Tensor
    lengths: tuple[float, ...]
    variances: tuple[float, ...]

    @classmethod
    def start(cls, model: Tensor) -> Self:
        """The state before the first round, with the initial ``model`` ``[M]`` alone."""
        return cls(model[None].clone(), (), ())

    def after(self, model: Tensor, *, length: float, noise_std: float) -> Self:
        """A copy with the model of one more round; the oldest are dropped.

        Args:
            model: at the end of that round, ``[M]``.
            length: step size times local steps of that round.
            noise_std: standard deviation, a coordinate, of the noise that the round added to ``model``.
        """
        kept = torch.cat([self.models, model[None]])[-WINDOW - 2 :]
        rounds = len(kept) - 1
        lengths = (*self.lengths, length)[-rounds:]
        return type(self)(kept, lengths, (*self.variances, (noise_std / length) ** 2)[-rounds:])

    def moves(self) -> Moves:
        """What the smoothness is estimated from: products of the model's changes, ``[rounds, rounds]``.

        Returns:
            The products; for each round step size times local steps, and the variance of the known noise in a
            coordinate of its mean gradient; and M.
        """
        rounds = len(self.lengths)
        products = np.zeros((rounds, rounds))
        for start in range(0, self.models.shape[1], _CHUNK):
            moves = self.models[:, start : start + _CHUNK].double().diff(dim=0)
            products += (moves @ moves.T).cpu().numpy()
        return Moves(products, np.array(self.lengths), np.array(self.variances), self.models.shape[1])
