"""The audit harness of overlapping groups: the protocol's rounds with a target that sends given updates."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from sfumato.auditing.group_observer import GroupObserver
from sfumato.auditing.harness import ElectionOutcome, Observations, TargetDraw
from sfumato.auditing.linking_workers import LinkedTraining, Links, can_be_simulated, groups_with_dimension
from sfumato.auditing.tradeoff import TrialScores
from sfumato.auditing.worst_case_engine import WorstCaseEngine, one_example_per_device
from sfumato.errors import SpecError
from sfumato.privacy.observers import Party
from sfumato.privacy.sampling import Neighbours
from sfumato.protocols.groups.base import GroupedProtocol
from sfumato.protocols.message_hooks import ListenerGroup
from sfumato.random import Stream, generator
from sfumato.schedule.group_participation import GroupAssignments, draw_assignments
from sfumato.schedule.groups import HOP, GroupPlan
from sfumato.schedule.participation import threshold_of
from sfumato.spec.training import Server

IntArray = npt.NDArray[np.int64]


class GroupHarness:
    """Rounds, or intervals, of a plan over groups.

    Each begins with models of zero, because a party that receives a group's model knows the model before.
    All other workers send zeros, whatever they receive. So an observer that shares no group with the unit
    receives nothing that depends on it; what workers of several groups can pass on to it is played apart
    (`linking_workers`). Masters send plain averages on: an optimizer of theirs reads nothing else.

    Args:
        plan: the plan that is audited.
        unit: the target.
        coalition: the colluding observers.

    Raises:
        SpecError: the groups change, or compression.
    """

    def __init__(self, plan: GroupPlan, unit: int, coalition: Sequence[Party]) -> None:
        if plan.eras:
            allowed = "cannot be audited: rounds with other groups are not alike; audit the groups of one era"
            raise SpecError("topology.eras", None, allowed)
        if plan.spec.compression is not None:
            allowed = "cannot be audited: it makes the coordinates of a message dependent"
            raise SpecError("compression", None, allowed)
        self._plan = _with_plain_averaging(plan)
        self._unit = unit
        self._coalition = tuple(coalition)
        self._groups = plan.groups.groups_of(unit)
        self._length = plan.merge_every if plan.by_interval else 1
        self._summed = plan.spec.transport.get(HOP, "plain") != "plain"

    @property
    def rounds(self) -> int:
        """The number of rounds (or intervals between merging steps); each ends with a release."""
        return self._plan.release_count

    def outcomes(self, number: int, seed: int) -> tuple[ElectionOutcome, ...]:
        """The one outcome of round ``number``, with a draw for each of the unit's groups: nobody is elected.

        See `AuditHarness.outcomes`; ``seed`` is not used.
        """
        seers = {party.index for party in self._coalition if party.kind == "node"}
        if self._summed:
            workers = (party.index for party in self._coalition if party.kind == "device")
            seers |= {int(g) for worker in workers for g in self._plan.groups.groups_of(worker)}
        alone = not self._plan.cohort  # of a fixed number another worker takes the unit's place
        shares = self._plan.shares_drawn
        draws = tuple(TargetDraw(float(shares[g]), int(g) in seers, alone) for g in self._groups)
        return (ElectionOutcome(1.0, draws),)

    @property
    def exchangeable_devices(self) -> IntArray:
        """Numbers ``[n]`` of the workers in exactly the unit's groups, with it, but no coalition members."""
        classes = self._plan.groups.classes
        alike = np.flatnonzero(classes.class_of == classes.class_of[self._unit])
        return alike[~np.isin(alike, [party.index for party in self._coalition if party.kind == "device"])]

    def simulate(
        self, number: int, *, taking_part: bool, signs: Tensor, seed: int
    ) -> tuple[tuple[Observations, ...], ...]:
        """Simulate one round or interval in which the unit sends ``signs``, or does not take part.

        Args:
            number: of the round or interval, from 0.
            taking_part: whether the unit is among the participants of all its groups, or of none.
            signs: what it sends in each trial, in units of the largest message allowed, ``[M]``, or for each
                of its groups ``[groups, M]``; with clips of examples, in units of how far one can move it.
            seed: of everything random.

        Returns:
            For the one outcome and every group of the unit, the coalition's observations, ``[M]`` each.
        """
        plan = self._with_participation(
            groups_with_dimension(self._plan, signs.shape[-1]), number * self._length, taking_part, seed
        )
        return self._simulate(plan, number, np.array([self._unit]), signs[..., None, :])

    def simulate_canaries(
        self, number: int, units: IntArray, updates: Tensor, seed: int
    ) -> tuple[tuple[Observations, ...], ...]:
        """Simulate round or interval ``number`` in which ``units`` send canaries, if they are drawn.

        ``units``: ascending; ``updates``: what each sends, of norm at most 1, in units of the largest message
        (with clips of examples, of how far one can move it), ``[units, M]``. ``seed``: of everything random.
        Returns the coalition's observations by device and group.
        """
        plan = replace(self._plan, spec=self._plan.spec.model_copy(update={"seed": seed}))
        return self._simulate(plan, number, units, updates)

    def _simulate(
        self, plan: GroupPlan, number: int, units: IntArray, updates: Tensor
    ) -> tuple[tuple[Observations, ...], ...]:
        """The coalition's observations of each of ``units``, which send ``updates`` in round ``number``.

        These are ``[units, M]``, or for each of the unit's groups ``[groups, units, M]``. Where the gradients
        of examples are clipped, they are in units of what one example can move a message by.
        """
        began = number * self._length
        seats = draw_assignments(plan, began)
        rows = np.flatnonzero(np.isin(seats.workers, units))
        of_unit = torch.from_numpy(np.searchsorted(units, seats.workers[rows]))
        bounds = np.where(np.isfinite(self._plan.bounds), self._plan.bounds, 1.0)[seats.groups[rows]]
        if self._plan.spec.privacy.clips_examples:
            bounds = np.full(len(rows), self._plan.example_bound(began))
        if updates.dim() == 3:
            updates = updates[torch.from_numpy(np.searchsorted(self._groups, seats.groups[rows])), of_unit]
        else:
            updates = updates[of_unit]
        # in DP-OGL+ the updates of a worker in the rounds of an interval add up to one message
        parts = self._length if plan.kind == "dp-ogl+" else 1
        each = torch.from_numpy(bounds / parts).float()[:, None] * updates
        summed = self._groups_seen_as_sums(seats)
        observers = [
            GroupObserver(plan.groups, summed, {int(unit)}, self._coalition, began, self._groups)
            for unit in units
        ]
        parameters = updates.shape[1]
        protocol = GroupedProtocol(
            plan,
            WorstCaseEngine(rows, [each] * parts),
            one_example_per_device(plan.groups.workers),
            parameters,
            listener=ListenerGroup(observers),
        )
        state = replace(protocol.initial(torch.zeros(parameters)), round=began)
        for _ in range(self._length):
            state, _ = protocol.run_round(state)
        return tuple(observer.observations for observer in observers)

    def scores_through_others(self, neighbours: Neighbours, *, trials: int, seed: int) -> TrialScores | None:
        """Scores of trials of a whole training in which linking workers pass on what they learn of the unit.

        Args:
            neighbours: the relation between neighbouring data sets.
            trials: how many are held out, and how many tested, under each hypothesis.
            seed: of everything random.

        Returns:
            ``None`` where the coalition receives the unit's messages itself, or `LinkedTraining` cannot play
            the plan.
        """
        workers = [party.index for party in self._coalition if party.kind == "device"]
        seen = {party.index for party in self._coalition if party.kind == "node"}
        seen |= {int(group) for worker in workers for group in self._plan.groups.groups_of(worker)}
        links = Links.of(self._plan, self._unit)
        played = links.reaches(seen) and can_be_simulated(self._plan, neighbours)
        if not played or seen & set(self._groups.tolist()):
            return None
        summed = self._groups_seen_as_sums(draw_assignments(self._plan, 0))
        training = LinkedTraining(self._plan, links, self._unit, self._coalition, tuple(sorted(seen)), summed)
        return training.score_trials(neighbours, trials=trials, seed=seed)

    def _groups_seen_as_sums(self, seats: GroupAssignments) -> frozenset[int]:
        """Groups whose masters receive only sums: fewer members send than the threshold that removes masks.

        ``seats``: which workers send to which groups.
        """
        if not self._summed:
            return frozenset()
        workers = [party.index for party in self._coalition if party.kind == "device"]
        found = set()
        for group in range(self._plan.groups.count):
            session = seats.workers[seats.groups == group]
            if np.isin(session, workers).sum() < threshold_of(self._plan.spec.faults, len(session)):
                found.add(group)
        return frozenset(found)

    def _with_participation(self, plan: GroupPlan, began: int, taking_part: bool, seed: int) -> GroupPlan:
        """``plan`` under ``seed``, with the unit among those drawn by all its groups, or by none.

        The other workers stay as they were drawn, and who drops out is the same. Of a fixed number, the unit
        takes the place of one of them, or another worker takes the unit's. ``began``: number of the round;
        ``taking_part``: whether the unit is drawn.
        """
        plan = replace(plan, spec=plan.spec.model_copy(update={"seed": seed}))
        seats = draw_assignments(plan, began)
        drawn = [seats.workers[seats.groups == group] for group in range(plan.groups.count)]
        for group in self._groups[plan.shares_drawn[self._groups] < 1].tolist():
            here, unit = drawn[group], np.array([self._unit])
            if (self._unit in here) == taking_part:
                continue
            if plan.cohort:
                others = here if taking_part else np.setdiff1d(plan.groups.members_of(group), here)
                place = generator(seed, Stream.AUDIT, 5, began, group).choice(others, size=1)
                here = np.setdiff1d(here, place) if taking_part else np.union1d(here, place)
            drawn[group] = np.union1d(here, unit) if taking_part else np.setdiff1d(here, unit)
        return replace(plan, drawn=tuple(drawn))


def _with_plain_averaging(plan: GroupPlan) -> GroupPlan:
    """``plan`` without a server optimizer, which only post-processes releases."""
    training = plan.spec.training.model_copy(update={"server": Server()})
    return replace(plan, spec=plan.spec.model_copy(update={"training": training}))
