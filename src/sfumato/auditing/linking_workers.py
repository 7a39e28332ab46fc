"""An attack on what linking workers pass on to groups that a unit is not in.

A worker of several groups starts from the mean of their models in a merging step. The attack lets every such
worker answer to that mean as strongly as its clip permits. It takes off the model of the group that it sends
to, which all of that group know, and compares the rest with the middle between the two worlds: above it the
worker sends its largest message, otherwise the opposite. So all linking workers push the next group in the
same direction, and the group after that can be reached in the next merging step. All others send zeros.

The whole training is one simulation, because hidden models remember. A coordinate is a trial (`harness`).
Draws of the unit and of linking workers are made for every coordinate by itself: the simulated rounds have
all workers in them, and who is not drawn sends a zero. With masters' noise that is what a sum without the
worker is. The sum is divided by the number of all workers in place of the expected number of drawn ones,
which everybody knows.

Middles between the worlds are measured in simulations of their own, and so are the weights of what the
observers receive: a wrong one lowers the power of the test and never its soundness.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Set
from dataclasses import dataclass, replace
from functools import partial
from itertools import repeat

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from sfumato.auditing.group_observer import GroupObserver
from sfumato.auditing.harness import Observations
from sfumato.auditing.likelihood_ratio import fit_test
from sfumato.auditing.tradeoff import Scores, TrialScores
from sfumato.auditing.trials import FITTING_TRIALS, null_update, observation_matrix
from sfumato.auditing.worst_case_engine import Answer, WorstCaseEngine, one_example_per_device
from sfumato.privacy.observers import Party
from sfumato.privacy.sampling import Neighbours
from sfumato.protocols.groups.base import GroupedProtocol
from sfumato.protocols.message_hooks import ListenerGroup
from sfumato.random import Stream, generator, seed_at
from sfumato.schedule.groups import GroupPlan

BoolArray = npt.NDArray[np.bool_]
IntArray = npt.NDArray[np.int64]
_FITTING_TRIALS = 4 * FITTING_TRIALS


@dataclass(frozen=True)
class Links:
    """Who passes on what, in a training in which everybody takes part.

    Attributes:
        seats: rows, among all seats of groups, of the unit and of the workers that link groups, ``[r]``.
        workers: in these seats.
        groups: of these seats.
        active: for every release, which of the seats pass something on, ``[releases, r]``.
    """

    seats: IntArray
    workers: IntArray
    groups: IntArray
    active: BoolArray

    @classmethod
    def of(cls, plan: GroupPlan, unit: int) -> Links:
        """For every release, the workers whose message depends on ``unit`` through another group."""
        groups = plan.groups
        workers = groups.members
        of_seat = np.repeat(np.arange(groups.count), groups.sizes)
        seats = np.flatnonzero((workers == unit) | (groups.memberships[workers] > 1))
        own = groups.groups_of(unit)
        reached = np.zeros(groups.count, dtype=np.bool_)
        active = np.zeros((plan.release_count, len(seats)), dtype=np.bool_)
        for release in range(plan.release_count):
            if plan.by_interval or release % plan.merge_every == 0:
                for row, seat in enumerate(seats):
                    worker, group = int(workers[seat]), int(of_seat[seat])
                    others = np.setdiff1d(groups.groups_of(worker), [group])
                    active[release, row] = worker != unit and group not in own and reached[others].any()
            reached[own] = True
            reached[of_seat[seats[active[release]]]] = True
        return cls(seats, workers[seats], of_seat[seats], active)

    def reaches(self, seen: Set[int]) -> bool:
        """Whether the unit's data are passed on to any of the groups ``seen`` in any release."""
        return bool(self.active[:, np.isin(self.groups, list(seen))].any())


def can_be_simulated(plan: GroupPlan, neighbours: Neighbours) -> bool:
    """Whether `LinkedTraining` can simulate ``plan`` under the relation ``neighbours``.

    It can where whole messages are clipped, and a worker that is not drawn is the same as one that sends
    zeros.
    """
    if not plan.noises_every_update or plan.spec.privacy.clips_examples:
        return False
    drawn = bool((plan.shares_drawn < 1).any())
    by_masters = bool(plan.trusted.all()) and not plan.spec.privacy.step_noise
    return by_masters or not (drawn or neighbours == "remove")


