"""Pairs of a unit and a coalition that symmetries of the groups map to each other.

A search among exposed sets that breaks ties by number, or that is cut short, may answer two mirrored pairs
differently. So it is asked for one pair of every orbit only, the one whose position comes first.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import NamedTuple

import numpy as np

from sfumato.privacy.groups.exposure_problem import ExposureProblem
from sfumato.privacy.groups.received_sums import ReceivedSums
from sfumato.privacy.views import View

_MOST_IMAGES = 2000


class Position(NamedTuple):
    """Where a unit and a coalition are, as far as exposed sets and their costs depend on it.

    Attributes:
        unit: the kind of the unit.
        seen: groups whose releases the coalition sees, and in how many blocks.
        masters: groups at whose masters it receives messages, and whether it receives single ones.
        members: kinds of the coalition's devices, and how many of each there are.
    """

    unit: int
    seen: tuple[tuple[int, int], ...]
    masters: tuple[tuple[int, bool], ...]
    members: tuple[tuple[int, int], ...]

    @classmethod
    def of(cls, scene: ExposureProblem, received: ReceivedSums) -> Position:
        """The position of a problem and of how the coalition receives sums."""
        groups = np.flatnonzero(scene.seen).tolist()
        view = received.view
        masters = [(group, (1, group) in view.single) for _, group in view.single | view.summed]
        return cls(
            scene.unit,
            tuple((group, int(scene.seen[group])) for group in groups),
            tuple(sorted(masters)),
            tuple(sorted(received.members.items())),
        )

    def image(self, groups: Sequence[int], kinds: Sequence[int]) -> Position:
        """The position after a symmetry."""
        return Position(
            kinds[self.unit],
            tuple(sorted((groups[group], blocks) for group, blocks in self.seen)),
            tuple(sorted((groups[group], single) for group, single in self.masters)),
            tuple(sorted((kinds[kind], count) for kind, count in self.members)),
        )

    def problem(self, scene: ExposureProblem, images: Sequence[int]) -> ExposureProblem:
        """``scene`` after the symmetry with these images of groups, which leads to this position."""
        seen, reach = np.empty_like(scene.seen), np.empty_like(scene.reach)
        seen[list(images)], reach[list(images)] = scene.seen, scene.reach
        return replace(scene, unit=self.unit, seen=seen, reach=reach)

    @property
    def received(self) -> tuple[View, dict[int, int]]:
        """At which masters the coalition receives what, and its devices by kind."""
        single = frozenset((1, group) for group, alone in self.masters if alone)
        summed = frozenset((1, group) for group, alone in self.masters if not alone)
        return View(single, summed, single | summed, frozenset()), dict(self.members)


def first_image(
    position: Position, symmetries: Sequence[tuple[Sequence[int], Sequence[int]]], group_count: int
) -> tuple[Position, tuple[int, ...]]:
    """The first position of the orbit of ``position``, and the images of all groups on the way there.

    An orbit of more than `_MOST_IMAGES` positions is not followed: then it is ``position`` itself.
    """
    unmoved = tuple(range(group_count))
    known, left = {position: unmoved}, [position]
    while left:
        here = left.pop()
        for groups, kinds in symmetries:
            there = here.image(groups, kinds)
            if there not in known:
                known[there] = tuple(groups[group] for group in known[here])
                left.append(there)
        if len(known) > _MOST_IMAGES:
            return position, unmoved
    return min(known.items())
