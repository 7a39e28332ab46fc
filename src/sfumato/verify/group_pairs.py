"""Pairs of a worker and an observer in groups that are charged alike."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from sfumato.verify import read
from sfumato.verify.group_exposures import CheckedGroups
from sfumato.verify.parties import Party


class CheckedGroupPairs:
    """Pairs of a worker and an observer in groups, by trust and by all that is charged.

    That is if everything upstream is exposed, and if nothing is but what the observer receives.

    To find them each pair is looked at once of those that counting neighbours again and again (colour
    refinement) does not tell apart: such pairs are charged alike.
    """

    def __init__(self, facts: CheckedGroups) -> None:
        self.facts = facts
        self.first = [int(np.flatnonzero(facts.kind_of == kind)[0]) for kind in range(len(facts.sizes))]
        self._known: dict[Any, int] = {}
        self._charges: dict[Any, Any] = {}
        self._colours: dict[int, tuple[list[int], list[int]]] = {}
        self._classes: dict[int, int] = {}

    def _number_of_key(self, key: Any) -> int:
        """A small integer for a hashable key; equal keys have the same."""
        return self._known.setdefault(key, len(self._known))

    def _numbers_with_neighbours(
        self, mine: Sequence[int], theirs: Sequence[int], near: Sequence[Sequence[Sequence[int]]]
    ) -> list[int]:
        """One step of colour refinement: new numbers of nodes by their own and their neighbours' numbers.

        Args:
            mine: numbers of the nodes.
            theirs: numbers of the nodes that they neighbour.
            near: of every era, the neighbours of every node.
        """
        keys = (
            (own, *(tuple(sorted(theirs[n] for n in era[i])) for era in near)) for i, own in enumerate(mine)
        )
        return [self._number_of_key(key) for key in keys]

    def refined_colours(self, unit_kind: int) -> tuple[list[int], list[int]]:
        """Colours of every kind of workers and of every group, where one worker of ``unit_kind`` is the unit.

        By colour refinement over all eras: kinds or groups of one colour are (nearly always) exchanged by a
        symmetry of the structure.
        """
        if unit_kind in self._colours:
            return self._colours[unit_kind]
        facts, ledger = self.facts, self.facts.ledger
        shares = ledger["shares_that_unmask"] or [0] * facts.groups
        names = ("clip_per_group", "noise_multiplier_per_group", "poisson_rate_per_group")
        cohort = ledger.get("cohort_per_group") or [0] * facts.groups
        least = ledger.get("least_survivors_per_group") or []
        columns = [*(ledger[name] for name in names), shares, cohort, facts.devices_add_noise, *least]
        number, number_each = self._number_of_key, self._numbers_with_neighbours
        groups = [number(("group", *row)) for row in zip(*columns, strict=True)]
        kinds = [number(("kind", int(size), kind == unit_kind)) for kind, size in enumerate(facts.sizes)]
        inside = [[np.flatnonzero(row).tolist() for row in era] for era in facts.kinds]
        around = [[np.flatnonzero(row).tolist() for row in era.T] for era in facts.kinds]
        told = 0
        while told < (told := len({*kinds, *groups})):
            kinds, groups = number_each(kinds, groups, inside), number_each(groups, kinds, around)
        self._colours[unit_kind] = kinds, groups
        return kinds, groups

    def place_of(self, unit: int, observer: Party) -> Any:
        """A hashable key of where a unit and its observer are in the groups.

        Pairs with equal keys are (nearly always) exchanged by a symmetry. The first entry numbers the class
        of units, the second is ``device`` or ``master``.
        """
        unit_kind = int(self.facts.kind_of[unit])
        kinds, groups = self.refined_colours(unit_kind)
        if unit_kind not in self._classes:
            self._classes[unit_kind] = self._number_of_key((tuple(sorted(kinds)), tuple(sorted(groups))))
        who, _, index = observer
        place = kinds[int(self.facts.kind_of[index])] if who == "device" else groups[index]
        return self._classes[unit_kind], who, place

    def key_of(self, unit: int, observer: Party) -> Any:
        """A hashable key of what worker ``unit`` is charged towards ``observer``; equal keys, equal charges.

        It holds whether the unit trusts the observer, and the charges, to six digits, with everything
        upstream of the observer exposed and with only what it receives. Computed once for each `place_of`.
        """
        place = self.place_of(unit, observer)
        if place not in self._charges:
            self._charges[place] = self.facts.trusts(unit, observer), self._charge(unit, observer)
        return self._charges[place]

    def _charge(self, unit: int, observer: Party) -> Any:
        """A hashable summary of what is charged with all upstream exposed, and with only what is received.

        It is "unprotected" where a received release with the unit's message has no noise.
        """
        facts = self.facts
        seen = facts.received_releases([observer])
        received = facts.charged_sums(unit, seen)[0]
        of_unit = [
            release for row in received if row[2] for release, *_ in facts.releases(row, seen, [observer])
        ]
        if any(release.own > 0 and not release.noise.any() for release in of_unit):
            return "unprotected"  # whatever else is exposed
        upstream = facts.charged_sums(unit, facts.releases_upstream(unit, seen))[0]
        return tuple(self._amounts(sums, seen, observer) for sums in (upstream, received))

    def _amounts(self, sums: Counter[Any], seen: Sequence[int], observer: Party) -> frozenset[Any]:
        """The different releases that an observer is charged for sums, each with how many there are.

        Where single messages may be charged in place of a sum, they are what is compared.

        Args:
            sums: of `CheckedGroups.charged_sums`.
            seen: how many releases of each group the observer receives.
            observer: who receives them.
        """
        found = Counter[Any]()
        for row, count in sums.items():
            for release, drawn, times in self.facts.releases(row, seen, [observer]):
                draw = drawn["kind"], drawn["hidden"], drawn.get("population"), drawn.get("sample")
                for one, more in self.facts.messages_behind(row, release) or [(release, 1)]:
                    figures = one.own, one.others, float(one.noise.sum()), drawn["rate"]
                    rounded = tuple(f"{figure:.6g}" for figure in figures)
                    rest = one.draw_independent, one.linking, one.amplifies_propagated
                    found[(*rounded, *rest, *draw)] += times * count * more
        return frozenset(found.items())

    @property
    def observers_may_fold(self) -> bool:
        """Whether a worker always learns at most as much as another that is in all of its groups.

        True where groups never change, masters add all noise, workers are drawn by Poisson draws or not at
        all, messages are sent plainly and all arrive, and no model without noise stays inside a group.
        """
        ledger = self.facts.ledger
        return (
            len(self.facts.kinds) == 1
            and ledger["noise_added_by"] == "master"
            and ledger["transport"] == "plain"
            and not ledger.get("cohort_per_group")
            and not ledger.get("least_survivors_per_group")
            and not (ledger["kind"] == "dp-ogl+" and read.count(ledger["merge_every"]) > 1)
        )

    def places_that_see_no_more(self, unit: int, observer: Party) -> set[Any]:
        """Keys (`place_of`) of the pairs of ``unit`` with workers that are only in groups of ``observer``.

        ``observer`` is a worker. Only workers count that, like ``observer``, share a group with the unit, or
        like it share none.
        """
        facts, (inside,) = self.facts, self.facts.kinds
        groups = inside[int(facts.kind_of[observer[2]])]
        near = facts.is_near(unit, observer)
        return {
            self.place_of(unit, other)
            for other, _ in self.observers_of(unit)
            if other[0] == "device"
            and not (inside[int(facts.kind_of[other[2]])] & ~groups).any()
            and facts.is_near(unit, other) == near
        }

    def observers_of(self, unit: int) -> Iterator[tuple[Party, int]]:
        """Yield (observer, how many like it): every master, and a worker of each kind but ``unit``."""
        facts = self.facts
        yield from ((("master", 1, group), 1) for group in range(facts.groups))
        for kind, more in enumerate(facts.sizes):
            count = int(more) - (kind == facts.kind_of[unit])
            if count:
                worker = next(i for i in np.flatnonzero(facts.kind_of == kind) if i != unit)
                yield ("device", 0, int(worker)), count

    def unit_classes(self) -> Iterator[tuple[list[int], Counter[Any]]]:
        """Yield the classes of workers that are in the same groups in every era, each with who observes it.

        Yields:
            The numbers of the workers of a class, ascending; and how many observers its first worker has of
            each kind, by the key that `key_of` gives the pair of this worker and the observer.
        """
        for kind, unit in enumerate(self.first):
            found = Counter[Any]()
            for observer, count in self.observers_of(unit):
                found[self.key_of(unit, observer)] += count
            yield np.flatnonzero(self.facts.kind_of == kind).tolist(), found