class LinkingMessages:
    """What the unit and linking workers send in one simulation of the whole training; it listens to models.

    Args:
        plan: that is audited, with its own draws.
        links: who passes on what.
        unit: the target.
        signs: what the unit sends in every trial, in units of its largest message ``[P]``.
        middles: of the two worlds, for every release and seat, and the side on which the second world is,
            ``[releases, r, 2]``; ``None``: they are measured here, where the first half of the trials is of
            the first world and the other half of the second.
        seed: of the draws.
    """

    def __init__(
        self, plan: GroupPlan, links: Links, unit: int, signs: Tensor, middles: Tensor | None, seed: int
    ) -> None:
        """Start with models of zeros.

        Without ``middles`` the linking workers' thresholds are measured when they send.
        """
        self._plan, self._links, self._signs, self._seed = plan, links, signs, seed
        self._is_unit = torch.from_numpy(links.workers == unit)
        self._models = torch.zeros(plan.groups.count, len(signs))
        self._measures = middles is None
        self.middles = torch.zeros(*links.active.shape, 2) if middles is None else middles
        bounds = np.where(np.isfinite(plan.bounds), plan.bounds, 1.0)[links.groups]
        self._bounds = torch.from_numpy(bounds).float()

    def messages_by_release(self) -> Iterator[Answer]:
        """Yield for every release the function that sets the workers' messages from the models before it."""
        return (partial(self._messages_of_release, release) for release in range(self._plan.release_count))

    def sent(self, number: int, index: int, tier: int, senders: IntArray, vectors: Tensor) -> None:
        """Do nothing: linking workers learn nothing from others' messages.

        Arguments as of `Listener.sent`.
        """

    def received(self, number: int, index: int, tier: int, values: Tensor) -> None:
        """Do nothing: workers do not see sums before noise is added. Arguments as of `Listener.received`."""

    def broadcast(self, number: int, index: int, tier: int, values: Tensor) -> None:
        """Keep the models ``values`` ``[groups, M]`` that masters send; a worker knows its groups' models.

        The arguments are those of `Listener.broadcast`.
        """
        self._models = values.clone()

    def _messages_of_release(self, release: int, models: Tensor, updates: Tensor) -> Tensor:
        """The messages of all workers in a release, ``[P, M]``: the unit's sign, and what links pass on.

        Args:
            release: its number.
            models: that workers start from.
            updates: to write to; returned.
        """
        links = self._links
        sent = torch.zeros_like(updates)
        sent[self._is_unit] = self._signs
        for row in np.flatnonzero(links.active[release]):
            memberships = int(self._plan.groups.memberships[links.workers[row]])
            found = memberships * models[row] - self._models[int(links.groups[row])]
            if self._measures:
                first, second = found.reshape(2, -1).mean(dim=1)
                self.middles[release, row] = torch.stack([(first + second) / 2, torch.sign(second - first)])
            middle, side = self.middles[release, row]
            sent[row] = side * torch.sign(found - middle)
        return sent * self._bounds[:, None] * self._drawn_seats(release)

    def _drawn_seats(self, release: int) -> Tensor:
        """1 where a seat (worker in a group) is drawn for ``release`` in a trial, else 0; ``[r, trials]``.

        Every group draws for itself.
        """
        plan, groups, trials = self._plan, self._links.groups, len(self._signs)
        found = np.ones((len(groups), trials), dtype=np.float32)
        for group in np.unique(groups):
            rows = np.flatnonzero(groups == group)
            rng = generator(self._seed, Stream.AUDIT, 7, release, int(group))
            if plan.cohort:
                lots, last = rng.random((int(plan.groups.sizes[group]), trials)), plan.cohort[group] - 1
                found[rows] = lots[: len(rows)] <= np.partition(lots, last, axis=0)[last]
            elif plan.rates[group] < 1:
                found[rows] = rng.random((len(rows), trials)) < plan.rates[group]
        return torch.from_numpy(found)


