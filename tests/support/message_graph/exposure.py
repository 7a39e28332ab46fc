"""The exposures of a unit towards a coalition, computed from the graph: flow, cut and any set in between."""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence, Set
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Literal, NamedTuple

from message_graph.audience import Coalition, received
from message_graph.dependence import Dependence, upstream
from message_graph.drawn_noise import NoiseOfOthers
from message_graph.innovations import Coordinate, Innovation, Innovations
from message_graph.noise import SureNoise
from message_graph.vectors import Cohort, Key, Message, MessageGraph, Sum
from sfumato.privacy.divergence import cheaper_split
from sfumato.privacy.observers import Party
from sfumato.privacy.received import fixed_draw, noise_is_draw_independent
from sfumato.privacy.release import DrawnReleases, Exposure, Release, merged_draws
from sfumato.privacy.sampling import Sampling


class _Charged(NamedTuple):
    """One release, the cohort whose draw decides about it, whether it has that draw to itself, and which sum
    it is."""

    release: Release
    cohort: Cohort
    times: int
    own_draw: bool
    sum_key: Key | None = None


@dataclass(frozen=True, eq=False)
class GraphExposures:
    """What is charged for one unit towards one coalition.

    Attributes:
        graph: the vectors.
        unit: class of the unit.
        coalition: who pools knowledge.
        exposed: sums that are exposed: those received, and those given away.
    """

    graph: MessageGraph
    unit: Key
    coalition: Coalition
    exposed: Set[Key]

    @cached_property
    def _dependence(self) -> Dependence:
        return Dependence(self.graph, self.unit, self.exposed)

    def exposure(self, bound_name: Literal["flow", "cut", "min-cost"]) -> Exposure:
        """All that is charged."""
        by_draw: dict[object, tuple[Cohort, list[_Charged]]] = {}
        apart: Counter[tuple[Key, Release]] = Counter()
        for step in self.graph.steps.values():
            for charged in self._of_step(step):
                if charged.own_draw:
                    apart[charged.cohort.occasion, charged.release] += charged.times
                else:
                    name = (charged.cohort.occasion, bool(charged.release.own_sensitivity))
                    by_draw.setdefault(name, (charged.cohort, []))[1].append(charged)
        cohorts = {cohort.occasion: cohort for cohort in self.graph.cohorts.values()}
        draws = [self._of_one_draw(cohort, found) for cohort, found in by_draw.values()]
        draws += [self._drawn_apart(cohorts[name], release, n) for (name, release), n in apart.items()]
        return Exposure(bound_name, merged_draws(draws), self.graph.groups_draw_separately)

    def _of_one_draw(self, cohort: Cohort, found: Sequence[_Charged]) -> DrawnReleases:
        """The releases that one draw serves, with what others add if they are drawn."""
        drawn = self._drawn(cohort, tuple(charged.release for charged in found), 1)
        others = NoiseOfOthers(self.graph, self.unit, self.coalition)
        if not others.counts_under(cohort):
            return drawn
        added = [{} if charged.sum_key is None else others.in_sum(charged.sum_key) for charged in found]
        return replace(drawn, drawn_noise=others.of_draw(added))

    def _drawn_apart(self, cohort: Cohort, release: Release, times: int) -> DrawnReleases:
        """A release of one sender of several, each drawn by itself; of a fixed number they count as drawn."""
        drawn = self._drawn(cohort, (release,), times)
        if cohort.kind != "fixed":
            return drawn
        return replace(drawn, sampling=Sampling(hidden=drawn.sampling.hidden), max_weight_ratio=1.0)

    def _drawn(self, cohort: Cohort, releases: tuple[Release, ...], times: int) -> DrawnReleases:
        hidden, count = self.coalition.is_blind_to(cohort), times * self.graph.repeats
        if cohort.kind != "fixed":
            return DrawnReleases(Sampling(cohort.kind, cohort.rate, hidden), releases, count)
        sampling = fixed_draw(
            devices=sum(self.graph.classes[key].count for key in cohort.classes),
            sample=round(cohort.drawn),
            members=sum(self.coalition.members[key] for key in cohort.classes),
            hidden=hidden,
        )
        mine = self.graph.classes[self.unit].weight
        heaviest = max(self.graph.classes[key].weight for key in cohort.classes)
        return DrawnReleases(sampling, releases, count, heaviest / mine if mine else 1.0)

    # --- one step -------------------------------------------------------------------------------

    def _of_step(self, step: Sequence[Message | Sum]) -> Iterator[_Charged]:
        alone = [
            vector
            for vector in step
            if isinstance(vector, Message) and self.coalition.receives(self.graph, vector.key)
        ]
        told: set[Coordinate] = set()
        yield from self._alone(alone, told)
        sums = [vector for vector in step if isinstance(vector, Sum) and vector.key in self.exposed]
        known = {message.key for message in alone}
        found = self._of_sums(sums, known, told, unit_present=True)
        for key, innovation in found.items():
            vector, variance = self.graph.sums[key], innovation.variance
            if self._tells_hidden(vector, innovation) and self._may_lose_unit(vector):
                silent = self._of_sums(sums, known, told, unit_present=False)
                variance = min(variance, silent[key].variance if key in silent else variance)
            yield from self._split(vector, self._charged(vector, replace(innovation, variance=variance)))

    def _alone(self, messages: Sequence[Message], told: set[Coordinate]) -> Iterator[_Charged]:
        """Messages that are received one by one; those without noise count as one, whoever sent them."""
        bare: dict[Key, list[tuple[Message, float, bool]]] = {}
        room = self._linking_counts(messages, with_unit=False)
        for message in messages:
            cohort, own, linked = self.graph.cohort_of(message), 0.0, False
            if message.sender == self.unit and ("own", _whose(message)) not in told:
                own = self._dependence.own_norm(message)
            if self._dependence.links(message) and ("others", _whose(message)) not in told:
                linked = True
            told |= {("own", _whose(message)), ("others", _whose(message))} if not message.variance else set()
            if not message.variance:
                bare.setdefault(message.cohort, []).append((message, own, linked))
                continue
            one = Release("", "", own, 0.0, message.variance, cohort.kind == "all")
            if own:
                yield _Charged(one, cohort, 1, own_draw=False)
            if linked:
                yield _Charged(self._of_one_link(message, one), cohort, room[message.key], own_draw=True)
        for found in bare.values():
            release = self._without_noise(found)
            if release.own_sensitivity or release.propagated_sensitivity:
                yield _Charged(release, self.graph.cohort_of(found[0][0]), 1, own_draw=False)

    def _of_one_link(self, message: Message, one: Release) -> Release:
        """What one linking sender of a message may move it by."""
        moved, before = (
            2.0 * self._dependence.moved_norm(message),
            self._dependence.links_from_before(message),
        )
        return replace(one, own_sensitivity=0.0, propagated_sensitivity=moved, linking=int(before))

    def _without_noise(self, found: Sequence[tuple[Message, float, bool]]) -> Release:
        """Messages of one draw without noise, each with the unit's own part and whether others link."""
        own = math.fsum(part for _, part, _ in found)
        links = [message for message, _, linked in found if linked]
        norm = self._dependence.moved_norm
        with_unit, alone = (
            math.fsum(2.0 * room[message.key] * norm(message) for message in links)
            for room in (self._linking_counts(links, with_unit=taken) for taken in (True, False))
        )
        before = [message for message in links if self._dependence.links_from_before(message)]
        linking = sum(map(self._dependence.others, before))
        kind = self.graph.cohort_of(found[0][0]).kind
        return Release("", "", own, max(with_unit, alone - own), 0.0, kind == "all", linking=linking)

    def _of_sums(
        self, sums: Sequence[Sum], known: Set[Key], told: Set[Coordinate], *, unit_present: bool
    ) -> dict[Key, Innovation]:
        """What each sum adds; ``known`` messages and ``told`` contributions are no secret any more."""
        noise = SureNoise(self.graph, self._dependence, self.coalition, unit_present)
        rows = []
        for vector in sums:
            sources = {
                source: weight
                for source, weight in noise.of(vector.key).items()
                if not (isinstance(source, tuple) and source[0] in ("unit", "others") and source[1] in known)
            }
            rows.append((vector.key, sources, self._shift(vector, known, told)))
        innovations, found = Innovations(noise.variances), {}
        for key, sources, shift in sorted(rows, key=lambda row: bool(row[2])):
            innovation = innovations.add(sources, shift)
            if innovation is not None:
                found[key] = innovation
        return found

    def _shift(self, vector: Sum, known: Set[Key], told: Set[Coordinate]) -> dict[Coordinate, float]:
        """What of a sum depends on the unit: contributions, and hidden models that it holds."""
        found: defaultdict[Coordinate, float] = defaultdict(float)
        for term in vector.terms:
            if term.key in self.graph.sums:
                below = self._shift(self.graph.sums[term.key], known, told)
                for name, weight in below.items():
                    found[name] += term.weight * weight
                continue
            message = self.graph.messages[term.key]
            if term.key in known:
                continue
            if message.sender == self.unit:
                found["own", _whose(message)] += term.weight
            if self._dependence.links(message):
                found["others", _whose(message)] += term.weight
        for key in vector.carries:
            if key in self._dependence.hidden_reached:
                found["carried", key] += 1.0
        return {name: weight for name, weight in found.items() if name not in told and weight}

    def _tells_hidden(self, vector: Sum, innovation: Innovation) -> bool:
        """Whether what was hidden may reach a sum although the unit is silent, or is sent again in it."""
        if self._holds_hidden(innovation) or any(kind == "others" for kind, _ in innovation.shift):
            return True
        mine = (m for m in self.graph.messages_in[vector.key] if m.sender == self.unit and m.repeats)
        return any(key in self._dependence.hidden_reached for m in mine for key in m.inputs)

    def _holds_hidden(self, innovation: Innovation) -> bool:
        return any(name[0] == "carried" for name in innovation.shift)

    def _may_lose_unit(self, vector: Sum) -> bool:
        cohorts = map(self.graph.cohort_of, self.graph.messages_in[vector.key])
        return any(
            self.unit in cohort.classes and (cohort.may_lose_members or not cohort.is_always_sent)
            for cohort in cohorts
        )

    # --- sensitivities --------------------------------------------------------------------------

    def _charged(self, vector: Sum, innovation: Innovation) -> _Charged:
        messages = self._moving(vector, innovation)
        own, moved = self._sensitivities(innovation.shift, messages)
        if self._moves_without_unit(messages):
            moved = max(moved, self._sensitivities(innovation.shift, messages, with_unit=False)[1] - own)
        repeated = any(m.repeats and self.unit in self.graph.cohort_of(m).classes for m in messages)
        if any(m.rounded for m in messages) and (self._holds_hidden(innovation) or (repeated and moved)):
            moved = math.inf  # nothing bounds how far a rounded message moves, given its noise
        of_unit = [m for m in messages if m.sender == self.unit]
        of_links = [m for m in messages if self._dependence.links(m)]
        cohort = self.graph.cohort_of((of_unit or of_links)[0])
        before = [m for m in of_links if self._dependence.links_from_before(m)]
        release = Release(
            vector.name,
            vector.vector,
            own,
            moved,
            innovation.variance,
            self._draw_independent(vector, cohort),
            cohort.divides_by_drawn,
            sum(map(self._dependence.others, before)),
            self.graph.replaced_amplify,
        )
        return _Charged(release, cohort, 1, own_draw=False, sum_key=vector.key)

    def _moving(self, vector: Sum, innovation: Innovation) -> Sequence[Message]:
        """The messages in a sum, and those that are only in sums of its step that were taken off it."""
        messages = self.graph.messages_in[vector.key]
        missing = {name for kind, name in innovation.shift if kind != "carried"} - set(map(_whose, messages))
        if not missing:
            return messages
        step = (one for one in self.graph.steps[vector.step] if isinstance(one, Message))
        return (*messages, *(message for message in step if _whose(message) in missing))

    def _split(self, vector: Sum, charged: _Charged) -> Iterator[_Charged]:
        """A sum in which senders alone add noise, and are drawn for it alone: in messages if that is less."""
        alone = self.graph.groups_draw_separately and not self.graph.replaced_amplify
        if not alone or charged.cohort.kind != "poisson" or any(noise.variance for noise in vector.noise):
            yield charged
            return
        for part, times in cheaper_split(charged.release, charged.cohort.rate):
            yield _Charged(part, charged.cohort, times, own_draw=times > 1)

    def _draw_independent(self, vector: Sum, cohort: Cohort) -> bool:
        messages = self.graph.messages_in[vector.key]
        return noise_is_draw_independent(
            cohort.kind,
            sender_variances=[m.variance for m in messages if self.graph.cohort_of(m) == cohort],
            drawn=cohort.drawn,
            guaranteed=cohort.guaranteed,
            always_sent=cohort.is_always_sent,
            divides_by_drawn=cohort.divides_by_drawn,
            revealed_otherwise=vector.reveals_draw,
        )

    def _moves_without_unit(self, messages: Sequence[Message]) -> bool:
        """Whether others move a sum, drawn for it by a draw of its own, in which the unit has a place."""
        return self.graph.groups_draw_separately and any(map(self._dependence.links_from_before, messages))

    def _sensitivities(
        self, shift: Mapping[Coordinate, float], messages: Sequence[Message], *, with_unit: bool = True
    ) -> tuple[float, float]:
        """How far the unit's own part moves, and how far everybody else's, at most."""
        own, moved = 0.0, 0.0
        linking = self._linking_counts(messages, with_unit=with_unit)
        of_sender = {_whose(message): message for message in messages}
        for (kind, key), weight in shift.items():
            if kind == "own":
                own += abs(weight) * self._dependence.own_norm(of_sender[key])
            elif kind == "others":
                message = of_sender[key]
                moved += abs(weight) * 2.0 * linking[message.key] * self._dependence.moved_norm(message)
            else:
                held = self.graph.sums[key]
                before = self._shift(held, frozenset(), frozenset())
                more_own, more_moved = self._sensitivities(before, self.graph.messages_in[key])
                own, moved = own + abs(weight) * more_own, moved + abs(weight) * more_moved
        return own, moved

    def _linking_counts(self, messages: Sequence[Message], *, with_unit: bool) -> dict[Key, int]:
        """How many linking senders of each message may take part at once: of a fixed number, the heaviest."""
        found: dict[Key, int] = {}
        left: dict[Key, float] = {}
        norm = self._dependence.moved_norm
        for message in sorted(messages, key=lambda message: -norm(message)):
            cohort, others = self.graph.cohort_of(message), self._dependence.others(message)
            if cohort.kind == "fixed":
                taken = with_unit and self.unit in cohort.classes
                room = left.setdefault(message.cohort, cohort.drawn - taken)
                others = min(others, round(room))
                left[message.cohort] = room - others
            found[message.key] = others
        return found


