"""What a coalition can learn of a worker in groups, at least: the oracle for groups.

Three kinds of attacks, each one that really can be made (so what comes out is a lower bound of the true
epsilon):

- *everybody is always sampled*: all that the coalition receives is Gaussian (`oracle_group_play`), whoever
  links;
- *the coalition watches a group of the unit's*: releases of that group alone, each an independent experiment
  (a fresh sample, a fresh noise, the others sending zeros): who sees the sample (a master that receives
  messages; a party of a session of secure aggregation, which knows the session's other parties) meets the
  noise of those who are in it, who does not meets a mixture;
- *only groups of the unit's sample, and they are hidden*: whether it was sampled, in each of its releases, is
  the mixture's outcome; what the others pass on is Gaussian given that.

``ms-fedavg`` sends models without noise: whatever reaches the coalition tells the unit's contribution.
"""

from __future__ import annotations

import itertools
import math
from collections import defaultdict
from collections.abc import Hashable, Iterator
from dataclasses import replace

import numpy as np
from oracle_gaussian import SLACK, composed, is_rare, mixture_epsilon, room_for
from oracle_group_play import Received, Rule, Training, rules
from oracle_group_world import GroupWorld
from oracle_mixture import Experiment, Part, experiments_epsilon
from oracle_tree import Answer
from oracle_tree_round import best_direction, squared_mu

MOST_MESSAGES = 7


class GroupOracle:
    """Lower bounds of epsilon in groups.

    Args:
        world: the groups.
    """

    def __init__(self, world: GroupWorld) -> None:
        self.world = world

    def answer(self, unit: int, observer: str) -> Answer:
        """The largest epsilon found of a worker towards a coalition."""
        world = self.world
        masters, workers = world.parse(observer)
        training = Training(world, unit, masters, workers)
        homes = world.groups_of[unit]
        if world.kind == "ms-fedavg":
            return self._unnoised(training)
        if all(rate == 1 for rate in world.rates):
            return self._sure(training)
        direct = set(homes) & training.watched
        if direct:
            return Answer(self._direct(training, sorted(direct)), "the groups watched alone")
        relays_sure = all(rate == 1 for group, rate in enumerate(world.rates) if group not in homes)
        few = len(training.messages) <= MOST_MESSAGES
        if relays_sure and few and all(world.trusted):
            return self._relayed(training)
        return Answer(0.0, "relays are sampled", complete=False)

    def _sure(self, training: Training) -> Answer:
        delta = self.world.delta
        best = Answer(self._settled_epsilon(training.play(Rule())), "passive")
        if math.isinf(best.epsilon):
            return best
        for rule in rules(self.world):
            hoped = self._settled_epsilon(training.play(rule))
            careful = replace(rule, reach=room_for(hoped))
            received = training.play(careful)
            found = mixture_epsilon({_squared(received): 1.0}, delta, received.failure)
            if found > best.epsilon:
                best = Answer(found, f"others pass on {careful}")
        return best

    def _settled_epsilon(self, received: Received) -> float:
        return mixture_epsilon({_squared(received): 1.0}, self.world.delta)

    def _unnoised(self, training: Training) -> Answer:
        """Infinite where the unit's first model may reach the coalition, sampled often enough on the way."""
        world = self.world
        reached = {group: world.rates[group] for group in world.groups_of[training.unit]}
        for _ in range(1, world.rounds):
            before = dict(reached)  # one group further each round
            for group, kinds in enumerate(training.kinds):
                known = [before[g] for kind in kinds for g in kind if g in before]
                if known and group not in before:
                    reached[group] = max(known) * world.rates[group]
        likely = any(p > world.delta for group, p in reached.items() if group in training.watched)
        return Answer(math.inf if likely else 0.0, "models without noise")

    def _direct(self, training: Training, groups: list[int]) -> float:
        world = self.world
        seen_all = not any(release.raw for release in world.releases)
        laws: list[dict[float, float]] = []
        experiments = []
        for group in groups:
            parts = list(_watched_release(training, group))
            times = sum(release.noised for release in world.releases)
            if not seen_all:
                times, parts = len(world.releases), [_bare(part) for part in parts]
            with_unit = tuple(Part(seen, p, moved, std) for seen, p, moved, std in parts)
            half = -1.0 if world.replace else 0.0
            without = tuple(Part(seen, p, half * moved, std) for seen, p, moved, std in parts)
            experiments.append(Experiment(with_unit, without, times))
            laws.append(_as_law(parts, 2.0 if world.replace else 1.0))
        if all(laws):
            total: dict[float, float] = {0.0: 1.0}
            for law, experiment in zip(laws, experiments, strict=True):
                total = _added(total, composed(law, experiment.times))
            return mixture_epsilon(total, world.delta)
        return experiments_epsilon(experiments, world.delta)

    def _relayed(self, training: Training) -> Answer:
        """The unit sampled or not, in each of its releases; everybody else always."""
        best = Answer(0.0, "passive")
        for rule in rules(self.world):
            hoped = self._sampled_epsilon(training, training.play(rule))
            careful = replace(rule, reach=room_for(hoped))
            received = training.play(careful)
            found = self._sampled_epsilon(training, received)
            if is_rare(received.failure, found, self.world.delta) and found > best.epsilon:
                best = Answer(found, f"others pass on {careful}")
        return best

    def _sampled_epsilon(self, training: Training, received: Received) -> float:
        world = self.world
        whole = received.moves.sum(axis=1)
        if not whole.any():
            return 0.0
        direction = best_direction(whole, received.noise)
        std = float(np.linalg.norm(direction @ received.noise))
        each = direction @ received.moves
        with_unit = []
        for sampled in itertools.product((0, 1), repeat=len(training.messages)):
            p = math.prod(
                world.rates[group] if taken else 1 - world.rates[group]
                for taken, (_, group) in zip(sampled, training.messages, strict=True)
            )
            if p > 0:
                with_unit.append(Part(None, p, float(each @ np.array(sampled)), std))
        if world.replace:
            with_unit = [Part(None, part.probability, part.mean / 2, std) for part in with_unit]
            without = [Part(None, part.probability, -part.mean, std) for part in with_unit]
        else:
            without = [Part(None, 1.0, 0.0, std)]
        return experiments_epsilon([Experiment(tuple(with_unit), tuple(without))], world.delta * (1 + SLACK))


