"""The test set, and how models are scored on it: its parts, or the models, side by side on worker threads."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from copy import deepcopy
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor, nn

from sfumato.data.partition import Partition
from sfumato.learning.evaluation import Score, evaluate
from sfumato.network.groups import MembershipClasses
from sfumato.protocols.personalised_evaluation import (
    FloatArray,
    PersonalScores,
    evaluate_personalised,
    label_shares,
)

_BATCH = 1000


@dataclass(frozen=True, eq=False)
class Evaluator:
    """What models are scored on.

    Attributes:
        model: the architecture; its own parameters are neither read nor changed.
        features: float32 ``[T, ...]``, the test set, on the models' device.
        labels: int64 ``[T]``.
        classes: number of labels.
        train_labels: int64, of all training rows.
        partition: who holds which of them.
        threads: to share the work among.
    """

    model: nn.Module
    features: Tensor
    labels: Tensor
    classes: int
    train_labels: npt.NDArray[np.int64]
    partition: Partition
    threads: int = 1

    def score(self, model: Tensor) -> Score:
        """Score one model ``[P]`` on the test set."""
        count = len(self.labels)
        parts = min(self.threads, -(-count // _BATCH))
        ends = [count * part // parts for part in range(parts + 1)]

        def score(part: int) -> Score:
            some = slice(ends[part], ends[part + 1])
            # a copy each: scoring swaps the module's parameters, which threads cannot share
            own = deepcopy(self.model).to(self.features.device)
            return evaluate(own, model, self.features[some], self.labels[some], batch_size=_BATCH)

        if parts == 1:
            scores = [score(0)]
        else:
            with ThreadPoolExecutor(parts) as pool:
                scores = list(pool.map(score, range(parts)))
        sizes = np.diff(ends)
        right = sum(round(one.accuracy * size) for one, size in zip(scores, sizes, strict=True))
        loss = sum(one.loss * float(size) for one, size in zip(scores, sizes, strict=True))
        return Score(right / count, loss / count)

    def score_personalised(self, models: Tensor, membership: MembershipClasses) -> PersonalScores:
        """Score the models of all membership classes ``[classes, P]``: globally, and on each worker's own."""
        module = deepcopy(self.model).to(torch.device(self.features.device))
        return evaluate_personalised(
            module, models, membership, self._shares, self.features, self.labels, threads=self.threads
        )

    @cached_property
    def _shares(self) -> FloatArray:
        return label_shares(self.partition, self.train_labels, self.classes)
