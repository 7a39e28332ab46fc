"""Which releases may be charged for one target and one coalition, and what each choice is charged.

*Prefixes are enough.* θ_m is a running sum: once one release of m that the target reached is hidden, every
later θ_m is unknown, so exposing later releases of m costs and determines nothing. And nothing but its first
step links a block to other groups. So an exposed set is one number of exposed blocks a group.

*Cost* is the Rényi divergence of order 2: it adds up, sampled releases included. Where nothing is sampled it
is μ², so that a set of least cost has the least ε.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, NamedTuple, TypeAlias

import numpy as np
import numpy.typing as npt

from sfumato.privacy.groups.vector_clocks import Block, Bridges, IntArray, WorkerKinds


class ChargedSum(NamedTuple):
    """A noised sum as it is charged: equal ones are counted.

    Attributes:
        group: whose sum.
        era: of which structure.
        own: whether the target contributes.
        linking: number of workers that started from a hidden model which the target's data had reached.
    """

    group: int
    era: int
    own: bool
    linking: int


Price: TypeAlias = Callable[[ChargedSum], float]


@dataclass(frozen=True, eq=False)
class ExposureProblem:
    """One target, and what one coalition sees.

    Attributes:
        kinds: of workers.
        blocks: of time.
        alike: for every block, `GroupFacts.blocks_alike_until`.
        unit: the target's kind.
        seen: number of blocks of every group whose releases the coalition sees.
        reach: number of blocks of every group upstream of those, the target being no link; at least ``seen``.
        links_add_up: whether linking workers that meet in a sum cost at least what they cost apart: not where
            more of them link than are drawn.
        sums_of_blocks: what `charged` keeps of single blocks; problems of the same kinds and blocks may share
            it, whoever the target is.
    """

    kinds: WorkerKinds
    blocks: tuple[Block, ...]
    alike: IntArray
    unit: int
    seen: IntArray
    reach: IntArray
    links_add_up: bool = True
    sums_of_blocks: dict[Any, Any] = field(default_factory=dict, repr=False)
    _charged: dict[bytes, Counter[ChargedSum]] = field(default_factory=dict, init=False, repr=False)

    @cached_property
    def bridges(self) -> tuple[Bridges, ...]:
        """For every era, the kinds of workers in several groups, who link these; without the target."""
        return self.kinds.bridges(self.unit)

    def with_unit(self, era: int) -> npt.NDArray[np.bool_]:
        """Mask ``[groups]`` of the groups that the target is in during ``era``."""
        inside: npt.NDArray[np.bool_] = self.kinds.incidence[era][self.unit]
        return inside

    @cached_property
    def _is_target_upstream(self) -> bool:
        """Whether releases of groups that the target is in, in any era, are upstream of what is seen."""
        eras = range(len(self.kinds.incidence))
        return any(bool(self.reach[self.with_unit(era)].any()) for era in eras)

    def starts_from_hidden(self) -> Counter[tuple[int, int]]:
        """Under flow, the number of blocks in which the target starts from hidden models, by (group, era).

        At a merging step the target starts from the mean of the models of all its groups, of which some may
        be hidden. With one group, and in other steps, it starts from the group's own model, whose earlier
        releases are exposed together with this one.

        Returns:
            Number of blocks by (group, era); pairs without such a block are missing.
        """
        found: Counter[tuple[int, int]] = Counter()
        for number, block in enumerate(self.blocks):
            mine = np.flatnonzero(self.with_unit(block.era))
            if block.merges and len(mine) > 1 and (self.reach[mine] < number).any():
                found.update((int(group), block.era) for group in mine[self.reach[mine] > number])
        return found

    def charged(self, exposed: IntArray) -> Counter[ChargedSum]:
        """The noised sums charged, counted, if the first ``exposed[g]`` blocks of every group g are exposed.

        ``exposed``: int64 ``[groups]``. Results are kept: the caller must not change them.
        """
        key = exposed.tobytes()
        if key not in self._charged:
            self._charged[key] = self._followed(exposed)
        return self._charged[key]

    def _followed(self, exposed: IntArray) -> Counter[ChargedSum]:
        """Compute `charged`: the sums charged for ``exposed``, the number of exposed blocks of every group.

        Follows block by block which hidden models the target's data have reached. Once a block reaches no
        further one, the blocks like it reach none either and are counted together.

        If no group of the target is upstream of what is seen, nothing is charged. A linking worker in a
        release upstream would have started from models that are upstream, too, and so on back to a group of
        the target.
        """
        sums: Counter[ChargedSum] = Counter()
        if not self._is_target_upstream:
            return sums
        before = bytes(self.kinds.group_count)  # a mask of the hidden groups that are reached: none
        ends = sorted(set(exposed.tolist()) - {0})
        number = 0
        for end in ends:  # between two ends the same groups are exposed
            open_now = exposed > number
            open_mask = open_now.tobytes()
            while number < end:
                block = self.blocks[number]
                key = (self.unit, block.era, block.merges, before, open_mask)
                if key not in self.sums_of_blocks:
                    tainted = np.frombuffer(before, dtype=np.bool_)
                    rows, reached = self._sums_of_block(block, tainted, open_now)
                    self.sums_of_blocks[key] = rows, reached.tobytes()
                rows, after = self.sums_of_blocks[key]
                times = min(end, int(self.alike[number])) - number if after == before else 1
                for row in rows:
                    sums[row] += times
                    if row.own and block.length > 1:
                        sums[ChargedSum(row.group, row.era, True, 0)] += times * (block.length - 1)
                before = after
                number += times
        return sums

    def linking(self, block: Block, reached: npt.NDArray[np.bool_]) -> npt.NDArray[np.float64]:
        """The number of linking workers of every group, ``[groups]``, in the first step of ``block``.

        A linking worker is one that started from a hidden model which the target's data had reached.

        Args:
            block: at whose first step they may start from the mean of their groups' models.
            reached: mask ``[groups]`` of the groups whose hidden models the target's data have reached
                before.
        """
        if not (block.merges and reached.any()):
            return np.zeros(len(reached))
        bridges = self.bridges[block.era]
        group = bridges.groups
        if not len(group):
            return np.zeros(len(reached))
        linked = bridges.size * np.logical_or.reduceat(reached[group], bridges.first)
        return np.bincount(group, linked[bridges.kind_at], len(reached)).astype(np.float64)

    def _sums_of_block(
        self, block: Block, tainted: npt.NDArray[np.bool_], open_now: npt.NDArray[np.bool_]
    ) -> tuple[list[ChargedSum], npt.NDArray[np.bool_]]:
        """List the sums charged for the first step of ``block``, and the hidden groups reached after it.

        Args:
            block: the steps.
            tainted: mask ``[groups]`` of the hidden groups that the target's data have reached before it.
            open_now: mask ``[groups]`` of those that are exposed in it.

        Returns:
            The sums, by group ascending, and the mask ``[groups]`` of hidden groups that data have reached
            then.
        """
        linking = self.linking(block, tainted)
        own = self.with_unit(block.era)
        rows = [
            ChargedSum(int(group), block.era, bool(own[group]), int(linking[group]))
            for group in np.flatnonzero(open_now & (own | (linking > 0)))
        ]
        return rows, ~open_now & (tainted | own | (linking > 0))


def cost(problem: ExposureProblem, exposed: IntArray, price: Price) -> float:
    """The summed price of all sums charged if the first ``exposed[g]`` blocks of every group g are exposed.

    Args:
        problem: the target and what the coalition sees.
        exposed: number of blocks of every group, int64 ``[groups]``.
        price: Rényi divergence of order 2 of one charged sum, in nats; so is what comes back.
    """
    return math.fsum(price(row) * count for row, count in problem.charged(exposed).items())
