"""How one coalition receives the sums of groups: the releases that a sum amounts to, and their price."""

from __future__ import annotations

import math
from dataclasses import dataclass, field, replace
from typing import Literal

import numpy as np

from sfumato.privacy.divergence import cheaper_split, divergence, is_priced_exactly, messages_of
from sfumato.privacy.groups.exposed_set import Exposed
from sfumato.privacy.groups.exposure_problem import ChargedSum, ExposureProblem
from sfumato.privacy.groups.facts import GroupDraw, GroupFacts
from sfumato.privacy.groups.vector_clocks import IntArray
from sfumato.privacy.received import CoalitionView, hides_draw, noise_is_draw_independent
from sfumato.privacy.release import DrawnReleases, Exposure, Release, merged_draws
from sfumato.privacy.sampling import Sampling


@dataclass(frozen=True)
class ReceivedSums:
    """What sums amount to towards one coalition.

    Attributes:
        facts: of the protocol.
        problem: the unit, and what the coalition sees.
        view: at which masters the coalition receives what.
        members: devices of each kind in the coalition.
    """

    facts: GroupFacts
    problem: ExposureProblem
    view: CoalitionView
    members: dict[int, int]
    _prices: dict[ChargedSum, float] = field(default_factory=dict, init=False, repr=False)

    def price(self, row: ChargedSum) -> float:
        """The cost of one sum ``row`` as this coalition receives it: Rényi divergence of order 2, in nats."""
        if row not in self._prices:
            self._prices[row] = self._price(row)
        return self._prices[row]

    def _price(self, row: ChargedSum) -> float:
        """Compute the Rényi divergence of order 2 of one sum, in nats.

        It is computed once for all coalitions that receive the sum alike.
        """
        key = ("price", row, *self._how_received(row))
        under = self.facts.searched_under
        return self.facts.once(key, lambda: math.fsum(divergence(d, under) for d in self.releases(row, 1)))

    def _how_received(self, row: ChargedSum) -> tuple[object, bool, int]:
        """List the facts by which coalitions differ in what one sum reveals to them.

        Returns:
            How the coalition receives messages of the sum's group (``single``, ``sum`` or ``None``), whether
            it sees releases of the group, and how many of the group's workers are members.
        """
        seen = bool(self.problem.seen[row.group])
        return self.view.how(1, row.group), seen, self._members_in_group(row)

    def exposure(self, bound_name: Literal["flow", "cut", "min-cost"], exposed: IntArray) -> Exposure:
        """The exposure that is charged if the first ``exposed[g]`` blocks of every group g are exposed.

        ``bound_name``: its name. Where sums can be charged message by message, an alternative does so.
        """
        charged = sorted(self.problem.charged(exposed).items())
        draws = merged_draws(drawn for row, count in charged for drawn in self.releases(row, count))
        steps = tuple(self.facts.block_ends[exposed].tolist())
        found = Exposure(bound_name, draws, groups_draw_separately=True, exposed=steps)
        if not any(row.linking and self._can_be_split(row.group) for row, _ in charged):
            return found
        split = merged_draws(drawn for row, n in charged for drawn in self.releases(row, n, split=True))
        return found if split == draws else replace(found, alternatives=(replace(found, draws=split),))

    def exposures(self, cheapest: Exposed) -> tuple[Exposure, Exposure, Exposure]:
        """The exposures of flow, of cut, and of the ``cheapest`` set.

        If the last one exposes the same as one before it, it shares that one's draws, so both are composed
        once.
        """
        gap = self._gap(cheapest)
        known = self.problem.reach, self.problem.seen
        flow, cut = self.exposure("flow", known[0]), self.exposure("cut", known[1])
        for same, blocks in zip((flow, cut), known, strict=True):
            if np.array_equal(blocks, cheapest.blocks):
                return flow, cut, replace(same, bound_name="min-cost", gap=gap)
        return flow, cut, replace(self.exposure("min-cost", cheapest.blocks), gap=gap)

    def _gap(self, found: Exposed) -> float:
        """Upper bound on the ratio of the divergence of ``found`` to the cheapest set's; ∞ if none is known.

        The search compares prices, of which some are above the divergence (`is_priced_exactly`). Then only
        flow can be known to be the cheapest set. Such prices are of sums that the unit alone moves, and flow
        has all of these. Another set has some of them and, beside them, sums whose prices are exact. If
        these cost no less than the sums of flow that the other set lacks, then their divergence is no less
        than that of the lacking sums either.
        """
        if found.cost == 0 or np.array_equal(self.problem.seen, self.problem.reach) or self._prices_are_exact:
            return found.gap
        is_flow = np.array_equal(found.blocks, self.problem.reach)
        return 1.0 if is_flow and found.optimal and not self.facts.raw_inside else math.inf

    @property
    def _prices_are_exact(self) -> bool:
        """Whether `price` is the divergence of every sum, and of none only a figure above it."""
        facts, problem = self.facts, self.problem
        if not facts.cohort and facts.searched_under != "replace":
            return True
        eras = range(len(facts.eras))
        unit_alone = (
            ChargedSum(group, era, True, 0)
            for era in eras
            for group in np.flatnonzero(problem.with_unit(era) & (problem.reach > 0)).tolist()
        )
        drawn = (draw for row in unit_alone for draw in self.releases(row, 1))
        return all(is_priced_exactly(draw, facts.searched_under) for draw in drawn)

    def releases(self, row: ChargedSum, count: int, *, split: bool = False) -> tuple[DrawnReleases, ...]:
        """The draws and releases charged for ``count`` sums like ``row``.

        Args:
            row: the sum, received or charged as if it were.
            count: how many of them, over the whole training.
            split: charge message by message each sum that can be (`privacy.divergence`), even where that
                costs more; ``False``: only where it costs less.

        Returns:
            One or more draws; their counts are ``count``, or that times the number of equal messages.
        """
        key = ("releases", row, count, split, *self._how_received(row))
        return self.facts.once(key, lambda: self._releases(row, count, split))

    def _releases(self, row: ChargedSum, count: int, split: bool) -> tuple[DrawnReleases, ...]:
        """Compute what `releases` keeps: the draws charged for ``count`` sums like ``row``.

        ``split``: charge a sum that can be split as its single messages; else only where that costs less.

        The noise that counts is none where a master that adds it receives the messages itself, and otherwise
        that of workers outside the coalition where workers add it.
        """
        facts, group, draw = self.facts, row.group, self.facts.draw(row.group, row.era)
        size, how, known = draw.size, self.view.how(1, group), self._members_in_group(row)
        clip, noise = facts.message_norm(group), facts.noise_variance(group)
        name = group_name(group) + (f", {row.linking} linking" if row.linking else "")
        moving_others = row.linking
        if facts.raw_inside:
            if how is not None or self.problem.seen[group]:
                noise = 0.0
            else:  # un-noised in-group models pass the unit's or a linking worker's input on to all
                moving_others = size - row.own
        others = draw.norms_moved_by_others(own=row.own, others=moving_others, only_with_unit=not row.linking)
        if not facts.noised_by_devices(group):
            noise = 0.0 if how is not None else noise
        elif how == "single":
            return self._single_messages(row, count, name, clip, noise, known)
        else:
            noise *= draw.sure_noisers(own=row.own, linking=row.linking, known=known)
        release = Release(
            name,
            f"the sum of group {group}",
            float(row.own) * clip,
            others * clip,
            noise,
            self._is_draw_independent(draw, facts.noise_variance(group) * facts.noised_by_devices(group)),
            linking=row.linking,
            amplifies_propagated=facts.raw_inside,
        )
        hidden = hides_draw(facts.transport, drawn_by_a_member=how is not None, peers=known)
        sampling = draw.sampling(known=known, hidden=hidden)
        parts: tuple[tuple[Release, int], ...] = ((release, 1),)
        if self._can_be_split(group):
            parts = (
                messages_of(release)
                if split
                else cheaper_split(release, facts.rate[group], facts.searched_under)
            )
        return tuple(DrawnReleases(sampling, (part,), count * times) for part, times in parts)

    def _can_be_split(self, group: int) -> bool:
        """Say whether a sum of ``group`` may be charged as its single messages.

        So it is where workers add the noise themselves, to every update, and are drawn by Poisson
        sampling.
        """
        facts = self.facts
        return facts.noised_by_devices(group) and facts.rate[group] < 1 and not facts.raw_inside

    def _single_messages(
        self, row: ChargedSum, count: int, name: str, clip: float, noise: float, known: int
    ) -> tuple[DrawnReleases, ...]:
        """The charge for ``count`` rounds of ``row`` to a master that receives every message by itself.

        The master knows who was drawn. Workers of a fixed cohort are not drawn independently of each other,
        so linking workers count as drawn in every round, as many as the cohort has room for.

        Args:
            row: the sum of these messages.
            count: number of rounds.
            name: of the releases.
            clip: l2 norm of a message.
            noise: variance of one message's noise, a coordinate.
            known: how many of the group's workers are in the coalition.

        Returns:
            The draw of the unit's message, if the unit is in the group, then that of the linking workers'
            messages.
        """
        draw = self.facts.draw(row.group, row.era)
        sampling = draw.sampling(known=known, hidden=False)
        fixed = draw.kind == "fixed"
        independent = sampling.kind == "all"
        own = Release(name, "single messages", clip, 0.0, noise, independent)
        linked = Release(name, "single messages", 0.0, 2 * clip, noise, independent, linking=1)
        found = [DrawnReleases(sampling, (own,), count)] if row.own else []
        if row.linking:
            times = min(row.linking, draw.guaranteed) if fixed else row.linking
            found.append(
                DrawnReleases(Sampling(hidden=False) if fixed else sampling, (linked,), count * times)
            )
        return tuple(found)

    def _is_draw_independent(self, draw: GroupDraw, variance: float) -> bool:
        """Say whether a sum's noise has the same distribution whoever is drawn.

        ``variance``: of the noise that one sender adds; 0 where the master adds it.
        """
        return noise_is_draw_independent(
            draw.kind,
            sender_variances=(variance,),
            drawn=draw.drawn,
            guaranteed=draw.sure,
            revealed_otherwise=self.facts.sums_may_be_missing,
        )

    def _members_in_group(self, row: ChargedSum) -> int:
        """How many workers of the group of ``row`` are in the coalition."""
        inside = self.facts.kinds.incidence[row.era][:, row.group]
        return sum(count for kind, count in self.members.items() if inside[kind])


def group_name(group: int) -> str:
    """The name of ``group`` (from 0) in its releases, such as ``group 3``.

    Where linking workers are charged, the caller adds a comma and their number.
    """
    return f"group {group}"
