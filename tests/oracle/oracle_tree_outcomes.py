"""What may happen in a round: who takes part, who drops out, who holds office; and who sees it.

A zone's devices fall into classes (the unit, members of the coalition, honest others; of equal weight and
noise), so what happens in it is told by how many of each class take part, and how many of these send.
Probabilities are exact: binomials, hypergeometric where a fixed number is drawn.

*Who sees it.* Whoever receives a zone's messages sees who sent one. Parties of a session of secure
aggregation learn who else is in it, from its keys; the cloud knows who is online where it picks the cohort
(docs/accounting.md). Everybody else sees nothing of it but what the received vectors tell.
"""

from __future__ import annotations

import itertools
import math
from collections import Counter, defaultdict
from collections.abc import Hashable, Iterator
from dataclasses import dataclass
from typing import NamedTuple

from oracle_tree_round import Round, ZoneStep


class Play(NamedTuple):
    """One outcome of a round in a zone: its probability, what the coalition sees, every aggregation."""

    probability: float
    seen: Hashable
    steps: tuple[ZoneStep, ...]


@dataclass(frozen=True)
class Class:
    """Alike devices of a zone: ``role`` is ``unit``, ``member`` or ``other``; ``stds`` by aggregation."""

    role: str
    weight: float
    stds: tuple[float, ...]


Counts = tuple[int, ...]
Office = tuple[bool, int | None]  # whether the coalition holds it; class of an honest holder it stands for


