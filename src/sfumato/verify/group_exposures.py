"""The releases that a coalition meets in overlapping groups, and a certificate against them."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator, Sequence
from itertools import product
from typing import Any

import numpy as np

from sfumato.verify import read
from sfumato.verify.comparison import ROUNDING
from sfumato.verify.draws import Draw
from sfumato.verify.group_structure import CheckedGroupStructure
from sfumato.verify.parties import Party
from sfumato.verify.read import Json
from sfumato.verify.releases import MOST_COMPARED, ExpectedRelease, release_problems, sampling_problems

_SINGLE = "single messages"


class CheckedGroups(CheckedGroupStructure):
    """Overlapping groups, and the releases that a coalition meets in them."""

    def charged_sums(self, unit: int, exposed: Sequence[int]) -> tuple[Counter[Any], Counter[Any]]:
        """Count the sums to charge for a unit if the first ``exposed[g]`` releases of group g are exposed.

        A hidden model holds the unit's data once the unit, or a worker that started from such a model, was in
        its group. A worker starts from its own group's model, or, at a merging step, from those of all its
        groups.

        Returns:
            Two counters: of (group, era, whether the unit contributes, workers that link), and of (group,
            era) in which the unit itself starts from models of which one is hidden.
        """
        until = np.array(exposed)
        others = self.sizes.copy()
        others[self.kind_of[unit]] -= 1
        held = np.zeros(self.groups, dtype=np.bool_)
        sums: Counter[Any] = Counter()
        unknown: Counter[Any] = Counter()
        cache: dict[Any, Any] = {}
        for step in range(1, self.steps + 1):
            era, merging, shown = self.era_of_step(step), self.merges(step), until >= step
            own = self.inside[era][unit]
            key = era, merging, held.tobytes(), shown.tobytes()
            if key not in cache:
                linking = np.zeros(self.groups)
                if merging:
                    several = (self.kinds[era].sum(axis=1) > 1) & (others > 0)
                    reached = (self.kinds[era] & held).any(axis=1) & several
                    linking = (others * reached) @ self.kinds[era]
                rows = [
                    (int(g), era, bool(own[g]), int(linking[g]))
                    for g in np.flatnonzero(shown & (own | (linking > 0)))
                ]
                cache[key] = rows, ~shown & (held | own | (linking > 0))
            rows, held = cache[key]
            sums.update(rows)
            if merging and own.sum() > 1 and (until[own] < step - 1).any():
                unknown.update((int(g), era) for g in np.flatnonzero(own & shown))
        return sums, unknown

    def exposable_sets(self, unit: int, coalition: Sequence[Party]) -> tuple[list[list[int]], bool]:
        """Sets that may be exposed to ``coalition`` for ``unit``, each a number of first releases by group.

        Once a release is hidden, later ones determine nothing until workers start from the mean of several
        groups' models, or the structure changes. Where there are too many sets, only the smallest and the
        largest are returned, with ``False``. Returned with whether these are all sets.
        """
        seen = self.received_releases(coalition)
        reach = self.releases_upstream(unit, seen)
        ends = [s for s in range(1, self.steps) if self.merges(s + 1) or s + 1 in self.era_starts]
        choices = [
            [least, *(s for s in ends if least < s < most), *([most] if most > least else [])]
            for least, most in zip(seen, reach, strict=True)
        ]
        if math.prod(map(len, choices)) * self.steps > MOST_COMPARED:
            return [seen, reach], False
        return [list(one) for one in product(*choices)], True

    def squared_mu_of_set(
        self, exposed: Sequence[int], unit: int, coalition: Sequence[Party], relation: str
    ) -> float | None:
        """Σ μ² of a set of exposed releases under ``relation``; ``None`` where workers are drawn.

        Args:
            exposed: number of exposed releases by group.
            unit: index of the worker.
            coalition: the observers.
            relation: ``zero-out``, ``remove`` or ``replace``.
        """
        if self.ledger.get("cohort_per_group") or self.raw_inside:
            return None
        if any(float(rate) != 1 for rate in self.ledger["poisson_rate_per_group"]):
            return None
        seen = self.received_releases(coalition)
        return math.fsum(
            count * times * release.squared_mu(relation)
            for row, count in self.charged_sums(unit, exposed)[0].items()
            for release, _, times in self.releases(row, seen, coalition)
        )

    def releases(
        self, row: tuple[int, int, bool, int], seen: Sequence[int], coalition: Sequence[Party],
        *, composed: bool = False,
    ) -> list[tuple[ExpectedRelease, Json, int]]:  # fmt: skip
        """The releases of one charged sum that the coalition receives, each with its draw and how often.

        Several where single messages are received. ``row``: group, era, whether the unit contributes, and how
        many workers link (`charged_sums`); ``seen``: releases of each group that the coalition receives;
        ``composed``: count noise also where its law is not one that is composed.
        """
        group, era, own, linking = row
        members = [i for kind, _, i in coalition if kind == "device"]
        size = int(self.inside[era][:, group].sum())
        known = sum(bool(self.inside[era][i, group]) for i in members)
        master = self.masters_in(coalition).get(group)
        rate, count = self._rate_and_cohort(group, size)
        norm = self.message_bound(group)
        each, moving = (norm * float(self.ledger["noise_multiplier_per_group"][group])) ** 2, linking
        each *= self.kind != "ms-fedavg" and (composed or "noise_not_composed" not in self.ledger)
        if self.raw_inside and (master is not None or seen[group]):
            each = 0.0
        elif self.raw_inside:
            moving = size - own
        others = 2.0 * moving
        if count is not None and own + moving > count:
            # the unit and all but one of those drawn, or all of these without the unit
            others = max(2.0 * (count - own), 2.0 * count - own if linking or not own else 0.0)
        name = f"group {group}" + (f", {linking} linking" if linking else "")
        sure = rate == 1
        drawn: Json = {"kind": "all" if sure else "poisson", "rate": rate, "hidden": False}
        by_devices = self.devices_add_noise[group]
        if count is not None:
            room = size - known
            drawn = {**drawn, "kind": "fixed", "population": room, "sample": min(count, room)}
        if by_devices and master:
            noise = np.array([each, 0.0, 0.0])
            mine = ExpectedRelease(name, _SINGLE, norm, 0.0, noise, sure)
            linked = mine._replace(own=0.0, others=2 * norm, linking=1)
            # of a fixed number workers are not drawn independently: those there is room for count as drawn
            theirs = drawn if count is None else {"kind": "all", "rate": 1.0, "hidden": False}
            times = linking if count is None else min(linking, count)
            return [(mine, drawn, 1)] * own + [(linked, theirs, times)] * (linking > 0)
        least = self._least_survivors(group, era)
        if by_devices:
            noisers = own + linking
            if sure or count is not None:
                # members fill the places that those who move the sum leave, of all drawn or of who is left
                most = size if count is None else count
                noisers = max((most if least is None else least) - known, min(most, own + linking))
            noise = np.array([each * noisers, 0.0, 0.0])
        else:
            noise = np.array([0.0, 0.0 if master is not None else each, 0.0])
        hidden = master is None and not (known and self.ledger["transport"] == "secure-aggregation")
        independent = self._is_sum_independent_of_draw(group, sure, count, least)
        found = ExpectedRelease(
            name, f"the sum of group {group}", own * norm, others * norm, noise, independent,
            linking=linking, amplifies_propagated=self.raw_inside,
        )  # fmt: skip
        return [(found, {**drawn, "hidden": hidden}, 1)]

    def _is_sum_independent_of_draw(
        self, group: int, sure: bool, count: int | None, least: int | None
    ) -> bool:
        """Whether neither the noise of a sum nor its being sent depends on who is drawn.

        Args:
            group: whose sum it is.
            sure: whether the rate of the draw is 1.
            count: workers drawn where that is a fixed number.
            least: fewest messages in a sum where messages may be lost.
        """
        if sure and count is None:
            return True
        noisy = self.devices_add_noise[group] and float(self.ledger["noise_multiplier_per_group"][group])
        noisy = bool(noisy) and self.kind != "ms-fedavg"
        if least is None:
            return count is not None or not noisy  # as many add noise, whoever they are
        # a session that may end without a sum tells of the draw; so does the noise of who is left
        return self.ledger["transport"] != "secure-aggregation" and not noisy

    def messages_behind(
        self, row: tuple[int, int, bool, int], found: ExpectedRelease
    ) -> list[tuple[ExpectedRelease, int]]:
        """Single messages that may be charged in place of the sum ``found``, and how many of each.

        They are the unit's own and those of workers that link, each with an equal part of the sum's noise. []
        where workers are not drawn, masters add the noise, or single messages are received anyway. ``row``:
        as of `releases`.
        """
        group, _, own, linking = row
        drawn = float(self.ledger["poisson_rate_per_group"][group]) < 1 and not self.raw_inside
        is_sum = found.vector != _SINGLE and own + linking > 1
        if not (drawn and self.devices_add_noise[group] and is_sum):
            return []
        each = found._replace(vector=f"messages of {found.vector}", noise=found.noise / (own + linking))
        linked = each._replace(own=0.0, others=found.others / linking, linking=1)
        return [(each._replace(others=0.0, linking=0), 1)] * own + [(linked, linking)]

    def record_noise_problems(
        self, parts: Sequence[Json], table: Sequence[Json], exposed: Sequence[int], unit: int,
        coalition: Sequence[Party], gaussian: bool,
    ) -> Iterator[str]:  # fmt: skip
        """Yield a line where a record's charge counts more noise, or noise more often, than the sums have.

        Args:
            parts: of the record's charge in the certificate.
            table: all releases, which parts name by index.
            exposed: number of exposed releases by group.
            unit: index of the worker.
            coalition: who observes together.
            gaussian: whether the law of the noise is Gaussian, so that it counts for records.
        """
        left: dict[tuple[str, str], list[tuple[float, int]]] = {}
        for row, count in self.charged_sums(unit, exposed)[0].items():
            for release, _, times in self.releases(
                row, self.received_releases(coalition), coalition, composed=gaussian
            ):
                key = release.name, release.vector
                left.setdefault(key, []).append((float(release.noise.sum()), count * times))
        for (name, vector), there in left.items():
            counted = [
                (read.figure(table[read.count(i)]["variance"]), read.count(part["count"]))
                for part in parts
                for i in part["releases"]
                if (table[read.count(i)]["name"], table[read.count(i)]["vector"]) == (name, vector)
            ]
            for variance, _ in counted:
                more = sum(count for one, count in counted if one >= variance)
                most = sum(count for one, count in there if one * (1 + ROUNDING) >= variance)
                if more > most:
                    here = f"record: {name}: variance {variance:.9g}"
                    yield f"{here} counted {more} times; the facts leave {most}"
                    break

    def exposure_problems(
        self, bound: str, cert: Json, draws: Sequence[Draw], unit: int, coalition: Sequence[Party]
    ) -> Iterator[str]:
        """Yield a line for each mismatch between the releases that a bound charges and the exposed ones.

        Args:
            bound: name of the bound; not used in groups.
            cert: what the certificate states of this bound.
            draws: the certificate's draws.
            unit: index of the worker.
            coalition: who observes together.
        """
        if any(draw.drawn_noise for draw in draws):
            yield "drawn noise: counts for nothing in groups"
        exposed = read.counts(cert["exposed_releases_per_group"]).tolist()
        seen = self.received_releases(coalition)
        if len(exposed) != self.groups or max(exposed, default=0) > self.steps:
            most = max(exposed, default=0)
            yield f"exposed set: it names {len(exposed)} groups and up to {most} releases of one"
            return
        for group, (mine, least) in enumerate(zip(exposed, seen, strict=True)):
            if mine < least:
                yield f"exposed set: {mine} releases of group {group}; the observer receives {least}"
        stated: dict[Any, list[Draw]] = {}
        for draw in draws:
            kinds = ((r["name"], r["vector"], read.figure(r["own_sensitivity"]) > 0) for r in draw.releases)
            stated.setdefault(tuple(sorted(kinds)), []).append(draw)
        counts: Counter[Any] = Counter()  # equal draws of different eras count together
        alike: dict[Any, tuple[ExpectedRelease, Json]] = {}
        for row, count in self.charged_sums(unit, exposed)[0].items():
            (release, drawn, _), *more = charged = self.releases(row, seen, coalition)
            messages = () if more else self.messages_behind(row, release)
            if any(((part.name, part.vector, part.own > 0),) in stated for part, _ in messages):
                charged = [(part, drawn, times) for part, times in messages]
            for release, drawn, times in charged:
                same = repr((release._replace(noise=release.noise.tolist()), drawn))
                alike[same] = release, drawn
                counts[same] += times * count
        wanted: dict[Any, list[tuple[ExpectedRelease, Json, int]]] = {}
        for same, (release, drawn) in alike.items():
            key = ((release.name, release.vector, release.own > 0),)
            wanted.setdefault(key, []).append((release, drawn, counts[same]))
        for key in sorted(wanted.keys() | stated.keys()):
            yield from _group_problems(key, stated.get(key, []), wanted.get(key, []))


def _group_problems(
    key: Any, stated: Sequence[Draw], wanted: Sequence[tuple[ExpectedRelease, Json, int]]
) -> Iterator[str]:
    """Yield a line where one kind of sum is not charged as often, or with such releases, as the facts give.

    Args:
        key: name, vector and whether the unit moves it, of each release of a draw.
        stated: draws of the certificate with this key.
        wanted: releases of the facts with this key, each with draw and count.
    """
    total, least = sum(draw.count for draw in stated), sum(count for *_, count in wanted)
    if total != least:
        yield f"exposed set: {key[0][0]}, {key[0][1]}: charged {total} times; must be {least}"
        return
    if len(stated) != len(wanted):
        yield f"exposed set: {key[0][0]}: {len(stated)} kinds of draws; the facts give {len(wanted)}"
        return

    def order_of_stated(draw: Draw) -> tuple[float, ...]:
        """A sort key of a stated draw: how far others move it, its noise, who may be drawn, how often."""
        others, variance = (draw.releases[0][key] for key in ("propagated_sensitivity", "variance"))
        population = read.figure(draw.sampling.get("population", 0))
        return read.figure(others), -read.figure(variance), population, draw.count

    def order_of_wanted(one: tuple[ExpectedRelease, Json, int]) -> tuple[float, ...]:
        """The same sort key of ``one``, a release by the facts with its draw and count."""
        return one[0].others, -float(one[0].noise.sum()), one[1].get("population", 0), one[2]

    mine, order = sorted(stated, key=order_of_stated), sorted(wanted, key=order_of_wanted)
    for draw, (release, drawn, count) in zip(mine, order, strict=True):
        yield from sampling_problems(draw, drawn, count)
        yield from release_problems(draw.releases[0], release)
