"""Training in groups as a linear system, when everybody is sampled, or others' absence is settled.

As in `oracle_tree_round`: one coordinate; a quantity is a vector of coefficients, of the unit's message in
each of its releases (so that it may be sampled or not), and of every independent noise. Workers that are in
the same groups start from the same models; all honest ones of such a class follow one rule.

*Rules.* A worker's message is a function of the model it starts from, within its bound. Here: a share of its
bound times the model's distance from the middle of the two worlds, over the largest such distance but for
noise of more than ``reach`` standard deviations. So workers in several groups pass the unit's influence on
(they *link*).

*Raw rounds* (``dp-ogl+``) are neither clipped nor noised: whoever is in the group learns what a member
started from as exactly as it likes, and all honest members of the group can answer the unit's message, sent
large, with their bound or its negative; a linking worker's start is known to all of its group before the
release.
"""

from __future__ import annotations

import itertools
import math
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
from oracle_group_world import GroupWorld, Release
from oracle_record_laws import MessageLaw
from scipy.special import ndtr

Vector = npt.NDArray[np.float64]
Kind = tuple[int, ...]
"""Workers by the groups they are in."""


@dataclass(frozen=True)
class Rule:
    """What honest workers do with what they start from.

    Attributes:
        passing: share of their bound that a start from several groups' models moves.
        holding: the same of a start from one group's model.
        first: earliest release in which they do; before it they send nothing.
        reach: standard deviations of noise that there must be room for.
        joining: whether the unit follows the rule as well, where it starts from several groups' models; only
            a record's device can, as it is there in both worlds.
    """

    passing: float = 0.0
    holding: float = 0.0
    first: int = 0
    reach: float = 9.0
    joining: bool = False


@dataclass(frozen=True)
class Received:
    """What a coalition received.

    Attributes:
        moves: of every row, by the unit's message in each of its releases ``[rows, messages]``.
        noise: of every row, by source that the coalition does not know ``[rows, sources]``.
        failure: probability, in either world, that a message would have exceeded its bound.
    """

    moves: Vector
    noise: Vector
    failure: float


class Training:
    """Plays a world for one unit and coalition.

    Args:
        world: the groups.
        unit: the worker.
        masters: of the coalition.
        workers: of the coalition.
        law: of a message of the unit by one of its records; ``None``: all its data move.
    """

    def __init__(
        self,
        world: GroupWorld,
        unit: int,
        masters: frozenset[int],
        workers: frozenset[int],
        law: MessageLaw | None = None,
    ) -> None:
        self.world, self.unit, self.masters, self.workers = world, unit, masters, workers
        self.law = law
        homes = world.groups_of[unit]
        self.messages = {
            place: index
            for index, place in enumerate((r, g) for r in range(len(world.releases)) for g in homes)
        }
        self.kinds = [
            Counter(
                world.groups_of[w] for w in group if w != unit and w not in workers
            )
            for group in world.groups
        ]  # fmt: skip
        self._columns: dict[tuple[str | int | Kind, ...], int] = {}
        for release in range(len(world.releases)):
            for group in range(len(world.groups)):
                self._name("master", release, group)
                self._name("unit", release, group)
                self._name("known", release, group)
                for kind in self.kinds[group]:
                    self._name("kind", release, group, kind)
        self.width = len(self.messages) + len(self._columns)
        self.watched = frozenset(masters) | {g for w in workers for g in world.groups_of[w]}

    def _name(self, *name: str | int | Kind) -> int:
        return self._columns.setdefault(name, len(self.messages) + len(self._columns))

    def play(self, rule: Rule) -> Received:
        """All that the coalition receives."""
        game = _Game(self, rule)
        for number, release in enumerate(self.world.releases):
            game.release(number, release)
        known = {place for name, place in self._columns.items() if self._is_known(name)}
        first = len(self.messages)
        hidden = [place for place in range(first, self.width) if place not in known]
        rows = np.array(game.rows).reshape(len(game.rows), self.width)
        return Received(rows[:, :first], rows[:, hidden], game.failure)

    def _is_known(self, name: tuple[str | int | Kind, ...]) -> bool:
        return name[0] == "known" or (name[0] == "master" and name[2] in self.masters)

    def scale(self, group: int) -> float:
        """What the unit's message is a multiple of."""
        if self.law is None:
            return self.world.bounds[group] * (2 if self.world.replace else 1)
        return 1.0 if self.world.records.clip == "example" else self.world.bounds[group]

    def column(self, *name: str | int | Kind) -> int:
        """Where a noise's coefficient stands."""
        return self._columns[name]


