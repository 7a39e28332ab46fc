"""What a coalition of a tree can learn of a device, at least: the oracle for trees and stars.

A round's global model is public, so what devices do in the next round can depend on nothing hidden: rounds
are independent, each as `oracle_tree_round` plays it, and everything random in them is enumerated exactly
(`oracle_tree_outcomes`). An attack settles the unit's signs and the others' rule before; of several attacks
the best counts. Each is one that really can be made, so what comes out is a lower bound of the true epsilon:

- what is settled leaves Gaussians: mu^2 = D' S^-1 D for what is received, closed form;
- a draw that the coalition sees: the sum of closed forms, weighted (before training, as docs/concepts.md
says);
- a draw that it does not see: what it receives is reduced to one linear function of it, a mixture of
Gaussians.

*Neighbours.* Zero-out: the unit's messages become 0, its participation, weight and noise stay as they are,
for every observer alike. Replace: they become their negatives. Nothing else differs between the worlds. Of a
record what differs is how likely the values of the device's messages are (`oracle_record_laws`).

*Trees that change.* Rounds are independent, so each is attacked in the tree that it has.
"""

from __future__ import annotations

import itertools
import math
from collections import defaultdict
from collections.abc import Hashable, Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np
from oracle_gaussian import SLACK, composed, gaussian_epsilon, is_rare, mixture_epsilon, room_for
from oracle_mixture import Experiment, Part, experiments_epsilon
from oracle_record_laws import MessageLaw
from oracle_record_play import added, apart, projected
from oracle_tree_outcomes import Play, ZonePlays
from oracle_tree_round import Attack, Outcome, Played, Round, Vector, best_direction, squared_mu
from oracle_tree_world import TreeWorld

MOST_OUTCOMES, MOST_OUTCOMES_PLAYED_IN_FULL, MOST_WAYS = 3000, 600, 50_000
_FRACTIONS = (0.0, -1.0, -0.5, -0.25, 0.25, 0.5, 1.0)


@dataclass(frozen=True)
class Answer:
    """What the oracle found.

    Attributes:
        epsilon: attained.
        attack: what attained it.
        complete: whether everything that may happen was played; else epsilon is 0 where it cannot be told.
    """

    epsilon: float
    attack: str
    complete: bool = True


@dataclass(frozen=True)
class Case:
    """One way that a round may go: its probability, what the coalition sees of it, what happens."""

    probability: float
    seen: Hashable
    outcome: Outcome