def _squared(received: Received) -> float:
    return squared_mu(received.moves.sum(axis=1), received.noise)


def _bare(
    part: tuple[Hashable, float, float, float],
) -> tuple[Hashable, float, float, float]:
    """The same in a raw round: nobody's noise is there."""
    seen, p, moved, _ = part
    return seen, p, moved, 0.0


def _watched_release(training: Training, group: int) -> Iterator[tuple[Hashable, float, float, float]]:
    """Outcomes of a group's release: what is seen of the sample, probability, the unit's message, noise."""
    world = training.world
    rate, bound, std = world.rates[group], world.bounds[group], world.stds[group]
    receives = group in training.masters
    ours = len(training.workers & set(world.groups[group]))
    others = sum(training.kinds[group].values())
    tally: dict[tuple[Hashable, float, float], float] = defaultdict(float)
    for taken, honest, members in itertools.product((0, 1), range(others + 1), range(ours + 1)):
        p = (rate if taken else 1 - rate) * _binomial(others, honest, rate) * _binomial(ours, members, rate)
        if p == 0:
            continue
        noisers = taken + honest
        if receives and (not world.masked or members >= world.threshold(taken + honest + members)):
            noisers = taken
        heard = receives or (world.masked and members > 0)
        own = 0.0 if receives else std
        noise = own if world.trusted[group] else std * math.sqrt(noisers)
        seen: Hashable = (taken, round(noise, 12)) if heard else None
        tally[seen, bound * taken, noise] += p
    for (seen, moved, noise), p in tally.items():
        yield seen, p, moved, noise


def _binomial(tries: int, hits: int, rate: float) -> float:
    return math.comb(tries, hits) * rate**hits * (1 - rate) ** (tries - hits)


def _as_law(parts: list[tuple[Hashable, float, float, float]], factor: float) -> dict[float, float] | None:
    """Squared mu and its probability, where everything that matters is seen; else ``None``."""
    if len({seen for seen, _, _, _ in parts}) < len(parts):
        return None
    law: dict[float, float] = defaultdict(float)
    for _, p, moved, std in parts:
        law[(factor * moved / std) ** 2 if std else math.inf if moved else 0.0] += p
    return dict(law)


def _added(a: dict[float, float], b: dict[float, float]) -> dict[float, float]:
    total: dict[float, float] = defaultdict(float)
    for (x, p), (y, q) in itertools.product(a.items(), b.items()):
        total[x + y] += p * q
    return dict(total)
