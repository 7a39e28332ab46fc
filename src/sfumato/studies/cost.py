"""What a study costs: device steps, one local step of one device each, and multiples of the quickstart's.

A step of a larger model takes longer, so multiples compare studies of one model.
"""

from __future__ import annotations

import math
from functools import cache

from sfumato.data.dataset_sizes import dataset_facts
from sfumato.errors import DataError
from sfumato.network.tree import from_spec
from sfumato.schedule.resolve.groups import build_groups
from sfumato.spec.base import numbers_in
from sfumato.spec.document import Spec
from sfumato.spec.load import load_spec
from sfumato.spec.topology import GroupTopology, StarTopology
from sfumato.spec.training import FixedParticipation, PoissonParticipation
from sfumato.studies.grids import StudyPlan
from sfumato.sweeps.grid import Point, grid
from sfumato.sweeps.request import SweepRequest

_COSTLY = ("data", "topology", "training")
_FREE = ("training.learning_rate", "training.server", "training.merge_every")
"""Sections that decide the number of steps, and keys in them that do not."""


def device_steps(spec: Spec) -> float:
    """Local steps of one training, added up over devices; the expectation where participation is drawn.

    A worker of several groups counts once in each of them.

    Raises:
        DataError: steps follow from the data's size, and the set is neither tabulated nor on this machine.
    """
    training = spec.training
    devices, share = _devices(spec), _share(spec)
    steps: float = training.local_steps or 0
    if training.local_epochs:
        examples = dataset_facts(spec.data, devices).train_examples / devices
        batch = examples if training.batch_size == "all" else training.batch_size
        steps = training.local_epochs * math.ceil(examples / batch)
    return training.rounds * devices * share * steps


def request_steps(request: SweepRequest) -> float:
    """Device steps of all runs of a sweep; 0 for one that only accounts.

    Raises:
        DataError: as of `device_steps`.
    """
    return 0.0 if request.account_only else sum(device_steps(task.spec) for task in request.tasks)


def study_steps(plan: StudyPlan) -> float:
    """Device steps of all runs of a study, by the specs of its first seed.

    NaN where they depend on data that are not on this machine.

    Raises:
        SpecError: a point has no valid spec.
    """
    try:
        return sum(_grid_steps(plan, name) for name, grid in plan.study.grids.items() if grid.trains)
    except DataError:
        return math.nan


def _grid_steps(plan: StudyPlan, name: str) -> float:
    """Device steps of all runs of the grid ``name``, which trains.

    One spec is read for all points that differ only in keys that leave the number of steps as it is.
    """
    section = plan.study.grids[name]
    points_by_cost: dict[str, list[Point]] = {}
    for point in grid(plan.sweep_axes(name)):
        settings = [
            (key, value)
            for key, value in point.values
            if key.startswith(_COSTLY) and not key.startswith(_FREE)
        ]
        points_by_cost.setdefault(repr(settings), []).append(point)
    return plan.seeds_of(name) * sum(
        len(points) * device_steps(load_spec(section.spec, (*plan.overrides(name), *points[0].overrides)))
        for points in points_by_cost.values()
    )


@cache
def quickstart_steps() -> float:
    """Device steps of one run of the built-in spec ``quickstart``, the unit of the costs of studies."""
    return device_steps(load_spec("quickstart"))


def _devices(spec: Spec) -> int:
    """The number of models that are trained in a round in which everybody takes part.

    One a device; over groups a worker has one in each of its groups.
    """
    if isinstance(spec.topology, GroupTopology):
        return int(build_groups(spec, spec.topology).sizes.sum())
    return from_spec(spec.topology).device_count


def _share(spec: Spec) -> float:
    """The share of devices that take part in a round, 0 to 1, expected.

    Where fixed counts differ from edge to edge their mean counts for each.
    """
    match spec.training.participation:
        case PoissonParticipation(rate=rate):
            return rate
        case FixedParticipation(count=count):
            drawn = numbers_in(count)
            is_star = isinstance(spec.topology, StarTopology)
            edges = 1 if is_star else _units(spec)
            return min(1.0, sum(drawn) / len(drawn) * edges / _devices(spec))
        case _:
            return 1.0


def _units(spec: Spec) -> int:
    """The number of edges (in a star 1), or of groups."""
    if isinstance(spec.topology, GroupTopology):
        return build_groups(spec, spec.topology).count
    return from_spec(spec.topology).leaf_count
