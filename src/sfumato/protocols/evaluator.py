"""The test set, and how models are scored on it: in fixed parts, side by side on worker threads."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt
from torch import Tensor, nn

from sfumato.data.partition import Partition
from sfumato.learning.evaluation import Score, Scored, Scoring, apply_model, over_parts, score_of
from sfumato.learning.examples import Slices
from sfumato.network.groups import MembershipClasses
from sfumato.protocols.personalised_evaluation import (
    FloatArray,
    PersonalScores,
    evaluate_personalised,
    label_shares,
    mean_scores,
)


@dataclass(frozen=True, eq=False)
class Evaluator:
    """What models are scored on.

    Attributes:
        model: the architecture; its own parameters are neither read nor changed.
        features: ``[T, ...]``, the test set; every part of it comes on the models' device.
        targets: labels int64 ``[T]``, or what the loss takes ``[T, ...]``.
        scoring: how outputs are scored.
        classes: number of labels.
        train_labels: of all training rows.
        partition: who holds which of them.
        threads: to share the work among.
    """

    model: nn.Module
    features: Slices
    targets: Slices
    scoring: Scoring
    classes: int
    train_labels: npt.NDArray[np.integer[Any]]
    partition: Partition
    threads: int = 1

    def score(self, model: Tensor) -> Score:
        """Score one model ``[P]`` on the test set."""

        def scored(part: slice) -> Scored:
            return apply_model(self.model, model, self.features[part], self.targets[part], self.scoring)

        return score_of(over_parts(len(self.targets), scored, threads=self.threads), self.scoring)

    def score_personalised(self, models: Tensor, membership: MembershipClasses) -> PersonalScores:
        """Score the models of all membership classes ``[classes, P]``: globally, and on each worker's own."""
        if self.scoring.task != "classification":
            return mean_scores([self.score(one) for one in models], membership)
        labels = self.targets[:]
        found = evaluate_personalised(
            self.model, models, membership, self._shares, self.features, labels, threads=self.threads
        )
        if not self.scoring.measures:
            return found
        return replace(found, measures=mean_scores([self.score(one) for one in models], membership).measures)

    @cached_property
    def _shares(self) -> FloatArray:
        return label_shares(self.partition, self.train_labels, self.classes)
