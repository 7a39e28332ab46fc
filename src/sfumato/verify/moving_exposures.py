"""The releases that a coalition meets where devices move, or trust changes: one tree for every era."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

import numpy as np

from sfumato.verify import read
from sfumato.verify.comparison import ROUNDING
from sfumato.verify.draws import Draw
from sfumato.verify.parties import Party
from sfumato.verify.read import Array, Json, UnknownKindError
from sfumato.verify.releases import ExpectedRelease
from sfumato.verify.tree_exposures import CheckedTree
from sfumato.verify.tree_pairs import CheckedTreePairs


class CheckedMovingTree:
    """Edges under a cloud whose devices move, or whose trust changes: a tree for every era, in order."""

    def __init__(self, ledger: Json) -> None:
        self.ledger = ledger
        self.eras = [EraFacts(era) for era in ledger["eras"]]

    @property
    def pair_count(self) -> int:
        """Number of ordered pairs of a device and an observer: aggregator, public or other device."""
        return self.eras[0].pair_count

    def party_named(self, name: str) -> Party:
        """The party (kind, tier, index) of an observer's name, such as ``edge:2``.

        Raises:
            ValueError: there is no such party.
        """
        return self.eras[0].party_named(name)

    def is_near(self, unit: int, party: Party) -> bool:
        """Whether, in any era, ``party`` is an aggregator above ``unit`` or a device under the same leaf."""
        return any(era.is_near(unit, party) for era in self.eras)

    def exposure_problems(
        self, bound: str, cert: Json, draws: Sequence[Draw], unit: int, coalition: Sequence[Party]
    ) -> Iterator[str]:
        """Yield a line for each mismatch between what a bound charges and the releases exposed in an era.

        Args:
            bound: ``flow`` or ``cut``; any other raises `UnknownKindError`.
            cert: what the certificate states of this bound.
            draws: the certificate's draws, one an era.
            unit: index of the device.
            coalition: who observes together.
        """
        if len(draws) != len(self.eras):
            yield f"exposed set: it has {len(draws)} draws; there are {len(self.eras)} eras"
            return
        if bound not in ("flow", "cut"):
            raise UnknownKindError(f"bound: this checker has no rule for the kind {bound!r} in a tree")
        wanted = [(era.flow if bound == "flow" else era.cut)(unit, coalition) for era in self.eras]
        owners = _most_noise_by_owner(one for releases in wanted for one in releases)
        for facts, draw, releases in zip(self.eras, draws, wanted, strict=True):
            where = f"from round {facts.ledger['from_round']}"
            allowed = [one._replace(noise=owners[_release_key(one)]) for one in releases]
            for problem in facts.exposure_problems(bound, cert, [draw], unit, coalition, allowed):
                yield f"{where}: {problem}"
            for stated, one in zip(draw.releases, releases, strict=False):
                if read.figure(stated["variance"]) > float(one.noise.sum()) * (1 + ROUNDING) + 1e-300:
                    least = float(one.noise.sum())
                    yield f"{where}: {one.name}: variance: {stated['variance']}; the facts leave {least:.9g}"


def _release_key(release: ExpectedRelease) -> tuple[str, ...]:
    """A key that is equal for releases that a certificate lists once: name, vector and rounded figures."""
    figures = (release.own, release.others, float(release.noise.sum()))
    return (release.name, release.vector, *(f"{figure:.9g}" for figure in figures))


def _most_noise_by_owner(releases: Iterable[ExpectedRelease]) -> dict[tuple[str, ...], Array]:
    """For each release key the largest variance by owner (devices, aggregators, channel) over the eras.

    Equal releases of several eras may have the same total from different owners.
    """
    found: dict[tuple[str, ...], Array] = {}
    for one in releases:
        found[_release_key(one)] = np.maximum(found.get(_release_key(one), np.zeros(3)), one.noise)
    return found


class EraFacts(CheckedTree):
    """The rounds of one tree; what is charged is computed once for all observers that are placed alike."""

    def __init__(self, ledger: Json) -> None:
        super().__init__(ledger)
        self.symmetry = CheckedTreePairs(self)
        self._charged: dict[Any, list[ExpectedRelease]] = {}

    def flow(self, unit: int, coalition: Sequence[Party]) -> list[ExpectedRelease]:
        """The releases of a round that flow charges for ``unit`` towards ``coalition``; results are kept.

        See `CheckedTree.flow`.
        """
        return self._computed_once("flow", super().flow, unit, coalition)

    def cut(self, unit: int, coalition: Sequence[Party]) -> list[ExpectedRelease]:
        """The releases of a round that cut charges for ``unit`` towards ``coalition``; see `CheckedTree.cut`.

        Results are kept.
        """
        return self._computed_once("cut", super().cut, unit, coalition)

    def _computed_once(
        self, bound: str, charged: Callable[..., list[ExpectedRelease]], unit: int, coalition: Sequence[Party]
    ) -> list[ExpectedRelease]:
        """``charged(unit, coalition)``, computed once for all pairs of one leaf that are alike.

        Args:
            bound: name of the bound, for the key of the cache.
            charged: `CheckedTree.flow` or `CheckedTree.cut`.
            unit: index of the device.
            coalition: who observes it; several are computed anew each time.
        """
        if len(coalition) > 1:
            return charged(unit, coalition)
        key = bound, self.leaf_of(unit), self.symmetry.key_of(unit, coalition[0])
        if key not in self._charged:
            self._charged[key] = charged(unit, coalition)
        return self._charged[key]

    def squared_mu_of_round(self, unit: int, party: Party, relation: str) -> Array:
        """Σ μ² over one round of device ``unit`` towards ``party``, by flow and by cut, ``[2]``.

        ``relation``: ``zero-out``, ``remove`` or ``replace``.
        """
        charged = self.flow(unit, [party]), self.cut(unit, [party])
        return np.array([math.fsum(one.squared_mu(relation) for one in releases) for releases in charged])
