"""One round of a tree as a linear system: what a coalition receives, when it is settled who sends.

Everything lies along one coordinate. A quantity is a vector: a coefficient for the unit's message in every
aggregation, what honest devices' constant messages put into it, a coefficient for every independent noise.
How far it moves between the two worlds follows from how far the unit's messages do. Devices take part in
zones; of a zone's messages only three sums matter: the unit's, the honest others', the coalition members'
(which the coalition knows). Played is what the runtime plays (protocols/tree/): zones average over a
public denominator and add the average to the model they hold; nodes average their children; noise of nodes
comes on top; the aggregating tier broadcasts, and its devices go on from there.

*What the others do.* The honest devices of a zone may follow any rule that maps the model they start from to
a message within their clip: that is what a guarantee over all data and all training functions quantifies over
(with a quadratic loss, gradient descent is such a rule). Used here: ``gain`` times the model's distance from
the middle of its two worlds. Such a message would exceed the clip where the noise is large; ``gain`` is
limited so that this takes noise of more than ``reach`` standard deviations, and the attack counts as failed
then (`Played.failure`).
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
from oracle_tree_world import Node, TreeWorld
from scipy.special import ndtr

Vector = npt.NDArray[np.float64]
Label = tuple[str | int, ...]


class ZoneStep(NamedTuple):
    """What becomes of a zone's messages in one aggregation.

    Attributes:
        unit: whether the unit's message is among them.
        rest_var: variance of the honest others' noise in their sum.
        rest_weight: of the honest others that send.
        known_var: variance of the members' noise in their sum.
        denominator: what the sum is divided by.
        met: whether whoever receives them for the zone met them, or their sum.
        formed: whether the zone then sends an average upwards.
        heard: whether the coalition receives what the zone's node receives.
        opened: whether it can open single messages of a masked sum.
    """

    unit: bool
    rest_var: float
    rest_weight: float
    known_var: float
    denominator: float
    met: bool = True
    formed: bool = True
    heard: bool = False
    opened: bool = False


Outcome = tuple[tuple[ZoneStep, ...], ...]
"""``[aggregation][zone]``."""


@dataclass(frozen=True)
class Attack:
    """What everybody's data make them do.

    Attributes:
        signs: of the unit's message in every aggregation.
        gains: of the honest others, ``[aggregation, zone]``; ``None``: 0.
        constant: what the others send otherwise, between -1 and 1 times their bounds.
        reach: standard deviations that a gain must leave room for.
    """

    signs: tuple[int, ...]
    gains: Vector | None = None
    constant: float = 0.0
    reach: float = 9.0


@dataclass(frozen=True)
class Played:
    """What a coalition received.

    Attributes:
        labels: what every row is.
        moves: of every row, by the unit's message in each aggregation ``[rows, aggregations]``.
        shift: of every row, between the worlds; for a record, if it is drawn into every message.
        constant: of every row, in both worlds.
        noise: coefficients ``[rows, sources]`` of the noise that the coalition does not know.
        owners: zone of every such source; -1 for nodes'.
        limits: largest gain allowed ``[aggregation, zone]``; infinite where the model is known.
        failure: probability, in either world, that a message would have exceeded its bound.
    """

    labels: tuple[Label, ...]
    moves: Vector
    shift: Vector
    constant: Vector
    noise: Vector
    owners: tuple[int, ...]
    limits: Vector
    failure: float


class Round:
    """Plays rounds of one world for one unit and coalition.

    Args:
        world: the tree.
        unit: the device.
        nodes: of the coalition.
        devices: of the coalition.
        reaches: half of how far the device's messages move by one record; ``None``: all its data move.
    """

    def __init__(
        self,
        world: TreeWorld,
        unit: int,
        nodes: frozenset[Node],
        devices: frozenset[int],
        reaches: tuple[float, ...] | None = None,
    ) -> None:
        self.world, self.unit, self.nodes, self.devices = world, unit, nodes, devices
        self.reaches = reaches
        self.home = world.zone_of[unit]
        self.zones, self.steps = len(world.zones), len(world.aggregations)
        leaf, width, owners = world.leaf_tier, self.steps + 1, []
        self.unit_columns, self.rest_columns, self.known_columns, self.node_columns = [], [], [], []
        for _ in range(self.steps):
            self.unit_columns.append(width)
            self.rest_columns.append(np.arange(self.zones) + width + 1)
            self.known_columns.append(np.arange(self.zones) + width + 1 + self.zones)
            width += 1 + 2 * self.zones
            owners += [self.home, *range(self.zones), *range(self.zones)]
            tiers = []
            for tier, parents in enumerate(world.parents):
                tiers.append(np.arange(len(parents)) + width)
                width += len(parents)
                owners += range(self.zones) if tier == leaf else [-1] * len(parents)
            self.node_columns.append(tiers)
        self.width, self.owners = width, np.array(owners)
        self.above = [np.array([world.ancestor(z, t) for z in range(self.zones)]) for t in range(leaf + 1)]
        self.means = [
            (np.arange(len(world.parents[t]))[:, None] == np.array(world.parents[t + 1])).astype(float)
            for t in range(leaf)
        ]
        for mean in self.means:
            mean /= mean.sum(axis=1, keepdims=True)
        self.again = [np.array(world.repeats) & (a.again is not None) for a in world.aggregations]
        self.free = [
            np.where(again, a.again[1] if a.again else 0.0, a.bounds)
            for again, a in zip(self.again, world.aggregations, strict=True)
        ]

    def play(self, outcome: Outcome, attack: Attack) -> Played:
        """What the coalition receives in a round that goes like ``outcome``."""
        game = _Game(self, attack)
        known = np.zeros(self.width, dtype=bool)
        known[: self.steps + 1] = True
        for step, states in enumerate(outcome):
            game.aggregate(step, states)
            known[self.known_columns[step]] = True
            for tier, node in self.nodes:
                known[self.node_columns[step][tier][node]] = True
            offices = [zone for zone, state in enumerate(states) if state.heard]
            known[self.node_columns[step][-1][offices]] = True
        rows = np.array([row for _, row in game.rows]).reshape(len(game.rows), self.width)
        return Played(
            labels=tuple(label for label, _ in game.rows),
            moves=rows[:, : self.steps],
            shift=rows[:, : self.steps] @ self.sizes(attack.signs),
            constant=rows[:, self.steps],
            noise=rows[:, ~known],
            owners=tuple(self.owners[~known[self.steps + 1 :]].tolist()),
            limits=game.limits,
            failure=game.failure,
        )

    def sizes(self, signs: tuple[int, ...]) -> Vector:
        """How far the unit's messages move between the worlds, in every aggregation."""
        if self.reaches is not None:
            return 2 * self.world.weights[self.unit] * np.array(self.reaches)
        return np.array([self.own_message(step, signs) for step in range(self.steps)])

    def own_message(self, step: int, signs: tuple[int, ...]) -> float:
        """How far the unit's message moves between the worlds, in one aggregation."""
        world = self.world
        aggregation, weight = world.aggregations[step], world.weights[self.unit]
        size = signs[step] * aggregation.bounds[self.home]
        if aggregation.again is not None and world.repeats[self.home]:
            whole = sum(sign * a.bounds[self.home] for sign, a in zip(signs, world.aggregations, strict=True))
            size = max(-aggregation.again[0], min(aggregation.again[0], whole))
        return weight * size * (2 if world.replace else 1)


