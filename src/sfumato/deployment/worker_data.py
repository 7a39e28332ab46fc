"""A worker's own rows in groups, and the work on them: what it trains and clips for one of its groups."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from sfumato.data.dataset import Dataset
from sfumato.deployment.group_terms import GroupTerms
from sfumato.deployment.local_data import OwnRows
from sfumato.deployment.messages import Model, RoundPosition
from sfumato.engine.base import LocalTask
from sfumato.engine.tiles import intra_op_threads
from sfumato.learning.batches import BatchPlan
from sfumato.learning.norms import row_norms
from sfumato.mechanisms.clipping import FlatClip
from sfumato.protocols.groups.operations import ROUNDING
from sfumato.protocols.tree.local_work import local_sgd


def mean_of_groups(models: Tensor) -> Tensor:
    """The mean ``[P]`` of the models of a worker's groups ``[k, P]``, float32."""
    return torch.full((len(models),), 1 / len(models)) @ models


class WorkerData(OwnRows):
    """The rows of one worker of groups and its training, by the engine of `run`.

    Args:
        worker: its number.
        terms: of the run.
        data: a data set whose training rows are the worker's own.

    Raises:
        DataError: see `OwnRows`.
        SpecError: see `OwnRows`.
    """

    def __init__(self, worker: int, terms: GroupTerms, data: Dataset) -> None:
        super().__init__(worker, terms, data)
        self._terms = terms
        self._engine = self._made_engine()

    def starts(self, number: int, models: npt.NDArray[np.float32]) -> npt.NDArray[np.float32]:
        """The models that a worker starts round ``number`` from, one for each of its groups ``[k, P]``.

        ``models``: of these groups ``[k, P]``; where groups merge in this round, all start from their mean.
        """
        if not self._terms.merges_in(number):
            return models
        mean: npt.NDArray[np.float32] = mean_of_groups(torch.from_numpy(models)).numpy()
        return np.repeat(mean[None], len(models), axis=0)

    def message(self, position: RoundPosition, start: Model, batches: BatchPlan) -> npt.NDArray[np.float32]:
        """The clipped update ``[P]`` of the worker for one group, before rounding and noise. Private.

        It is zeros, and not an error, where the update is not finite or longer than declared: an error would
        tell of the data.

        Args:
            position: of the group's release.
            start: the model to start from ``[P]``.
            batches: of this one training.
        """
        plan, (number, group) = self._terms.plan, position
        if self.size == 0:
            return np.zeros(self._terms.parameters, np.float32)
        began = plan.interval_start(number) if plan.by_interval else number
        bound = float(plan.bounds[group])
        with intra_op_threads(1):
            task, only = LocalTask(local_sgd(plan.spec, began)), torch.zeros(1, dtype=torch.int64)
            (chunk,) = self._engine.train(task, torch.from_numpy(start)[None], only, batches)
            update = FlatClip(bound).clip_(chunk.updates).vectors
            if not bool((row_norms(update) <= bound * (1 + ROUNDING)).all()):
                update.zero_()
        found: npt.NDArray[np.float32] = update[0].numpy()
        return found
