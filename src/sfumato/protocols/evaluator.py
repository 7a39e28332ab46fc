"""The test set, and how models are scored on it: in fixed parts, divided among ranks and their threads."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt
from torch import Tensor, nn

from sfumato.distributed.division import share_out
from sfumato.distributed.ranks import ALONE, Ranks
from sfumato.learning.evaluation import Score, Scored, Scoring, apply_model, score_of, test_set_parts
from sfumato.learning.examples import Slices
from sfumato.network.groups import MembershipClasses
from sfumato.protocols.over_devices import TrainingExamples, accuracies_over_devices, train_loss
from sfumato.protocols.personalised_evaluation import (
    FloatArray,
    PersonalScores,
    evaluate_personalised,
    label_shares,
    mean_scores,
    on_own_labels,
)
from sfumato.spec.model import Metric


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
        training: what devices hold.
        over_devices: names of the measures over devices that are asked for.
        threads: of this rank, to divide the work among.
        ranks: which divide the work too: each must score the same models in the same order.
    """

    model: nn.Module
    features: Slices
    targets: Slices
    scoring: Scoring
    classes: int
    train_labels: npt.NDArray[np.integer[Any]]
    training: TrainingExamples
    over_devices: Sequence[Metric] = ()
    threads: int = 1
    ranks: Ranks = ALONE

    def score(self, model: Tensor) -> Score:
        """Score one model, a flat vector ``[P]``, on the whole test set; the same result on every rank."""
        scoring = replace(self.scoring, labels=self.classes) if self._asks_for_accuracies else self.scoring
        parts = share_out(
            test_set_parts(len(self.targets)),
            lambda part: self._scored(model, part, scoring),
            ranks=self.ranks,
            threads=self.threads,
        )
        found = score_of(parts, self.targets[:], scoring)
        if not self.over_devices:
            return found
        model_of = np.zeros(self.training.partition.devices, np.int64)
        accuracies = None
        if self._asks_for_accuracies:
            right = sum(part.right_of_label for part in parts if part.right_of_label is not None)
            by_label = np.atleast_2d(right / np.maximum(self._tested, 1))
            accuracies = on_own_labels(by_label, self._shares, self._tested > 0, model_of)
        more = self._measured(model[None], model_of, accuracies)
        return replace(found, measures={**found.measures, **more})

    def score_personalised(self, models: Tensor, membership: MembershipClasses) -> PersonalScores:
        """Score the models of all membership classes, as means over workers.

        Scores are on the whole test set, and on the distribution of labels that each worker holds (NaN for
        data without labels).

        Args:
            models: ``[classes, P]``.
            membership: each worker's class: the workers in the same groups share a model.
        """
        if self.scoring.task != "classification":
            scores = mean_scores(self._score_each(models), membership)
            more = self._measured(models, membership.class_of, None)
            return replace(scores, measures={**scores.measures, **more})
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
        measures = self._measured(models, membership.class_of, found.personal_accuracy)
        if self.scoring.measures:
            measures |= mean_scores(self._score_each(models), membership).measures
        return replace(found, measures=measures)

    def _measured(
        self, models: Tensor, model_of: npt.NDArray[np.int64], accuracies: FloatArray | None
    ) -> dict[str, float]:
        """The measures over devices that the spec asks for, by name.

        Args:
            models: ``[C, P]``.
            model_of: the row of ``models`` for every device, ``[N]``.
            accuracies: accuracy of every device's model on its own labels, 0 to 1, ``[N]``; ``None`` where
                not known.
        """
        found: dict[str, float] = {}
        if accuracies is not None and self._asks_for_accuracies:
            found |= accuracies_over_devices(accuracies)
        if "train_loss" in self.over_devices:
            found["train_loss"] = train_loss(
                self.model,
                models,
                model_of,
                self.training,
                self.scoring.loss,
                ranks=self.ranks,
                threads=self.threads,
            )
        return {name: found[name] for name in self.over_devices}

    def _scored(self, model: Tensor, part: slice, scoring: Scoring) -> Scored:
        """Apply ``model`` ``[P]`` to the rows ``part`` of the test set, and measure its outputs there."""
        return apply_model(self.model, model, self.features[part], self.targets[part], scoring)

    def _score_each(self, models: Tensor) -> list[Score]:
        """Score every model of ``models`` ``[C, P]``, in order; each model by one thread of one rank."""

        def score(model: Tensor) -> Score:
            parts = [self._scored(model, part, self.scoring) for part in test_set_parts(len(self.targets))]
            return score_of(parts, self.targets[:], self.scoring)

        return share_out(models.unbind(), score, ranks=self.ranks, threads=self.threads)

    @property
    def _asks_for_accuracies(self) -> bool:
        """Whether a measure over devices needs the accuracy of each of them."""
        return any(name.startswith("accuracy_") for name in self.over_devices)

    @cached_property
    def _tested(self) -> FloatArray:
        """Test examples of each label, ``[labels]``."""
        labels = self.targets[:].cpu().numpy()
        return np.bincount(labels, minlength=self.classes).astype(np.float64)

    @cached_property
    def _shares(self) -> FloatArray:
        """Share of each label in each worker's examples, ``[workers, labels]``."""
        return label_shares(self.training.partition, self.train_labels, self.classes)
