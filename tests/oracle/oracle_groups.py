"""What a coalition can learn of a worker in groups, at least: the oracle for groups.

Three kinds of attacks, each one that really can be made (so what comes out is a lower bound of the true
epsilon):

- *everybody is always sampled*: all that the coalition receives is Gaussian (`oracle_group_play`), whoever
  links;
- *the coalition watches a group of the unit's*: releases of that group alone, each an independent experiment
  (a fresh sample, a fresh noise, the others sending zeros): who sees the sample (a master that receives
  messages; a party of a session of secure aggregation, which knows the session's other parties) meets the
  noise of those who are in it, who does not meets a mixture; messages may be lost on their way;
- *only groups of the unit's sample, and they are hidden*: whether it was sampled, in each of its releases, is
  the mixture's outcome; what the others pass on is Gaussian given that.

``ms-fedavg`` sends models without noise: whatever reaches the coalition tells the unit's contribution.
"""

from __future__ import annotations

import itertools
import math
from collections import Counter, defaultdict
from collections.abc import Hashable, Iterator
from dataclasses import replace

import numpy as np
from oracle_gaussian import SLACK, composed, is_rare, mixture_epsilon, room_for
from oracle_group_play import Received, Rule, Training, rules
from oracle_group_world import GroupWorld
from oracle_mixture import Experiment, Part, experiments_epsilon
from oracle_record_laws import MessageLaw
from oracle_record_play import added, apart, projected
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

    def answer(self, unit: int, observer: str, *, record: bool = False) -> Answer:
        """The largest epsilon found of a worker, or of one of its records, towards a coalition."""
        world = self.world
        masters, workers = world.parse(observer)
        if not record:
            return self._answer(Training(world, unit, masters, workers))
        if world.kind not in ("dp-ogl", "dp-ogl-local"):
            return Answer(0.0, "raw rounds of records", complete=False)
        laws = world.records.laws(unit, world.pieces, replaced=world.replace)
        found = [self._answer(Training(world, unit, masters, workers, law)) for law in laws]
        return max(found, key=lambda one: one.epsilon)

    def _answer(self, training: Training) -> Answer:
        world, homes = self.world, self.world.groups_of[training.unit]
        if world.kind == "ms-fedavg":
            return self._unnoised(training)
        lossy = world.sends * world.lasts < 1
        if all(rate == 1 for rate in world.rates) and not lossy:
            return self._sure(training) if training.law is None else self._sure_records(training)
        direct = set(homes) & training.watched
        if direct:
            return Answer(self._direct(training, sorted(direct)), "the groups watched alone")
        relays_sure = all(rate == 1 for group, rate in enumerate(world.rates) if group not in homes)
        few = len(training.messages) <= MOST_MESSAGES and not lossy and training.law is None
        if relays_sure and few and all(world.trusted) and not world.counts:
            return self._relayed(training)
        return Answer(0.0, "relays are sampled", complete=False)

    def _sure_records(self, training: Training) -> Answer:
        """Everybody always takes part; what the unit's messages are is drawn with the record."""
        best = Answer(self._drawn_epsilon(training, training.play(Rule())), "passive")
        linked = len(self.world.groups_of[training.unit]) > 1
        for rule in rules(self.world, joining=True) if linked and len(self.world.releases) > 1 else ():
            careful = replace(rule, reach=room_for(best.epsilon if math.isfinite(best.epsilon) else 0.0))
            received = training.play(careful)
            found = self._drawn_epsilon(training, received)
            if found > best.epsilon and is_rare(received.failure, found, self.world.delta):
                best = Answer(found, f"others and the unit pass on {careful}")
        return best

    def _drawn_epsilon(self, training: Training, received: Received) -> float:
        assert training.law is not None
        laws = [training.law] * len(training.messages)
        delta = self.world.delta * (1 + SLACK) if received.failure else self.world.delta
        blocks = apart(received.moves, received.noise, laws)
        if blocks is not None:
            tally = Counter(blocks)
            return experiments_epsilon([replace(one, times=times) for one, times in tally.items()], delta)
        if not received.moves.any():
            return 0.0
        direction = best_direction(received.moves.sum(axis=1), received.noise)
        both = projected(received, direction, laws, 1.0)
        if both is None:
            return 0.0
        with_record, without = (tuple(Part(None, *one) for one in world) for world in both)
        return experiments_epsilon([Experiment(with_record, without)], delta)

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
            law = _law(training, group)
            with_unit = _played(parts, law.with_record)
            without = _played(parts, law.without)
            experiments.append(Experiment(with_unit, without, times))
            sure = training.law is None
            bound = world.bounds[group] * (2.0 if world.replace else 1.0)
            laws.append(_as_law(parts, bound) if sure else {})
        if all(laws):
            total: dict[float, float] = {0.0: 1.0}
            for squared, experiment in zip(laws, experiments, strict=True):
                total = added(total, composed(squared, experiment.times))
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


