"""The releases of edges under a cloud whose devices move, or whose trust changes, between rounds.

Every round starts from the global model, which everybody receives, and nothing else of a round reaches the
next one. So a run is the adaptive composition of its rounds, each with the releases of its own tree
(docs/accounting.md, "A network that moves").
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence, Set
from dataclasses import dataclass, field, fields, replace
from functools import cached_property
from itertools import pairwise
from typing import Any, ClassVar

import numpy as np

from sfumato.privacy.observers import PairClass, Party, UnitClass
from sfumato.privacy.records import RecordReleases
from sfumato.privacy.release import Exposure, Release
from sfumato.privacy.tree.moving_pairs import MovingPairs, RoundKinds
from sfumato.privacy.tree.releases import TreeReleases


@dataclass(frozen=True)
class OneTreeRounds:
    """Rounds in a row with one tree.

    Attributes:
        first: its first round, from 0.
        releases: of one such round.
    """

    first: int
    releases: TreeReleases

    @cached_property
    def kinds(self) -> RoundKinds:
        """The `RoundKinds` of one of these rounds: it computes exposures once for each kind of pair.

        A kind is a class of edge of the unit with a class of observer. The object is made once and keeps what
        it computed.
        """
        return RoundKinds(self.releases)


@dataclass(frozen=True)
class MovingReleases(TreeReleases):
    """The releases of all rounds. Properties of one tree, such as its depth, are those of the first round.

    Attributes:
        eras: in the order of time; the first begins with round 0.
    """

    eras: tuple[OneTreeRounds, ...] = field(kw_only=True)
    _most_kept: ClassVar[int] = 4  # while a pair is charged and described

    @classmethod
    def over_time(cls, found: Sequence[tuple[int, TreeReleases]]) -> MovingReleases:
        """The releases of a run; ``found``: pairs of a round (from 0) and the releases from that round on."""
        eras = tuple(
            OneTreeRounds(first, replace(releases, rounds=1, searched_under=None))
            for first, releases in found
        )
        whole = found[0][1]
        kept = {one.name: getattr(whole, one.name) for one in fields(whole) if one.init}
        return cls(**kept | {"searched_under": None}, eras=eras)

    @cached_property
    def lengths(self) -> tuple[int, ...]:
        """Number of rounds of each era, within the run; 0 for one that begins after its end."""
        starts = [min(era.first, self.rounds) for era in self.eras]
        return tuple(after - before for before, after in pairwise([*starts, self.rounds]))

    def _compute_exposures(self, unit: int, members: tuple[Party, ...]) -> tuple[Exposure, ...]:
        """The flow and the cut exposure of ``unit`` towards ``members``, each with one draw for every era."""
        met = [(era.kinds.exposures(unit, members), count) for era, count in self._played]
        return tuple(
            Exposure(
                bound[0].bound_name,
                tuple(
                    draw if count == 1 else replace(draw, count=count)
                    for one, (_, count) in zip(bound, met, strict=True)
                    for draw in one.draws
                ),
            )
            for bound in zip(*(found for found, _ in met), strict=True)
        )

    @property
    def _played(self) -> Iterator[tuple[OneTreeRounds, int]]:
        """The eras that have any rounds, each with its number of rounds."""
        return ((era, count) for era, count in zip(self.eras, self.lengths, strict=True) if count)

    def noise_by_owner(
        self, unit: int, coalition: Sequence[Party]
    ) -> dict[str, dict[Release, dict[str, float]]]:
        """The noise variance of each release charged for ``unit`` towards ``coalition``, by who adds it.

        By name of the bound, release and kind of owner. If equal releases of several eras have noise of
        different owners, the last era counts.
        """
        members, found = tuple(dict.fromkeys(coalition)), dict[str, dict[Release, dict[str, float]]]()
        for era, _ in self._played:
            for bound, owned in era.kinds.noise_by_owner(unit, members).items():
                found.setdefault(bound, {}).update(owned)
        return found

    def record_releases(self, unit: int, coalition: Sequence[Party]) -> tuple[RecordReleases, ...]:
        """The releases by which a record of ``unit`` is charged, one entry for each draw of batches.

        Every local step draws anew, and no device remembers anything of an earlier round, so the draws of one
        round say nothing of those of another. Counts are of the whole run. Empty if records are not drawn
        into batches.
        """
        members = tuple(dict.fromkeys(coalition))
        return tuple(
            replace(part, count=count * part.count)
            for era, count in self._played
            for part in era.kinds.record_releases(unit, members)
        )

    @cached_property
    def pairs(self) -> MovingPairs:
        """Classes of pairs of a unit and an observer that one row stands for."""
        kinds = [era.kinds for era, _ in self._played]
        return MovingPairs(kinds, np.array([count for _, count in self._played], dtype=np.int64))

    def pair_classes(
        self, unit: int | None = None, *, apart: bool = False, every_unit: bool = False
    ) -> Iterator[PairClass]:
        """Yield, for every class of pairs of a unit and an observer, the pair with the largest ε.

        Args:
            unit: only pairs of this device; ``None``: of all devices.
            apart: ignored: sites are no classes of their own where devices move.
            every_unit: ignored: no pair stands for another one that it merely dominates.
        """
        return self.pairs.of(unit)

    def units_outside(self, members: Set[int], *, apart: bool = False) -> Iterator[UnitClass]:
        """Yield the classes of the devices outside ``members``: those under the same edge in every round.

        ``apart`` is ignored: sites are no classes of their own where devices move.
        """
        return self.pairs.units_outside(members)

    def to_dict(self) -> dict[str, Any]:
        """The facts as a JSON object: those of each era, with the round (from 1) in which it begins."""
        found = [
            {"from_round": era.first + 1, **era.releases.to_dict(), "rounds": count}
            for era, count in self._played
        ]
        return {"kind": "moving", "rounds": self.rounds, "eras": found}