@dataclass(frozen=True)
class LinkedTraining:
    """Simulations of a whole training in which linking workers pass on what they learn.

    Attributes:
        plan: that is audited.
        links: who passes on what.
        unit: the target.
        coalition: the colluding observers.
        seen: groups whose models they receive.
        summed: groups whose masters receive only sums.
    """

    plan: GroupPlan
    links: Links
    unit: int
    coalition: tuple[Party, ...]
    seen: tuple[int, ...]
    summed: frozenset[int]

    def score_trials(self, neighbours: Neighbours, *, trials: int, seed: int) -> TrialScores:
        """Simulate the whole training and score its trials.

        Args:
            neighbours: the relation between neighbouring data sets.
            trials: how many are held out, and how many tested, under each hypothesis.
            seed: of everything random.
        """
        other = null_update(neighbours)
        worlds = torch.tensor([other, 1.0]).repeat_interleave(_FITTING_TRIALS)
        _, middles = self._simulate(worlds, None, seed_at(seed, Stream.AUDIT, 8, 0))
        fitted = seed_at(seed, Stream.AUDIT, 8, 1)  # the same noise and draws in both worlds
        null, sent = (self._simulate(world, middles, fitted)[0] for world in worlds.chunk(2))
        keys = tuple(sorted(null))
        rows = [observation_matrix(world, keys, _FITTING_TRIALS) for world in (null, sent)]
        test = fit_test(rows[0], *rows, rate=1.0, draw_visible=False)
        signs = torch.tensor([other, 1.0]).repeat_interleave(trials).repeat(2)
        seen, _ = self._simulate(signs, middles, seed_at(seed, Stream.AUDIT, 8, 2))
        scores = test.scores(observation_matrix(seen, keys, len(signs)), np.ones(len(signs), dtype=np.bool_))
        out, there, judged_out, judged_there = scores.reshape(4, trials)
        return TrialScores(Scores(out, there), Scores(judged_out, judged_there))

    def _simulate(self, signs: Tensor, middles: Tensor | None, seed: int) -> tuple[Observations, Tensor]:
        """Simulate a training, with a trial in each coordinate of ``signs`` ``[trials]``.

        Returns what the coalition receives in the groups that it sees, and the thresholds (middles) by which
        linking workers decide; those given are used. ``seed``: of everything random.
        """
        wide = with_full_participation(groups_with_dimension(self.plan, len(signs)))
        played = replace(wide, spec=wide.spec.model_copy(update={"seed": seed}))
        passing = LinkingMessages(self.plan, self.links, self.unit, signs, middles, seed)
        others = set(self.links.workers.tolist()) - {self.unit}
        observer = GroupObserver(played.groups, self.summed, others, self.coalition, 0, self.seen)
        silence = torch.zeros(len(self.links.seats), len(signs))
        protocol = GroupedProtocol(
            played,
            WorstCaseEngine(self.links.seats, repeat(silence), answers=passing.messages_by_release()),
            one_example_per_device(played.groups.workers),
            len(signs),
            listener=ListenerGroup([passing, observer]),
        )
        state = protocol.initial(torch.zeros(len(signs)))
        for _ in range(played.rounds):
            state, _ = protocol.run_round(state)
        found = {key: vector for of_group in observer.observations for key, vector in of_group.items()}
        return found, passing.middles


def groups_with_dimension(plan: GroupPlan, coordinates: int) -> GroupPlan:
    """``plan`` for a model of ``coordinates`` parameters, each bounded by the old clip norm; same noise.

    The clip norm grows by √coordinates, and the noise multiplier shrinks by it.
    """
    if plan.spec.privacy.clips_examples:
        return plan  # nothing clips whole messages
    factor = math.sqrt(coordinates)
    return replace(plan, clips=plan.clips * factor, multipliers=plan.multipliers / factor)


def with_full_participation(plan: GroupPlan) -> GroupPlan:
    """``plan`` in which every worker of a group takes part in each of its releases, at rate 1.

    Who takes part in a trial is then drawn by the audit, trial by trial (`LinkingMessages`).
    """
    return replace(plan, rates=np.ones_like(plan.rates), cohort=())