def _law(training: Training, group: int) -> MessageLaw:
    """Of the unit's message to a group, if it is sent."""
    scale = training.scale(group)
    if training.law is None:
        other = -scale / 2 if training.world.replace else 0.0
        return MessageLaw(((1.0, scale + other),), ((1.0, other),))
    with_record, without = (
        tuple((p, scale * value) for p, value in law)
        for law in (training.law.with_record, training.law.without)
    )
    return MessageLaw(with_record, without)


def _played(
    parts: list[tuple[Hashable, float, float, float]], law: tuple[tuple[float, float], ...]
) -> tuple[Part, ...]:
    """Parts in which a message of this law is there or not."""
    return tuple(
        Part(seen, p * q, value, std)
        for seen, p, there, std in parts
        for q, value in (law if there else ((1.0, 0.0),))
    )


def _watched_release(training: Training, group: int) -> Iterator[tuple[Hashable, float, float, float]]:
    """Outcomes of a group's release: what is seen of it, probability, whether the unit is in it, noise."""
    world = training.world
    ours = len(training.workers & set(world.groups[group]))
    others = sum(training.kinds[group].values())
    tally: dict[tuple[Hashable, float, float], float] = defaultdict(float)
    for taken, honest, members in itertools.product((0, 1), range(others + 1), range(ours + 1)):
        p = _drawn(world, group, (1, others, ours), (taken, honest, members))
        if p == 0:
            continue
        lost = world.sends < 1
        for sent in itertools.product(*(range(n + 1) if lost else (n,) for n in (taken, honest, members))):
            q = p * math.prod(
                _binomial(n, k, world.sends) for n, k in zip((taken, honest, members), sent, strict=True)
            )
            if q == 0:
                continue
            for r, formed in _formed(world, taken + honest + members, sum(sent)):
                outcome = _outcome(training, group, (taken, honest, members), sent, formed=formed)
                tally[outcome] += q * r
    for (seen, there, noise), p in tally.items():
        if p > 0:
            yield seen, p, there, noise


def _outcome(
    training: Training,
    group: int,
    drawn: tuple[int, int, int],
    sent: tuple[int, int, int],
    *,
    formed: bool,
) -> tuple[Hashable, float, float]:
    """What is seen of a release, whether the unit is in it, and the noise that the coalition meets."""
    world, std = training.world, training.world.stds[group]
    receives = group in training.masters
    noisers = sent[0] + sent[1]
    if receives and (not world.masked or sent[2] >= world.threshold(sum(drawn))):
        noisers = sent[0]
    own = 0.0 if receives else std
    noise = own if world.trusted[group] else std * math.sqrt(noisers)
    there, noise = (float(sent[0]), noise) if formed else (0.0, 0.0)
    seen: Hashable = None
    if receives:
        seen = (there, round(noise, 12))
    elif world.masked and drawn[2] > 0:
        seen = ("session", drawn if world.sends < 1 else (there, round(noise, 12)))
    elif world.counts:
        seen = ("members", drawn[2])
    return seen, there, noise


def _drawn(world: GroupWorld, group: int, sizes: tuple[int, int, int], taken: tuple[int, int, int]) -> float:
    """Probability that so many of these workers of a group are drawn."""
    if not world.counts:
        return math.prod(_binomial(n, k, world.rates[group]) for n, k in zip(sizes, taken, strict=True))
    count = world.counts[group]
    if sum(taken) != count:
        return 0.0
    ways = math.prod(math.comb(n, k) for n, k in zip(sizes, taken, strict=True))
    return ways / math.comb(sum(sizes), count)


def _formed(world: GroupWorld, drawn: int, sent: int) -> list[tuple[float, bool]]:
    """Whether a sum of so many messages is released, and how likely."""
    if not world.masked or not world.faulty:
        return [(1.0, True)]
    enough = sum(_binomial(sent, k, world.lasts) for k in range(world.threshold(drawn), sent + 1))
    return [(p, formed) for p, formed in ((enough, True), (1 - enough, False)) if p > 1e-15]


def _binomial(tries: int, hits: int, rate: float) -> float:
    return math.comb(tries, hits) * rate**hits * (1 - rate) ** (tries - hits)


def _as_law(parts: list[tuple[Hashable, float, float, float]], bound: float) -> dict[float, float] | None:
    """Squared mu and its probability, where everything that matters is seen; else ``None``."""
    if len({seen for seen, _, _, _ in parts}) < len(parts):
        return None
    law: dict[float, float] = defaultdict(float)
    for _, p, moved, std in parts:
        law[(bound * moved / std) ** 2 if std else math.inf if moved else 0.0] += p
    return dict(law)