class _Game:
    def __init__(self, played: Round, attack: Attack) -> None:
        self.round, self.attack, self.sizes = played, attack, played.sizes(attack.signs)
        self.models = np.zeros((played.zones, played.width))
        self.rows: list[tuple[Label, Vector]] = []
        self.limits = np.full((played.steps, played.zones), np.inf)
        self.failure = 0.0

    def aggregate(self, step: int, states: tuple[ZoneStep, ...]) -> None:
        """One aggregation: messages, averages, noise, broadcast."""
        place, world = self.round, self.round.world
        root = world.aggregations[step].tier
        offices = [zone for zone, state in enumerate(states) if state.heard]
        values = self._zones(step, states)
        for zone in np.flatnonzero(world.aggregations[step].own):
            if zone in offices or place.devices & set(world.zones[zone]):
                self._hear(("own", step, int(zone)), values[zone])
        for tier in range(world.leaf_tier - 1, root - 1, -1):
            below, values = values, place.means[tier] @ values
            self._receive(step, tier, below, values, offices)
            columns = place.node_columns[step][tier]
            values[np.arange(len(columns)), columns] += world.node_std[step][tier]
        self._broadcast(step, root, values, offices)

    def _hear(self, label: Label, row: Vector) -> None:
        self.rows.append((label, row.copy()))

    def _zones(self, step: int, states: tuple[ZoneStep, ...]) -> Vector:
        """What zones hold after their devices' messages, their own noise included ``[zones, width]``."""
        place, world, every = self.round, self.round.world, np.arange(self.round.zones)
        table = np.array(states, dtype=float)
        rest_var, rest_weight, known_var, denominator = table[:, 1:5].T
        formed = table[:, 6]
        rest = (self._gains(step, rest_weight) * place.free[step] * rest_weight)[:, None] * self.models
        rest[:, place.steps] += self.attack.constant * place.free[step] * rest_weight
        rest[every, place.rest_columns[step]] = np.sqrt(rest_var)
        unit = np.zeros(place.width)
        if states[place.home].unit and world.aggregations[step].bounds[place.home]:
            unit[step] = 1.0
            unit[place.unit_columns[step]] = world.device_std[place.unit][step]
        for zone, state in enumerate(states):
            if state.heard and state.met and world.aggregations[step].bounds[zone]:
                self._meet(
                    step, zone, state, unit if zone == place.home else np.zeros(place.width), rest[zone]
                )
        sums = rest
        sums[place.home] += unit
        sums[every, place.known_columns[step]] = np.sqrt(known_var)
        values: Vector = np.where(place.again[step][:, None], 0.0, self.models)
        values = values + (formed / denominator)[:, None] * sums
        values[every, place.node_columns[step][-1]] += formed * np.array(world.node_std[step][-1])
        return values

    def _meet(self, step: int, zone: int, state: ZoneStep, unit: Vector, rest: Vector) -> None:
        """What the coalition receives of a zone's messages, at the zone's node."""
        if self.round.world.hops[-1] == "plain" or state.opened:
            self._hear(("message", step, zone, "unit"), unit)
            self._hear(("message", step, zone, "rest"), rest)
        else:
            self._hear(("sum", step, zone), unit + rest)

    def _gains(self, step: int, rest_weight: Vector) -> Vector:
        """The others' gains; how large they may be is noted, and how likely they are too large."""
        moves = self.models[:, : self.round.steps] * self.sizes
        moved = np.abs(moves.sum(axis=1)) / 2
        if self.round.reaches is not None:
            moved = np.abs(moves).sum(axis=1) / 2
        noise = np.linalg.norm(self.models[:, self.round.steps + 1 :], axis=1)
        room = moved + self.attack.reach * noise
        self.limits[step, room > 0] = 1 / room[room > 0]
        if self.attack.gains is None:
            return np.zeros_like(moved)
        gains: Vector = self.attack.gains[step]
        for zone in np.flatnonzero((gains != 0) & (room > 0) & (rest_weight > 0)):
            left = 1 / abs(gains[zone]) - moved[zone]
            if left < -1e-12:
                self.failure += 1.0
            elif noise[zone] > 0:
                self.failure += 2 * float(ndtr(-max(0.0, left) / noise[zone]))
        return gains

    def _receive(self, step: int, tier: int, below: Vector, values: Vector, offices: list[int]) -> None:
        """What the coalition receives of what nodes of ``tier`` do, before their own noise."""
        world = self.round.world
        ours = {index for level, index in self.round.nodes if level == tier + 1}
        if tier + 1 == world.leaf_tier:
            ours |= set(offices)
        heard = set(ours)
        for node in (index for level, index in self.round.nodes if level == tier):
            children = {child for _, child in world.children((tier, node))}
            if world.hops[tier] == "plain" or len(children & ours) >= world.threshold(len(children)):
                heard |= children
            else:
                self._hear(("received", step, tier, node), values[node])
        for child in sorted(heard):
            self._hear(("sent", step, tier + 1, child), below[child])

    def _broadcast(self, step: int, tier: int, values: Vector, offices: list[int]) -> None:
        """Everybody below a node of the aggregating tier goes on from its value."""
        place = self.round
        above = place.above[tier]
        self.models = values[above]
        listening = {int(above[place.world.zone_of[device]]) for device in place.devices}
        listening |= {int(above[zone]) for zone in offices}
        for level, node in place.nodes:
            if level >= tier:
                listening.add(int(above[np.flatnonzero(place.above[level] == node)[0]]))
        if tier == 0:
            listening = {0}
        for index in sorted(listening):
            self._hear(("broadcast", step, tier, index), values[index])


