"""An observer's observations of one device: for each aggregation, a model before and a model after.

The finest vector that contains the device's message is used: the message itself, otherwise the lowest sum or
average on the device's path. Between two observations the observer knows the last model broadcast on that
path.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np
import numpy.typing as npt
from torch import Tensor

from sfumato.attacks.views import RecordedView, RoundVectors, replay_rounds
from sfumato.privacy.observers import Party
from sfumato.privacy.release import Exposure
from sfumato.schedule.base import Plan
from sfumato.schedule.participation import draw_participants
from sfumato.schedule.tree import TreePlan
from sfumato.spec.document import Spec


@dataclass(frozen=True, eq=False)
class Observation:
    """One observation of one device's update.

    Attributes:
        unit: the device.
        round: number of the round.
        first_step: the first local step that the update contains, from 0.
        last_step: one past the last local step.
        start: the model from which the observer assumes the device to have started, ``[M]``.
        end: the observed model, ``[M]``.
        share: weight of the device's clipped update in ``end - start``.
        other_devices: number of other devices in it, each with about the same weight.
        noise_std: standard deviation of its noise per coordinate, as declared.
    """

    unit: int
    round: int
    first_step: int
    last_step: int
    start: Tensor
    end: Tensor
    share: float
    other_devices: float
    noise_std: float


class AttackedRun(Protocol):
    """A run as attacks on a recorded view see it: who is near, and what was seen of whom."""

    @property
    def plan(self) -> Plan:
        """The resolved plan of the attacked run."""

    def spec_of(self, number: int) -> Spec:
        """The spec by which devices trained in round ``number``, with that round's settings by control."""

    def nearby_devices(self, coalition: Sequence[Party]) -> npt.NDArray[np.bool_]:
        """The devices nearest to ``coalition`` in the network, its members included, a mask ``[devices]``."""

    def observations(
        self,
        view: RecordedView,
        initial: Tensor,
        units: Sequence[int],
        coalition: Sequence[Party],
        *,
        rounds: int,
    ) -> dict[int, tuple[Observation, ...]]:
        """What ``coalition`` observed of each of ``units``, by number of the device, in order of time.

        Args:
            view: the recorded view.
            initial: the model that training started from ``[M]``; it is public.
            units: devices, without members of the coalition.
            coalition: the colluding observers.
            rounds: the most rounds for each device (in groups: for each of its groups), evenly over those in
                which it took part; over all where the coalition does not see who does.
        """


@dataclass(frozen=True, eq=False)
class AttackedTree:
    """A run over a tree; see `AttackedRun`.

    Attributes:
        plan: of the run.
    """

    plan: TreePlan

    def spec_of(self, number: int) -> Spec:
        """The spec by which devices trained in round ``number``, with that round's settings by control."""
        return self.plan.at(number).spec

    def nearby_devices(self, coalition: Sequence[Party]) -> npt.NDArray[np.bool_]:
        """Mask ``[devices]`` of those below a member of ``coalition``, or in a member device's leaf."""
        tree = self.plan.tree
        found = np.zeros(tree.device_count, dtype=np.bool_)
        for party in coalition:
            if party.kind == "public":
                found[:] = True
                continue
            tier, index = party.tier, party.index
            if party.kind == "device":  # nearest to those under its own leaf
                tier, index = tree.depth - 1, tree.leaf_of(party.index)
            found |= (tree.paths[:, tier] == index).repeat(tree.devices)
        return found

    def observations(
        self,
        view: RecordedView,
        initial: Tensor,
        units: Sequence[int],
        coalition: Sequence[Party],
        *,
        rounds: int,
    ) -> dict[int, tuple[Observation, ...]]:
        """What ``coalition`` observed of each of ``units``, by number of the device, in order of time.

        Args:
            view: the recorded view.
            initial: the model that training started from ``[M]``; it is public.
            units: devices, without members of the coalition.
            coalition: the colluding observers.
            rounds: the most rounds for each device, evenly over those in which it took part; over all where
                the coalition does not see who does.
        """
        plan, members = self.plan, tuple(coalition)
        exposures = {unit: plan.releases.exposures(unit, members)[0] for unit in units}
        present = {number: set(draw_participants(plan.at(number), number).tolist()) for number in view.rounds}
        wanted = {
            # an observer that does not see the draw cannot leave out rounds without the device
            unit: spread_evenly(
                [n for n in view.rounds if exposures[unit].draw_hidden or unit in present[n]], rounds
            )
            for unit in units
        }
        found: dict[int, list[Observation]] = {unit: [] for unit in units}
        for number, model, vectors in replay_rounds(plan, view, initial):
            played = plan.at(number)
            for unit in units:
                if number in wanted[unit]:
                    exposed = (
                        exposures[unit] if played is plan else played.releases.exposures(unit, members)[0]
                    )
                    found[unit] += _observations_of_round(played, vectors, model, number, unit, exposed)
        return {unit: tuple(observations) for unit, observations in found.items()}