class TreeOracle:
    """Lower bounds of epsilon in one tree, or in the trees that rounds have where devices move.

    Args:
        eras: every tree, and how many rounds have it.
    """

    def __init__(self, eras: Sequence[tuple[TreeWorld, int]]) -> None:
        self.eras = eras
        self.world = eras[0][0]

    def answer(self, unit: int, observer: str, *, record: bool = False) -> Answer:
        """The largest epsilon found of a device, or of one of its records, towards a coalition."""
        if record and any(any(world.repeats) for world, _ in self.eras):
            return Answer(0.0, "a round sent again", complete=False)
        found = [self._attacked(laws, unit, observer) for laws in self._laws(unit, record=record)]
        return max(found, key=lambda one: one.epsilon)

    def _laws(self, unit: int, *, record: bool) -> list[list[list[MessageLaw]] | None]:
        """What the unit may do: by attack, the laws of its messages ``[era][aggregation]``.

        ``None``: a device sends messages that are settled, of signs that are chosen later.
        """
        if not record:
            return [None]
        each = []
        for world, _ in self.eras:
            pieces = [a.pieces[world.zone_of[unit]] for a in world.aggregations]
            each.append([world.records.laws(unit, steps, replaced=world.replace) for steps in pieces])
        ways = max(len(found) for era in each for found in era)
        return [[[found[min(way, len(found) - 1)] for found in era] for era in each] for way in range(ways)]

    def _attacked(self, laws: list[list[MessageLaw]] | None, unit: int, observer: str) -> Answer:
        eras = []
        for place, (world, rounds) in enumerate(self.eras):
            nodes, devices = world.parse(observer)
            own = None if laws is None else laws[place]
            game = Round(world, unit, nodes, devices, own and tuple(law.reach for law in own))
            lean = _cases(game, _Kept.of(game), lean=True)
            if lean is None:
                return Answer(0.0, "too many outcomes", complete=False)
            eras.append(_Era(game, rounds, _Kept.of(game), lean, own))
        passive = [Attack(era.signs) for era in eras]
        best = Answer(self._epsilon(eras, [era.lean for era in eras], passive), "passive")
        if math.isinf(best.epsilon):
            return best
        for attacks, name in self._others(eras, best.epsilon):
            full = [_cases(era.game, era.kept, lean=False) for era in eras]
            if any(cases is None for cases in full):
                return best
            found = self._epsilon(eras, [cases or [] for cases in full], attacks)
            if found > best.epsilon:
                best = Answer(found, name)
        return best

    def _others(self, eras: Sequence[_Era], passive: float) -> Iterator[tuple[list[Attack], str]]:
        """Attacks in which the other devices help."""
        constants: tuple[float, ...] = ()
        if self.world.draw[0] == "fixed":
            constants = (-1.0,)
        elif self.world.draw[0] == "poisson" and self.world.least_weight is not None:
            constants = (-1.0, 1.0)
        for constant in constants:
            yield [Attack(era.signs, constant=constant) for era in eras], "others constant"
        if all(era.game.steps == 1 for era in eras):
            return
        hoped = passive
        for _ in range(2):
            adaptive, more = [], 0.0
            for era in eras:
                adaptive.append(_adapted(era.game, era.full, era.signs, room_for(hoped)))
                played = era.game.play(era.full, adaptive[-1])
                more += era.rounds * squared_mu(played.shift, played.noise)
            told = [one.gains.round(3).tolist() for one in adaptive if one.gains is not None]
            if not told:
                return
            yield adaptive, f"others adapt by {told}"
            if not math.isfinite(more) or gaussian_epsilon(math.sqrt(more), self.world.delta) < 1.3 * hoped:
                return
            hoped = gaussian_epsilon(math.sqrt(more), self.world.delta)

    def _epsilon(
        self, eras: Sequence[_Era], cases: Sequence[Sequence[Case]], attacks: Sequence[Attack]
    ) -> float:
        """Epsilon that the attacks attain over all rounds."""
        met = [era.met(some, attack) for era, some, attack in zip(eras, cases, attacks, strict=True)]
        failure = sum(one.failure for one in met)
        delta = self.world.delta
        if all(one.squared is not None for one in met):
            total = {0.0: 1.0}
            for one in met:
                assert one.squared is not None
                total = added(total, composed(one.squared, one.rounds))
            return mixture_epsilon(total, delta, failure)
        best = 0.0
        for rank in range(3):
            experiments, fresh = [], rank == 0
            for one in met:
                found, more = one.experiments(rank)
                if found is None:
                    return best
                experiments += found
                fresh = fresh or more
            if not fresh:
                break
            reached = experiments_epsilon(experiments, delta * (1 + SLACK) if failure else delta)
            if is_rare(failure, reached, delta):
                best = max(best, reached)
        return best


class _Era:
    """The rounds that have one tree.

    Args:
        game: a round, for one unit and coalition.
        rounds: how many.
        kept: rows that the coalition looks at.
        lean: everything that may happen in a round if others only send noise.
        laws: of the unit's messages; ``None`` where they are settled.
    """

    def __init__(
        self,
        game: Round,
        rounds: int,
        kept: _Kept,
        lean: Sequence[Case],
        laws: Sequence[MessageLaw] | None,
    ) -> None:
        self.game, self.rounds, self.kept, self.lean, self.laws = game, rounds, kept, lean, laws
        self.full = _everybody(game)
        self.signs = (1,) * game.steps
        if laws is None:
            self.signs = _best_signs(game, _typical(game, lean), kept)

    def met(self, cases: Sequence[Case], attack: Attack) -> _Met:
        """What the coalition meets in a round."""
        groups: dict[Hashable, list[tuple[float, Played]]] = defaultdict(list)
        failure = 0.0
        for case in cases:
            played = self.kept.of_rows(self.game.play(case.outcome, attack))
            failure += case.probability * played.failure
            groups[case.seen].append((case.probability, played))
        laws, weight = self.laws, self.game.world.weights[self.game.unit]
        if laws is None:
            sizes, half = self.game.sizes(attack.signs), 0.5 if self.game.world.replace else 0.0
            laws = [MessageLaw(((1.0, (1 - half) * size),), ((1.0, -half * size),)) for size in sizes]
            weight = 1.0
        squared: dict[float, float] | None = defaultdict(float)
        for parts in groups.values():
            one = _settled(parts) if all(map(_is_settled, laws)) else None
            if one is None:
                squared = None
                break
            assert squared is not None
            squared[one[1]] += one[0]
        return _Met(self.rounds, failure * self.rounds, squared, list(groups.items()), laws, weight)


def _is_settled(law: MessageLaw) -> bool:
    return len(law.with_record) == len(law.without) == 1