class _Game:
    def __init__(self, training: Training, rule: Rule) -> None:
        self.t, self.rule = training, rule
        self.models = np.zeros((len(training.world.groups), training.width))
        self.rows: list[Vector] = []
        self.failure = 0.0

    def release(self, number: int, release: Release) -> None:
        """One release of every group, with the raw rounds before it."""
        world = self.t.world
        sums = np.zeros_like(self.models)
        for group in range(len(world.groups)):
            starts = {kind: self._start(kind, group, release) for kind in self.t.kinds[group]}
            if release.raw:
                starts = self._raw(number, group, starts)
            if release.noised:
                sums[group] = self._sum(number, group, release, starts)
        for group, (rate, members) in enumerate(zip(world.rates, world.groups, strict=True)):
            self.models[group] = self.models[group] + sums[group] / (rate * len(members))

    def _start(self, kind: Kind, group: int, release: Release) -> Vector:
        return self.models[list(kind)].mean(axis=0) if release.merges else self.models[group]

    def _raw(self, number: int, group: int, starts: dict[Kind, Vector]) -> dict[Kind, Vector]:
        """What members of a group know before the release: the start that tells most of the unit."""
        if group in self.t.watched:
            self.rows += [start.copy() for start in starts.values()]
            if (number, group) in self.t.messages:
                self.rows.append(self._unit(number, group, noised=False))
        if not starts:
            return starts
        best = max(starts.values(), key=self._clarity)
        return dict.fromkeys(starts, best)

    def _clarity(self, vector: Vector) -> float:
        shift, noise = self._law(vector)
        return abs(shift) / noise if noise else math.inf if shift else 0.0

    def _law(self, vector: Vector) -> tuple[float, float]:
        """How far a quantity moves between the worlds, and its noise."""
        first = len(self.t.messages)
        noise = float(np.linalg.norm(vector[first:]))
        if self.t.law is not None:
            return 2 * self.t.law.reach * float(np.abs(vector[:first]).sum()), noise
        return float(vector[:first].sum()), noise

    def _unit(self, number: int, group: int, *, noised: bool) -> Vector:
        vector, world = np.zeros(self.t.width), self.t.world
        vector[self.t.messages[number, group]] = self.t.scale(group)
        if noised and not world.trusted[group]:
            vector[self.t.column("unit", number, group)] = world.stds[group]
        return vector

    def _sum(self, number: int, group: int, release: Release, starts: dict[Kind, Vector]) -> Vector:
        """The sum a group releases; what the coalition hears of it is noted."""
        t, world = self.t, self.t.world
        parts = []
        if (number, group) in t.messages:
            parts.append(self._own(number, group, release))
        for kind, count in t.kinds[group].items():
            vector = count * self._message(number, group, release, starts[kind], linking=len(kind) > 1)
            if not world.trusted[group]:
                vector[t.column("kind", number, group, kind)] = world.stds[group] * math.sqrt(count)
            parts.append(vector)
        total = np.sum(parts, axis=0) if parts else np.zeros(t.width)
        if group in t.masters:
            ours = len(t.workers & set(world.groups[group]))
            opened = not world.masked or ours >= world.threshold(len(world.groups[group]))
            self.rows += [part.copy() for part in parts] if opened else [total.copy()]
        if world.trusted[group]:
            total = total.copy()
            total[t.column("master", number, group)] = world.stds[group]
        elif t.workers:
            ours = len(t.workers & set(world.groups[group]))
            total[t.column("known", number, group)] = world.stds[group] * math.sqrt(ours)
        if group in t.watched:
            self.rows.append(total.copy())
        return total

    def _own(self, number: int, group: int, release: Release) -> Vector:
        """What the unit sends: its message, or what it passes on, as other workers do."""
        vector, homes = self._unit(number, group, noised=True), self.t.world.groups_of[self.t.unit]
        if not self.rule.joining or not release.merges or number < max(1, self.rule.first):
            return vector
        vector[self.t.messages[number, group]] = 0.0
        return vector + self._message(
            number, group, release, self._start(homes, group, release), linking=True
        )

    def _message(self, number: int, group: int, release: Release, start: Vector, *, linking: bool) -> Vector:
        """What an honest worker sends."""
        world, message = self.t.world, np.zeros(self.t.width)
        if release.raw and (number, group) in self.t.messages:
            message[self.t.messages[number, group]] = 2 * world.bounds[group]
            return message
        share = self.rule.passing if release.merges and (linking or release.raw) else self.rule.holding
        shift, noise = self._law(start)
        room = abs(shift) / 2 + self.rule.reach * noise
        if not share or number < self.rule.first or room == 0 or shift == 0:
            return message
        if noise:
            self.failure += 2 * float(ndtr(-(room / abs(share) - abs(shift) / 2) / noise))
        return start * (share * world.answers[group] / room)


def rules(world: GroupWorld, *, joining: bool = False) -> Iterator[Rule]:
    """Rules worth a try."""
    last = max((n for n, release in enumerate(world.releases) if release.merges), default=0)
    if joining:
        for first, holding in itertools.product(sorted({1, last}), (0.0, 1.0)):
            yield Rule(1.0, holding, first, joining=True)
        return
    for first in sorted({0, last}):
        for passing in (1.0, 0.5):
            for holding in (0.0, 1.0):
                yield Rule(passing, holding, first)
