"""A device's own rows, and the work on them: what it trains, clips and sends before noise."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor
from torch.utils.data import TensorDataset

from sfumato.data.dataset import Dataset
from sfumato.data.features import read_all
from sfumato.deployment.common_terms import CommonTerms
from sfumato.deployment.messages import IntArray, Model, RoundPosition
from sfumato.deployment.own_loop import LoopTraining, OwnLoop
from sfumato.deployment.terms import DeploymentTerms
from sfumato.engine.base import Engine, EngineSettings
from sfumato.engine.registry import engine_of
from sfumato.engine.tiles import intra_op_threads
from sfumato.errors import DataError, EnvelopeError, SpecError
from sfumato.learning.batches import BatchPlan
from sfumato.learning.dropout import masks_of
from sfumato.learning.parameters import ParameterLayout
from sfumato.protocols.tree.local_work import batches_before, keep_within_, local_task
from sfumato.simulation.training_inputs import checked_loss, initial_model


class OwnRows:
    """The rows of one device, and the model that it trains.

    Where persons are the unit the rows of each stand together, persons in the order of their first rows.

    Attributes:
        size: number of rows.
        persons: where each person's rows begin, and where the last one's end ``[persons + 1]``; ``None``:
            rows are drawn, and not persons.

    Args:
        device: its number.
        terms: of the run.
        data: a data set whose training rows are the device's own.

    Raises:
        DataError: the number of rows, or of persons, is not the one that the spec declares; or it is not told
            whose the rows are.
        SpecError: the model is not the one of the terms, or has dropout layers.
    """

    def __init__(self, device: int, terms: CommonTerms, data: Dataset) -> None:
        plan, self.size = terms.plan, len(data.train_labels)
        self.persons: IntArray | None = None
        if terms.protects_persons:
            data, self.persons = _by_person(data, terms.name(device))
        held = self.size if self.persons is None else len(self.persons) - 1
        if (declared := int(terms.examples[device])) != held:
            units = "persons" if terms.protects_persons else "examples"
            has = f"{terms.name(device)} holds {held:,} {units}"
            raise DataError(f"{has}; the spec was accounted for with {declared:,}")
        self._model = initial_model(plan.spec, data)
        if masks_of(self._model) is not None:
            raise SpecError(
                "model.kind", plan.spec.model.kind, "must be without dropout: it is not deployed yet"
            )
        length = ParameterLayout.of(self._model).total
        if length != terms.parameters:
            raise SpecError("model.kind", plan.spec.model.kind, f"must have {terms.parameters:,} parameters")
        features = torch.from_numpy(data.train_features)
        if plan.spec.data.vocabulary is None:
            features = features.float()  # whole numbers are token ids only where the spec has tokens
        elif features.is_floating_point():
            raise DataError(f"features of {terms.name(device)} must be token ids, which are whole numbers")
        self._features, self._targets = features, torch.from_numpy(data.targets_for(plan.spec.data.task)[0])
        self._loss = checked_loss(plan.spec, self._model, features, self._targets)

    def _made_engine(self) -> Engine:
        """Sfumato's engine, which trains on these rows."""
        settings = EngineSettings.default()
        return engine_of(self._model, self._features, self._targets, settings, self._loss)


def _by_person(data: Dataset, name: str) -> tuple[Dataset, IntArray]:
    """Sort training rows so that those of each person stand together, in the order of their first rows.

    Args:
        data: a data set whose training rows are those of one device.
        name: of the device.

    Returns:
        The data, and int64 ``[persons + 1]``: where each person's rows begin, and where the last one's end.

    Raises:
        DataError: the data do not say whose the rows are.
    """
    if data.train_persons is None:
        said = f"{name}: the file of its rows must have persons, whose row each is"
        raise DataError(f"{said}: the spec protects persons")
    _, first, person, counts = np.unique(
        data.train_persons, return_index=True, return_inverse=True, return_counts=True
    )
    order = np.argsort(first[person], kind="stable")
    together = replace(
        data,
        train_features=read_all(data.train_features)[order],
        train_labels=data.train_labels[order],
        train_targets=None if data.train_targets is None else data.train_targets[order],
        train_persons=data.train_persons[order],
    )
    begins = np.concatenate([[0], np.cumsum(counts[np.argsort(first)])])
    return together, begins.astype(np.int64)


class LocalData(OwnRows):
    """The rows of one device of a tree and its training, by the engine of `run` or by a loop of its owner.

    Args:
        device: its number.
        terms: of the run.
        data: a data set whose training rows are the device's own.
        loop: of its owner; ``None``: Sfumato's engine trains.
        say: called with a sentence when the loop fails.

    Raises:
        DataError: see `OwnRows`.
        SpecError: see `OwnRows`; or the spec does not allow a loop, or the loop fails on made-up rows.
    """

    def __init__(
        self,
        device: int,
        terms: DeploymentTerms,
        data: Dataset,
        loop: OwnLoop | None = None,
        say: Callable[[str], object] = lambda sentence: None,
    ) -> None:
        super().__init__(device, terms, data)
        self._terms = terms
        self._device = np.array([device], dtype=np.int64)
        self._engine: Engine | None = None
        self._own: LoopTraining | None = None
        if loop is None:
            self._engine = self._made_engine()
        else:
            rows = TensorDataset(self._features, self._targets)
            self._own = LoopTraining(loop, device, terms, self._model, rows, data.facts.outputs, say)

    def message(self, position: RoundPosition, model: Model, batches: BatchPlan) -> npt.NDArray[np.float32]:
        """The message ``[M]`` before rounding and noise: the clipped, weighted update of one device. Private.

        It is zeros, and not an error, where the update is not finite or longer than declared: an error would
        tell of the data.

        Args:
            position: of the aggregation.
            model: to start from ``[M]``.
            batches: of the whole round; a loop of the owner's does not use them.
        """
        if self.size == 0:
            return np.zeros(self._terms.parameters, np.float32)
        plan, (number, index) = self._terms.plan, position
        own = None if self._own is None else self._own.update(model, position)
        with intra_op_threads(1):
            update = self._trained(model, position, batches) if own is None else own
            if plan.participants.weights is not None:
                update.mul_(float(plan.weights_of(self._device)[0]))
            bounds = plan.bounds_of(index, self._device) * plan.message_scale(number)
            try:
                keep_within_(plan, update, bounds, number, index)
            except EnvelopeError:  # not finite, say: whether it was would tell of the data
                update.zero_()
        found: npt.NDArray[np.float32] = update[0].numpy()
        return found

    def _trained(self, model: Model, position: RoundPosition, batches: BatchPlan) -> Tensor:
        """The clipped update ``[1, M]`` by Sfumato's engine, before weight, rounding and noise."""
        plan, piece, own_leaf = self._terms.plan, batches, np.zeros(1, np.int64)
        if len(plan.aggregations) > 1:  # with epochs, which make one aggregation, steps are not counted
            piece = batches_before(batches, plan.aggregations[position.aggregation], own_leaf)
        start, together = torch.from_numpy(model)[None], torch.from_numpy(own_leaf)
        assert self._engine is not None  # without a loop of the owner's there is one
        (chunk,) = self._engine.train(local_task(plan.spec, position.round), start, together, piece)
        return chunk.updates