@dataclass(frozen=True)
class _Met:
    """What a coalition meets in a round of an era.

    Attributes:
        rounds: of the era.
        failure: probability that the attack does not play as described in one of them.
        squared: squared mu and its probability, where all that is hidden is Gaussian.
        groups: by what is seen, everything that may have been received.
        laws: of the unit's messages.
        weight: of them.
    """

    rounds: int
    failure: float
    squared: dict[float, float] | None
    groups: list[tuple[Hashable, list[tuple[float, Played]]]]
    laws: Sequence[MessageLaw]
    weight: float

    def experiments(self, rank: int) -> tuple[list[Experiment] | None, bool]:
        """As experiments of one number each; whether others of this rank were not tried before.

        Rank: place, among a few linear functions of what is received, of the one that is looked at.
        """
        if self.squared is not None:
            parts = [
                Part(value, p, 1.0, 0.0) if math.isinf(value) else Part(value, p, math.sqrt(value), 1.0)
                for value, p in self.squared.items()
            ]
            without = tuple(replace(part, mean=0.0) for part in parts)
            return [Experiment(tuple(parts), without, self.rounds)], False
        if len(self.groups) == 1 and len(self.groups[0][1]) == 1:
            played = self.groups[0][1][0][1]
            blocks = apart(played.moves * self.weight, played.noise, self.laws)
            if blocks is not None:
                return [replace(block, times=self.rounds) for block in blocks], False
        with_unit: list[Part] = []
        others: list[Part] = []
        fresh = False
        for seen, parts in self.groups:
            directions = _directions(parts)
            fresh = fresh or rank < len(directions)
            direction = directions[min(rank, len(directions) - 1)] if directions else None
            for probability, played in parts:
                both = projected(played, direction, self.laws, self.weight, played.constant)
                if both is None:
                    return None, False
                for found, world in zip((with_unit, others), both, strict=True):
                    found += [Part(seen, probability * p, mean, std) for p, mean, std in world]
        return [Experiment(_merged(with_unit), _merged(others), self.rounds)], fresh


def _settled(parts: list[tuple[float, Played]]) -> tuple[float, float] | None:
    """Probability and squared mu of a group, if nothing in it is hidden."""
    first = parts[0][1]
    for _, other in parts[1:]:
        if other.shift.shape != first.shift.shape or other.noise.shape != first.noise.shape:
            return None
        if not (np.array_equal(other.shift, first.shift) and np.array_equal(other.noise, first.noise)):
            return None
    return sum(p for p, _ in parts), squared_mu(first.shift, first.noise)


def _directions(parts: list[tuple[float, Played]]) -> list[Vector]:
    """Linear functions to try: the best for each of the likeliest outcomes with the unit, no two alike."""
    found: list[Vector] = []
    ordered = sorted(parts, key=lambda one: -one[0] * min(1e6, squared_mu(one[1].shift, one[1].noise)))
    for _, played in ordered[:6]:
        if not played.shift.any():
            continue
        direction = best_direction(played.shift, played.noise)
        heard = np.abs(direction) * (np.abs(played.shift) + np.linalg.norm(played.noise, axis=1))
        direction = np.where(heard > 1e-9 * heard.max(), direction, 0.0)  # else what rounding left
        direction = direction / np.linalg.norm(direction)
        if not any(abs(direction @ other) > 1 - 1e-9 for other in found):
            found.append(direction)
    return found


def _merged(parts: list[Part]) -> tuple[Part, ...]:
    tally: dict[tuple[Hashable, float, float], float] = defaultdict(float)
    for part in parts:
        tally[part.seen, float(f"{part.mean:.11g}"), float(f"{part.std:.11g}")] += part.probability
    return tuple(Part(seen, p, mean, std) for (seen, mean, std), p in tally.items())


@dataclass(frozen=True)
class _Kept:
    """Which rows the coalition looks at: those tied to the unit by noise, none that others already tell.

    Attributes:
        dropped: rows it does not look at.
        zones: whose noise is in the others.
    """

    dropped: frozenset[tuple[str | int, ...]]
    zones: frozenset[int]

    @classmethod
    def of(cls, game: Round) -> _Kept:
        """Found in a round in which everybody sends.

        To look at fewer rows is post-processing. Which noise may be in a row is the same in every outcome.
        """
        played = game.play(_everybody(game), Attack((1,) * game.steps))
        wide = np.column_stack([played.shift, played.noise])
        order = sorted(range(len(wide)), key=lambda row: int((np.abs(wide[row]) > 1e-12).sum()))
        chosen: list[int] = []
        for row in order:
            if np.linalg.matrix_rank(wide[[*chosen, row]], tol=1e-9) > len(chosen):
                chosen.append(row)
        tied = _tied(np.abs(wide[chosen][:, 1:]) > 1e-12, np.abs(wide[chosen][:, 0]) > 1e-12)
        rows = [row for row, is_tied in zip(chosen, tied, strict=True) if is_tied]
        labels = {played.labels[row] for row in rows}
        owners = {
            owner
            for place, owner in enumerate(played.owners)
            if owner >= 0 and (np.abs(played.noise[rows][:, place]) > 1e-12).any()
        }
        zones = owners | {game.world.zone_of[game.unit]}
        return cls(frozenset(played.labels) - labels, frozenset(zones))

    def of_rows(self, played: Played) -> Played:
        """What is left to look at."""
        rows = [place for place, label in enumerate(played.labels) if label not in self.dropped]
        if len(rows) == len(played.labels):
            return played
        return replace(
            played,
            labels=tuple(played.labels[row] for row in rows),
            moves=played.moves[rows],
            shift=played.shift[rows],
            constant=played.constant[rows],
            noise=played.noise[rows],
        )


