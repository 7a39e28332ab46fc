"""The inputs of a training: data, their partition over devices, and the initial model."""

from __future__ import annotations

from collections.abc import Mapping
from copy import deepcopy
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from sfumato.data.dataset import Dataset
from sfumato.data.dataset_sizes import request_of
from sfumato.data.datasets import load_dataset
from sfumato.data.partition import Partition, partition, partition_of_persons
from sfumato.data.sites import site_places
from sfumato.data.zones import regrouped
from sfumato.errors import SpecError
from sfumato.learning.losses import Loss, check_loss, loss_of
from sfumato.learning.models import build_model
from sfumato.mechanisms.registry import mechanism_of
from sfumato.schedule.base import Plan
from sfumato.simulation.input_hashes import check_inputs, hash_inputs
from sfumato.spec.document import Spec


@dataclass(frozen=True)
class TrainingInputs:
    """The inputs of a training.

    Attributes:
        data: the loaded data set.
        partition: training rows of every device.
        model: the initial model.
        hashes: of the inputs, see `hash_inputs`.
    """

    data: Dataset
    partition: Partition
    model: nn.Module
    hashes: Mapping[str, str]

    @classmethod
    def of(cls, plan: Plan) -> TrainingInputs:
        """Load the data of ``plan``, divide their rows over devices, and build the initial model.

        Raises:
            DataError: the plan is of a run with other data or another model.
            SpecError: the partition cannot be kept, or the model, the loss or the noise mechanism cannot be
                used.
        """
        spec = plan.spec
        mechanism_of(spec)  # made here, so that its errors are found before training
        data = load_data(plan)
        parts = divide_rows(plan, data)
        zones = getattr(spec.topology, "zones", None)
        if zones is not None:
            parts = regrouped(parts, zones, plan.devices_per_place, data.train_labels, seed=spec.seed)
        model = initial_model(spec, data)
        hashes = hash_inputs(spec, data)
        check_inputs(spec.hashes, hashes, f"the run {spec.name}")
        return cls(data, parts, model, hashes)


def divide_rows(plan: Plan, data: Dataset) -> Partition:
    """The training rows of ``data`` that each device holds, as ``data.partition`` of the spec says.

    Devices are in the order of `Plan.devices_per_place`, before they are regrouped into zones.

    Raises:
        SpecError: the partition cannot be kept, or sites do not match.
    """
    spec = plan.spec
    sites = site_places(spec, data.facts, plan.devices_per_place)
    devices = plan.devices_per_place if sites is None else sites.devices
    groups, rule, seed = data.train_groups, spec.data.partition, spec.seed
    of_site = None if sites is None or data.train_sites is None else sites.of_site[data.train_sites]
    if data.train_persons is not None:
        return partition_of_persons(
            data.train_persons, devices, rule, seed=seed, groups=groups, sites=of_site
        )
    return partition(data.train_labels, devices, rule, seed=seed, groups=groups, sites=of_site)


def load_data(plan: Plan) -> Dataset:
    """Load the data set of ``plan``; every call gives the same one.

    Raises:
        SpecError: an option of the data section does not fit the source, or all rows of a table to train on
            have the same label.
        MissingExtraError: the source needs an extra that is not installed.
        DataError: the data are absent or damaged.
    """
    data = plan.spec.data
    found = load_dataset(data.source, request_of(data, plan.parties.device_count, seed=plan.spec.seed))
    labels = found.train_labels
    classes = data.task == "classification" and data.label_column is not None
    if classes and len(labels) > 1 and bool((labels == labels[0]).all()):
        allowed = "has one value in all rows to train on: there is nothing to predict; name another column"
        raise SpecError("data.label_column", data.label_column, allowed)
    return found


def checked_loss(spec: Spec, model: nn.Module, features: Tensor, targets: Tensor) -> Loss:
    """The loss of ``spec``; a user's own is first tried on the outputs of ``model`` for a few examples.

    Args:
        spec: names the loss.
        model: to predict with.
        features: of a few examples, ``[n, ...]``.
        targets: of these, ``[n]`` or ``[n, ...]``.

    Raises:
        SpecError: it fails, or gives something else than one number an example.
    """
    loss = loss_of(spec.data.task, spec.training.loss)
    with torch.no_grad():
        check_loss(loss, deepcopy(model)(features), targets)
    return loss


def initial_model(spec: Spec, data: Dataset) -> nn.Module:
    """The initial model of ``spec`` for examples of ``data``; its parameters follow from the spec's seed.

    Raises:
        SpecError: the model cannot be built, or does not fit the examples; see `build_model`.
    """
    return build_model(
        spec.model.kind,
        shape=tuple(data.train_features.shape[1:]),
        classes=data.facts.outputs,
        seed=spec.seed,
        hidden=spec.model.hidden,
        bias=spec.model.bias,
        norm=spec.model.norm,
        trained=spec.model.trained,
        rank=spec.model.rank,
        vocabulary=spec.data.vocabulary,
        every_token=spec.data.task == "next-token",
    )