class ZonePlays:
    """Enumerates the plays of one zone.

    Args:
        game: world, unit and coalition.
        zone: which.
    """

    def __init__(self, game: Round, zone: int) -> None:
        world = game.world
        self.game, self.zone = game, zone
        tally: Counter[Class] = Counter()
        for device in world.zones[zone]:
            role = "unit" if device == game.unit else "member" if device in game.devices else "other"
            tally[Class(role, world.weights[device], world.device_std[device])] += 1
        self.classes = tuple(tally)
        self.sizes = tuple(tally.values())
        self.total = sum(self.sizes)
        self.members = self._of(self.sizes, "member")
        self.listens = (world.leaf_tier, zone) in game.nodes

    def plays(self, *, lean: bool) -> list[Play]:
        """All of them, merged where nothing tells them apart.

        Args:
            lean: others send nothing but noise: how many they are, and members' noise, do not matter then.
        """
        merged: dict[tuple[Hashable, tuple[ZoneStep, ...]], float] = defaultdict(float)
        for (probability, chosen), (share, office) in itertools.product(self._chosen(), self._terms()):
            each = [self._merged_step(chosen, step, office, lean=lean) for step in range(self.game.steps)]
            for way in itertools.product(*each):
                p = probability * share * math.prod(part for part, _, _ in way)
                if p > 0:
                    seen = (self._sees_draw(chosen), tuple(told for _, told, _ in way))
                    merged[seen, tuple(state for _, _, state in way)] += p
        return [Play(p, seen, steps) for (seen, steps), p in merged.items()]

    def _terms(self) -> list[tuple[float, Office | None]]:
        """Who may hold the zone's office, where it is held through several aggregations of a round."""
        if not self.game.world.elected or self.game.steps == 1:
            return [(1.0, None)]
        if not self.listens:
            none = (self.total - self.members) / self.total
            return [(1 - none, (True, None)), (none, (False, None))]
        certain = self.game.world.sends == 1 and self.game.world.draw[0] == "all"
        return [
            (size / self.total, (one.role != "unit", place if certain and one.role == "other" else None))
            for place, (one, size) in enumerate(zip(self.classes, self.sizes, strict=True))
        ]

    def _merged_step(
        self, chosen: Counts, step: int, term: Office | None, *, lean: bool
    ) -> list[tuple[float, Hashable, ZoneStep]]:
        merged: dict[tuple[Hashable, ZoneStep], float] = defaultdict(float)
        for probability, office, state in self._step(chosen, step, term):
            if lean:
                state = state._replace(rest_weight=0.0, known_var=0.0)
            knows = state.heard or (self._knows_draw(chosen) and self.game.world.sends == 1.0)
            merged[(office, state if knows else None), state] += probability
        return [(p, told, state) for (told, state), p in merged.items()]

    def ways(self) -> float:
        """How many ways `plays` has to go through."""
        chosen = math.prod(size + 1 for size in self.sizes) if self.game.world.draw[0] != "all" else 1
        sent = math.prod(size + 1 for size in self.sizes) if self.game.world.sends < 1 else 1
        return chosen * (sent * self.game.steps + min(1e9, float(sent) ** min(self.game.steps, 20)))

    def everybody(self) -> Play:
        """The play in which all take part and send, as if it were certain: for zones that cannot matter."""
        state = self._state(self.sizes, self.sizes, 0, formed=True, heard=self.listens)
        return Play(1.0, None, tuple(self._at(state, self.sizes, step) for step in range(self.game.steps)))

    def _of(self, counts: Counts, role: str) -> int:
        return sum(n for n, one in zip(counts, self.classes, strict=True) if one.role == role)

    def _chosen(self) -> Iterator[tuple[float, Counts]]:
        kind, numbers = self.game.world.draw
        if kind == "all":
            yield 1.0, self.sizes
            return
        number = numbers[self.zone]
        for counts in itertools.product(*(range(size + 1) for size in self.sizes)):
            if kind == "fixed" and sum(counts) != int(number):
                continue
            ways = math.prod(math.comb(n, k) for n, k in zip(self.sizes, counts, strict=True))
            if kind == "fixed":
                yield ways / math.comb(self.total, int(number)), counts
            else:
                took = sum(counts)
                yield ways * number**took * (1 - number) ** (self.total - took), counts

    def _knows_draw(self, chosen: Counts) -> bool:
        """Whether the coalition learns who of the zone takes part, whatever it receives."""
        world = self.game.world
        picks = world.cloud_draws and (0, 0) in self.game.nodes
        shares_keys = world.hops[-1] != "plain" and self._of(chosen, "member") > 0
        return picks or shares_keys or (self.listens and not world.elected)

    def _sees_draw(self, chosen: Counts) -> Hashable:
        """What of the draw the coalition sees; less than all of it where that cannot matter."""
        if self._knows_draw(chosen):
            return ("unit", self._of(chosen, "unit"))
        return ("members", self._of(chosen, "member")) if self.game.world.draw[0] == "fixed" else None

    def _step(
        self, chosen: Counts, step: int, term: Office | None
    ) -> Iterator[tuple[float, Hashable, ZoneStep]]:
        """Probability, what is seen of the office, and state, of all that may happen in an aggregation."""
        world = self.game.world
        if world.sends == 1.0:
            ways: Iterator[Counts] = iter([chosen])
        else:
            ways = itertools.product(*(range(n + 1) for n in chosen))
        for sent in ways:
            p = math.prod(
                math.comb(n, k) * world.sends**k * (1 - world.sends) ** (n - k)
                for n, k in zip(chosen, sent, strict=True)
            )
            for q, state, holder in self._endings(chosen, sent, step, term):
                yield p * q, (state.heard, holder), state

    def _endings(
        self, chosen: Counts, sent: Counts, step: int, term: Office | None
    ) -> Iterator[tuple[float, ZoneStep, Hashable]]:
        """How the sum's session, and the offices, end when these have sent."""
        world, senders = self.game.world, sum(sent)
        enough = 1.0
        if world.hops[-1] != "plain" and world.faulty:
            least = world.threshold(sum(chosen))
            enough = _at_least(senders, world.lasts, least)
        if not world.elected:
            for probability, formed in ((enough, True), (1 - enough, False)):
                if probability > 0:
                    state = self._state(chosen, sent, step, formed=formed, heard=self.listens)
                    yield probability, state._replace(met=formed), None
            return
        for probability, held, met, formed, less in self._offices(sent, enough, term):
            if probability > 0:
                state = self._state(chosen, sent, step, formed=formed, heard=held)
                spared = self.classes[less].stds[step] ** 2 if less is not None else 0.0
                rest = max(0.0, state.rest_var - spared)
                yield (
                    probability,
                    state._replace(met=met, rest_var=rest, known_var=state.known_var + spared),
                    less,
                )

    def _offices(
        self, sent: Counts, enough: float, term: Office | None
    ) -> Iterator[tuple[float, bool, bool, bool, int | None]]:
        """Every outcome of a zone's election.

        Yields:
            probability; whether the coalition holds office, whether messages are met, whether they are passed
            on; the class of an honest holder whose own noise the observer ``edge:c`` knows.
        """
        world, senders = self.game.world, sum(sent)
        yield 1 - enough, False, False, False, None
        if term is not None:  # held for the round, by nobody who fails
            yield enough, term[0], True, True, term[1]
            return
        stays = world.lasts**senders
        if world.hops[-1] != "plain":
            stays = stays / enough if enough > 0 else 0.0  # given that enough of them last
        successions = list(_succession(self.total, world.fails, min(1.0, stays), world.on_failure))
        if self.listens:
            certain = world.fails == 0 and world.sends == 1 and world.draw[0] == "all"
            for place, (one, size) in enumerate(zip(self.classes, self.sizes, strict=True)):
                less = place if certain and one.role == "other" else None
                for p, _, formed in successions:
                    yield enough * size / self.total * p, one.role != "unit", True, formed, less
            return
        for p, served, formed in successions:
            none = math.comb(self.total - self.members, served) / math.comb(self.total, served)
            yield enough * p * (1 - none), True, True, formed, None
            yield enough * p * none, False, True, formed, None

    def _state(self, chosen: Counts, sent: Counts, step: int, *, formed: bool, heard: bool) -> ZoneStep:
        world = self.game.world
        weight = sum(n * one.weight for n, one in zip(chosen, self.classes, strict=True))
        masked = world.hops[-1] != "plain"
        state = ZoneStep(
            unit=self._of(sent, "unit") > 0,
            rest_var=0.0,
            rest_weight=sum(
                n * one.weight for n, one in zip(sent, self.classes, strict=True) if one.role == "other"
            ),
            known_var=0.0,
            denominator=world.denominator(self.zone, weight),
            formed=formed,
            heard=heard,
            opened=masked and heard and self._of(sent, "member") >= world.threshold(sum(chosen)),
        )
        return self._at(state, sent, step)

    def _at(self, state: ZoneStep, sent: Counts, step: int) -> ZoneStep:
        """The state with the noise of these senders in aggregation ``step``."""
        spread = {"other": 0.0, "member": 0.0, "unit": 0.0}
        for n, one in zip(sent, self.classes, strict=True):
            spread[one.role] += n * one.stds[step] ** 2
        return state._replace(rest_var=spread["other"], known_var=spread["member"])


def _at_least(tries: int, rate: float, least: int) -> float:
    """Probability of at least so many successes."""
    return sum(
        math.comb(tries, k) * rate**k * (1 - rate) ** (tries - k) for k in range(max(0, least), tries + 1)
    )


def _succession(
    parties: int, fails: float, stays: float, on_failure: str
) -> Iterator[tuple[float, int, bool]]:
    """Probability, how many supernodes met the messages, and whether the zone's average was then sent.

    ``repeat``: one after another, until one does not fail, if all whose message was met stay (``stays``);
    else the zone sits the round out after the first. ``skip``: it sits out when the first fails.
    """
    yield 1 - fails, 1, True
    if fails == 0:
        return
    if on_failure == "skip":
        yield fails, 1, False
        return
    yield fails * (1 - stays), 1, False
    for served in range(2, parties + 1):
        yield fails ** (served - 1) * (1 - fails) * stays, served, True
    yield fails**parties * stays, parties, False