def _tied(noise: Vector, moves: Vector) -> list[bool]:
    """Which rows share noise, directly or through others, with a row that moves."""
    tied = list(map(bool, moves))
    grown = True
    while grown:
        sources = noise[tied].any(axis=0) if any(tied) else np.zeros(noise.shape[1], bool)
        now = [one or bool((row & sources).any()) for one, row in zip(tied, noise, strict=True)]
        grown, tied = now != tied, now
    return tied


def _everybody(game: Round) -> Outcome:
    """A round in which everybody takes part and sends."""
    each = [ZonePlays(game, zone).everybody().steps for zone in range(game.zones)]
    return tuple(tuple(steps[step] for steps in each) for step in range(game.steps))


def _cases(game: Round, kept: _Kept, *, lean: bool) -> list[Case] | None:
    """Everything that may happen in a round; ``None`` if that is too much."""
    plays: list[list[Play]] = []
    for zone in range(game.zones):
        one = ZonePlays(game, zone)
        matters = zone in kept.zones or (one.members > 0 and game.world.elected)
        if matters and one.ways() > MOST_WAYS:
            return None
        plays.append(one.plays(lean=lean) if matters else [one.everybody()])
        if math.prod(map(len, plays)) > (MOST_OUTCOMES if lean else MOST_OUTCOMES_PLAYED_IN_FULL):
            return None
    found = []
    for way in itertools.product(*plays):
        outcome = tuple(tuple(play.steps[step] for play in way) for step in range(game.steps))
        probability = math.prod(play.probability for play in way)
        found.append(Case(probability, tuple(play.seen for play in way), outcome))
    return found


def _typical(game: Round, cases: Sequence[Case]) -> Outcome:
    """The likeliest outcome among those in which the unit's messages are most often met."""
    home = game.world.zone_of[game.unit]

    def rank(case: Case) -> tuple[int, float]:
        states = [step[home] for step in case.outcome]
        return sum(state.unit and (state.formed or state.met) for state in states), case.probability

    return max(cases, key=rank).outcome


def _best_signs(game: Round, typical: Outcome, kept: _Kept) -> tuple[int, ...]:
    """The unit's signs that move the typical outcome most."""

    def moved(signs: tuple[int, ...]) -> float:
        played = kept.of_rows(game.play(typical, Attack(signs)))
        return squared_mu(played.shift, played.noise)

    every = [(1, *rest) for rest in itertools.product((1, -1), repeat=game.steps - 1)]
    return max(every, key=moved)


def _adapted(game: Round, outcome: Outcome, signs: tuple[int, ...], reach: float) -> Attack:
    """Gains of the others, one aggregation after another set to what moves ``outcome`` most.

    The zone of the unit has a gain of its own; all others share one.
    """
    home = np.arange(game.zones) == game.home
    best = Attack(signs, None, 0.0, reach)
    first = game.play(outcome, best)
    value = squared_mu(first.shift, first.noise)
    for tried in {signs, (1,) * game.steps, (1,) * (game.steps - 1) + (-1,)}:
        attack = Attack(tried, np.zeros((game.steps, game.zones)), 0.0, reach)
        now = 0.0
        for step, where in itertools.product(range(1, game.steps), (home, ~home)):
            if not where.any():
                continue
            allowed = game.play(outcome, attack).limits[step]
            limits = np.where(np.isfinite(allowed), allowed, 0.0)
            if not limits[where].any():
                continue
            for fraction in _FRACTIONS:
                trial = _with_gain(attack, step, where, fraction * limits)
                played = game.play(outcome, trial)
                found = squared_mu(played.shift, played.noise)
                if found > now * (1 + 1e-9):
                    attack, now = trial, found
        if now > value * (1 + 1e-9):
            best, value = attack, now
    return best


def _with_gain(attack: Attack, step: int, where: Vector, gains: Vector) -> Attack:
    assert attack.gains is not None
    changed = attack.gains.copy()
    changed[step] = np.where(where, gains, changed[step])
    return replace(attack, gains=changed)