def spread_evenly(numbers: Sequence[int], most: int) -> frozenset[int]:
    """At most ``most`` (1 or more) of ``numbers``, evenly spaced, the first and the last among them.

    With ``most`` 1 and several numbers the first alone.
    """
    if len(numbers) <= most:
        return frozenset(numbers)
    return frozenset(numbers[at] for at in np.linspace(0, len(numbers) - 1, most).round().astype(int))


def _observations_of_round(
    plan: TreePlan, vectors: RoundVectors, model: Tensor, number: int, unit: int, exposure: Exposure
) -> Iterator[Observation]:
    """Yield the observations of device ``unit`` in round ``number``, which began with ``model`` ``[M]``.

    ``exposure``: its declared releases, for the noise.
    """
    tree, leaf = plan.tree, plan.tree.leaf_of(unit)
    path = [int(node) for node in tree.paths[leaf]]
    known, since, variance = model, 0, 0.0
    for place, index in enumerate(plan.releases.steps_of(leaf)):
        aggregation = plan.aggregations[index]
        variance += exposure.releases[place].variance * plan.message_scale(number) ** 2
        found = _finest_vector(vectors, index, aggregation.tier, tree.depth, path, unit)
        if found is not None:
            tier, vector = found
            share, beside = _weight_and_others(plan, unit, leaf, path, tier)
            end = known + vector if tier == tree.depth else vector
            yield Observation(
                unit, number, since, aggregation.step, known, end, share, beside, math.sqrt(variance)
            )
        told = vectors.get((index, "broadcast", aggregation.tier, path[aggregation.tier]))
        if told is not None:
            known, since, variance = told, aggregation.step, 0.0


def _finest_vector(
    vectors: RoundVectors, index: int, top: int, depth: int, path: Sequence[int], unit: int
) -> tuple[int, Tensor] | None:
    """The lowest tier with a received vector that contains the unit's message, and that vector ``[M]``.

    ``None`` without any.

    Args:
        index: of the aggregation.
        top: aggregating tier.
        depth: tier of the devices.
        path: the nodes above the unit, by tier.
    """
    single = vectors.get((index, "sent", depth, unit))
    if single is not None:
        return depth, single
    for tier in range(depth - 1, top - 1, -1):
        for kind in ("received", "sent", "broadcast"):
            vector = vectors.get((index, kind, tier, path[tier]))
            if vector is not None:
                return tier, vector
    return None


def _weight_and_others(
    plan: TreePlan, unit: int, leaf: int, path: Sequence[int], tier: int
) -> tuple[float, float]:
    """Weight of the unit's update in the vector at ``tier``, and the expected number of others in it.

    ``leaf``: the unit's; ``path``: the nodes above it, by tier.
    """
    tree, own = plan.tree, float(plan.weights_of(np.array([unit]))[0])
    if tier == tree.depth:
        return own, 0.0
    beneath = tree.paths[:, tier] == path[tier]
    return own * plan.releases.unit_weight(tree.paths[leaf], tier), max(
        0.0, float(plan.participants.drawn[beneath].sum()) - 1.0
    )