def squared_mu(shift: Vector, noise: Vector) -> float:
    """The largest ratio, squared, of shift to noise among linear functions of what is received.

    Infinite where one moves between the worlds and has no noise.
    """
    scale = np.linalg.norm(noise, axis=1)
    bare = scale <= 1e-12 * max(1.0, float(scale.max(initial=0.0)))
    if (np.abs(shift[bare]) > 1e-9 * max(1e-30, float(np.abs(shift).max(initial=0.0)))).any():
        return math.inf
    rows = ~bare
    if not rows.any() or not shift[rows].any():
        return 0.0
    moved = shift[rows] / scale[rows]
    u, s, _ = np.linalg.svd(noise[rows] / scale[rows][:, None], full_matrices=False)
    kept = s > 1e-8 * s[0]
    along = u[:, kept].T @ moved
    left = moved - u[:, kept] @ along
    if float(np.linalg.norm(left)) > 1e-6 * float(np.linalg.norm(moved)):
        return math.inf
    return float(np.sum((along / s[kept]) ** 2))


def best_direction(shift: Vector, noise: Vector) -> Vector:
    """A linear function of what is received that attains `squared_mu` (without noise, if there is one)."""
    covariance = noise @ noise.T
    scale = np.sqrt(
        np.maximum(np.diag(covariance), 1e-24 * max(1.0, float(np.diag(covariance).max(initial=0))))
    )
    moved, rows = shift / scale, noise / scale[:, None]
    u, s, _ = np.linalg.svd(rows, full_matrices=True)
    full = np.zeros(len(moved))
    full[: len(s)] = s
    kept = full > 1e-8 * max(1e-30, float(full.max(initial=0.0)))
    along = u.T @ moved
    if float(np.linalg.norm(along[~kept])) > 1e-6 * max(1e-30, float(np.linalg.norm(moved))):
        return (u[:, ~kept] @ along[~kept]) / scale
    return (u[:, kept] @ (along[kept] / full[kept] ** 2)) / scale