def _whose(message: Message) -> Key:
    """Names what a class contributes to one cohort at a step; a later phase of the step holds it again."""
    return message.sender, message.cohort


def flow(
    graph: MessageGraph, unit: int, coalition: Sequence[Party], *, through_unit: bool = False
) -> Exposure:
    """Everything upstream of what the coalition receives is charged (see `dependence.upstream`)."""
    own, pooled = graph.class_of(unit), Coalition.of(graph, coalition)
    seen = _seen(graph, pooled)
    exposed = upstream(graph, own, seen, through_unit=through_unit)
    return GraphExposures(graph, own, pooled, exposed).exposure("flow")


def cut(graph: MessageGraph, unit: int, coalition: Sequence[Party]) -> Exposure:
    """Only what the coalition receives is charged."""
    pooled = Coalition.of(graph, coalition)
    return GraphExposures(graph, graph.class_of(unit), pooled, _seen(graph, pooled)).exposure("cut")


def between(graph: MessageGraph, unit: int, coalition: Sequence[Party], given: Set[Key]) -> Exposure:
    """What the coalition receives and the sums ``given`` away are charged."""
    pooled = Coalition.of(graph, coalition)
    exposed = _seen(graph, pooled) | given
    return GraphExposures(graph, graph.class_of(unit), pooled, exposed).exposure("min-cost")


def _seen(graph: MessageGraph, coalition: Coalition) -> frozenset[Key]:
    return frozenset(key for key in received(graph, coalition) if key in graph.sums)
