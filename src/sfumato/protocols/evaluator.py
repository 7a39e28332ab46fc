"""The test set, and how models are scored on it: in fixed parts, divided among ranks and their threads."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt
from torch import Tensor, nn

from sfumato.data.partition import Partition
from sfumato.distributed.division import share_out
from sfumato.distributed.ranks import ALONE, Ranks
from sfumato.learning.evaluation import Score, Scored, Scoring, apply_model, parts_of, score_of
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
        threads: of this rank, to divide the work among.
        ranks: which divide the work too: each must score the same models in the same order.
    """

    model: nn.Module
    features: Slices
    targets: Slices
    scoring: Scoring
    classes: int
    train_labels: npt.NDArray[np.integer[Any]]
    partition: Partition
    threads: int = 1
    ranks: Ranks = ALONE

    def score(self, model: Tensor) -> Score:
        """Score one model, a flat vector ``[P]``, on the whole test set; every rank (process) gets the same
        result.
        """
        parts = share_out(
            parts_of(len(self.targets)),
            lambda part: self._scored(model, part),
            ranks=self.ranks,
            threads=self.threads,
        )
        return score_of(parts, self.targets[:], self.scoring)

    def score_personalised(self, models: Tensor, membership: MembershipClasses) -> PersonalScores:
        """Score the models of all membership classes, as means over workers.

        Scores are on the whole test set, and on the distribution of labels that each worker holds (NaN for
        data without labels).

        Args:
            models: ``[classes, P]``.
            membership: each worker's class: the workers in the same groups share a model.
        """
        if self.scoring.task != "classification":
            return mean_scores(self._score_each(models), membership)
        labels = self.targets[:]
        found = evaluate_personalised(
            self.model,
            models,
            membership,
            self._shares,
            self.features,
            labels,
            ranks=self.ranks,
            threads=self.threads,
        )
        if not self.scoring.measures:
            return found
        return replace(found, measures=mean_scores(self._score_each(models), membership).measures)

    def _scored(self, model: Tensor, part: slice) -> Scored:
        """Apply ``model`` ``[P]`` to the rows ``part`` of the test set, and measure its outputs there."""
        return apply_model(self.model, model, self.features[part], self.targets[part], self.scoring)

    def _score_each(self, models: Tensor) -> list[Score]:
        """Score every model of ``models`` ``[C, P]``, in order; each model by one thread of one rank."""

        def score(model: Tensor) -> Score:
            parts = [self._scored(model, part) for part in parts_of(len(self.targets))]
            return score_of(parts, self.targets[:], self.scoring)

        return share_out(models.unbind(), score, ranks=self.ranks, threads=self.threads)

    @cached_property
    def _shares(self) -> FloatArray:
        """Share of each label in each worker's examples, ``[workers, labels]``."""
        return label_shares(self.partition, self.train_labels, self.classes)
