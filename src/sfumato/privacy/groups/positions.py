"""Pairs of a unit and a coalition that symmetries of the groups map to each other.

A search among exposed sets that breaks ties by number, or that is cut short, may answer two mirrored pairs
differently. So it is asked for one pair of every orbit only, the one whose position comes first.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import NamedTuple, TypeVar

import numpy as np

from sfumato.privacy.groups.exposure_problem import ExposureProblem
from sfumato.privacy.groups.received_sums import ReceivedSums
from sfumato.privacy.groups.symmetries import Symmetry
from sfumato.privacy.received import CoalitionView

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
    def of(cls, problem: ExposureProblem, received: ReceivedSums) -> Position:
        """The position of the unit of ``problem`` and of the coalition that receives sums as ``received``."""
        groups = np.flatnonzero(problem.seen).tolist()
        view = received.view
        masters = [(group, (1, group) in view.single) for _, group in view.single | view.summed]
        return cls(
            problem.unit,
            tuple((group, int(problem.seen[group])) for group in groups),
            tuple(sorted(masters)),
            tuple(sorted(received.members.items())),
        )

    def image(self, groups: Sequence[int], kinds: Sequence[int]) -> Position:
        """The position to which a symmetry of the groups maps this one.

        ``groups`` and ``kinds``: the image of every group, and of every kind of workers, by number.
        """
        return Position(
            kinds[self.unit],
            _images(self.seen, groups),
            _images(self.masters, groups),
            _images(self.members, kinds),
        )

    def problem(self, problem: ExposureProblem, images: Sequence[int]) -> ExposureProblem:
        """The exposure problem of the unit in this position, mapped by a symmetry from another position's.

        Args:
            problem: of another position in the same orbit.
            images: the image of every group under the symmetry that maps the other position to this one.
        """
        seen, reach = np.empty_like(problem.seen), np.empty_like(problem.reach)
        seen[list(images)], reach[list(images)] = problem.seen, problem.reach
        return replace(problem, unit=self.unit, seen=seen, reach=reach)

    @property
    def received(self) -> tuple[CoalitionView, dict[int, int]]:
        """The view of a coalition in this position, and its number of devices by kind of workers.

        The view has no senders; `ReceivedSums` can be made from it all the same.
        """
        single = frozenset((1, group) for group, alone in self.masters if alone)
        summed = frozenset((1, group) for group, alone in self.masters if not alone)
        return CoalitionView(single, summed, single | summed, frozenset()), dict(self.members)


_Figure = TypeVar("_Figure", int, bool)


def _images(
    figures: tuple[tuple[int, _Figure], ...], images: Sequence[int]
) -> tuple[tuple[int, _Figure], ...]:
    """Map pairs of a place and a figure: ``images[place]`` for every place; sorted by the new place."""
    if len(figures) > 1:
        return tuple(sorted([(images[place], figure) for place, figure in figures]))
    return tuple([(images[place], figure) for place, figure in figures])


def first_of_orbit(
    position: Position, symmetries: Sequence[Symmetry], group_count: int
) -> tuple[Position, tuple[int, ...]]:
    """The first position, in sorted order, to which symmetries take ``position``; it stands for the orbit.

    Args:
        position: where to start.
        symmetries: permutations of groups and of kinds of workers, applied in any order, any number of
            times.
        group_count: number of groups.

    Returns:
        That position, and the image of every group under the symmetry that leads there. Where the orbit has
        more than `_MOST_IMAGES` positions the search ends: then ``position`` itself, and every group as its
        own image.
    """
    identity = tuple(range(group_count))
    came_from: dict[Position, tuple[Position, tuple[int, ...]] | None] = {position: None}
    to_visit = [position]
    while to_visit:
        here = to_visit.pop()
        for groups, kinds in symmetries:
            there = here.image(groups, kinds)
            if there not in came_from:
                came_from[there] = here, groups
                to_visit.append(there)
        if len(came_from) > _MOST_IMAGES:
            return position, identity
    first = here = min(came_from)
    permutations: list[tuple[int, ...]] = []
    while (step := came_from[here]) is not None:
        here, groups = step
        permutations.append(groups)
    images = identity
    for groups in reversed(permutations):
        images = tuple(groups[group] for group in images)
    return first, images
