"""What a coalition of a tree can learn of a device, at least: the oracle for trees and stars.

A round's global model is public, so what devices do in the next round can depend on nothing hidden: rounds are
independent, each as `oracle_tree_round` plays it, and everything random in them is enumerated exactly
(`oracle_tree_outcomes`). An attack settles the unit's signs and the others' rule before; of several attacks the
best counts. Each is one that really can be made, so what comes out is a lower bound of the true epsilon:

- what is settled leaves Gaussians: mu^2 = D' S^-1 D for what is received, closed form;
- a draw that the coalition sees: the sum of closed forms, weighted (before training, as docs/concepts.md says);
- a draw that it does not see: what it receives is reduced to one linear function of it, a mixture of Gaussians.

*Neighbours.* Zero-out: the unit's messages become 0, its participation, weight and noise stay as they are, for every
observer alike. Replace: they become their negatives. Nothing else differs between the worlds.
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
    """Lower bounds of epsilon in one tree.

    Args:
        world: the tree.
    """

    def __init__(self, world: TreeWorld) -> None:
        self.world = world

    def answer(self, unit: int, observer: str) -> Answer:
        """The largest epsilon found of a device towards a coalition."""
        nodes, devices = self.world.parse(observer)
        game = Round(self.world, unit, nodes, devices)
        kept = _Kept.of(game)
        lean = _cases(game, kept, lean=True)
        if lean is None:
            return Answer(0.0, "too many outcomes", complete=False)
        typical = _typical(game, lean)
        signs = _best_signs(game, typical, kept)
        passive = Attack(signs)
        best = Answer(self._epsilon(game, kept, lean, passive), "passive")
        if math.isinf(best.epsilon):
            return best
        for attack, name in self._others(game, kept, typical, signs, best.epsilon):
            cases = _cases(game, kept, lean=False)
            if cases is None:
                return best
            found = self._epsilon(game, kept, cases, attack)
            if found > best.epsilon:
                best = Answer(found, name)
        return best

    def _others(
        self, game: Round, kept: _Kept, typical: Outcome, signs: tuple[int, ...], passive: float
    ) -> Iterator[tuple[Attack, str]]:
        """Attacks in which the other devices help."""
        if self.world.draw[0] == "fixed":
            yield Attack(signs, constant=-1.0), "others constant"
        elif self.world.draw[0] == "poisson" and self.world.least_weight is not None:
            yield Attack(signs, constant=-1.0), "others constant"
            yield Attack(signs, constant=1.0), "others constant"
        if game.steps > 1:
            full = _everybody(game)
            hoped = passive
            for _ in range(2):
                adaptive = _adapted(game, full, signs, room_for(hoped))
                if adaptive.gains is None:
                    return
                yield adaptive, f"others adapt by {adaptive.gains.round(3).tolist()}"
                played = game.play(full, adaptive)
                more = self.world.rounds * squared_mu(played.shift, played.noise)
                if (
                    not math.isfinite(more)
                    or gaussian_epsilon(math.sqrt(more), self.world.delta) < 1.3 * hoped
                ):
                    return
                hoped = gaussian_epsilon(math.sqrt(more), self.world.delta)

    def _epsilon(self, game: Round, kept: _Kept, cases: Sequence[Case], attack: Attack) -> float:
        """Epsilon that the attack attains over all rounds."""
        groups: dict[Hashable, list[tuple[float, Played]]] = defaultdict(list)
        failure = 0.0
        for case in cases:
            played = kept.of_rows(game.play(case.outcome, attack))
            failure += case.probability * played.failure
            groups[case.seen].append((case.probability, played))
        failure *= self.world.rounds
        settled = [_settled(parts) for parts in groups.values()]
        if all(one is not None for one in settled):
            squared: dict[float, float] = defaultdict(float)
            for one in settled:
                assert one is not None
                squared[one[1]] += one[0]
            return mixture_epsilon(composed(squared, self.world.rounds), self.world.delta, failure)
        return self._mixed(list(groups.items()), failure)

    def _mixed(self, groups: list[tuple[Hashable, list[tuple[float, Played]]]], failure: float) -> float:
        """Epsilon of one linear function of what is received, the best of a few."""
        delta = self.world.delta
        best = 0.0
        for rank in range(3):
            with_unit: list[Part] = []
            without: list[Part] = []
            fresh = rank == 0
            for seen, parts in groups:
                directions = _directions(parts)
                fresh = fresh or rank < len(directions)
                direction = directions[min(rank, len(directions) - 1)] if directions else None
                for probability, played in parts:
                    a, b = _projected(played, direction, replaced=self.world.replace)
                    with_unit.append(Part(seen, probability, *a))
                    without.append(Part(seen, probability, *b))
            if not fresh:
                break
            experiment = Experiment(_merged(with_unit), _merged(without), self.world.rounds)
            found = experiments_epsilon([experiment], delta * (1 + SLACK) if failure else delta)
            if is_rare(failure, found, delta):
                best = max(best, found)
        return best


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
    """Linear functions worth a try: the best for each of the likeliest outcomes with the unit, no two alike."""
    found: list[Vector] = []
    ordered = sorted(parts, key=lambda one: -one[0] * min(1e6, squared_mu(one[1].shift, one[1].noise)))
    for _, played in ordered[:6]:
        if not played.shift.any():
            continue
        direction = best_direction(played.shift, played.noise)
        direction = direction / np.linalg.norm(direction)
        if not any(abs(direction @ other) > 1 - 1e-9 for other in found):
            found.append(direction)
    return found


def _projected(
    played: Played, direction: Vector | None, *, replaced: bool
) -> tuple[tuple[float, float], tuple[float, float]]:
    """Mean and standard deviation of a linear function, with the unit and without."""
    if direction is None:
        return (0.0, 0.0), (0.0, 0.0)
    shift, constant = float(direction @ played.shift), float(direction @ played.constant)
    std = float(np.linalg.norm(direction @ played.noise))
    if std < 1e-9 * float(np.linalg.norm(np.abs(direction) @ np.abs(played.noise))):
        std = 0.0
    if replaced:
        return (constant + shift / 2, std), (constant - shift / 2, std)
    return (constant + shift, std), (constant, std)


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
