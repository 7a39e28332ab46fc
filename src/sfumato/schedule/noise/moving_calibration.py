"""Noise for a target where devices move, or trust changes: one factor for all of it, as in groups."""

from __future__ import annotations

import math
from collections.abc import Iterator

import numpy as np

from sfumato.errors import SpecError
from sfumato.network.tree import Tree
from sfumato.privacy.observers import Party
from sfumato.privacy.tree.moving import MovingReleases
from sfumato.privacy.tree.releases import TreeReleases
from sfumato.schedule.moves import Rounds
from sfumato.schedule.noise.calibration import charge_of, factor_of, is_sampled, unreachable
from sfumato.schedule.noise.placement import NoisePlan
from sfumato.schedule.rows.observers import is_of_kind, parse_observer
from sfumato.spec.privacy import OBSERVER_KINDS, NoiseByTarget

_PASSES = 8
_MORE, _LESS = 1e-9, 3e-4  # a factor is a root: settled where it asks for so much more or less at most


def calibrate_over_time(
    noise: NoiseByTarget, rounds: Rounds, start: NoisePlan
) -> tuple[NoisePlan, tuple[str, ...]]:
    """Scale all noise until the worst unit's epsilon of the whole run towards the observer is the target.

    A device is under several edges, and an edge's noise is met by many devices, so there is no noise of its
    own for anybody: all multipliers are one number. Without sampling the first pass is exact. With it
    every pass but the last looks for the factor of the pair with the largest epsilon alone: a root of a
    composition takes as long as a dozen of them.

    Raises:
        SpecError: the observer does not exist or stands for nobody, is trusted with the raw updates of every
            unit, or sees who takes part where that must be hidden.
    """
    plan, tree, notes = start, rounds.trees[0][1], tuple[str, ...]()
    for number in range(_PASSES):
        factor, notes = _needed(rounds.ledger(plan), noise, rounds, of_all=number == _PASSES - 1)
        if 1 - _LESS <= factor <= 1 + _MORE:
            break
        everywhere = [np.full(tier.size, factor) for tier in tree.tiers]
        plan = plan.scaled(everywhere[-1], everywhere)
    return plan, notes


def _needed(
    ledger: TreeReleases, noise: NoiseByTarget, rounds: Rounds, *, of_all: bool
) -> tuple[float, tuple[str, ...]]:
    """The factor that the worst pair needs, and what is said of those that no target holds for.

    Args:
        ledger: of the whole run.
        noise: the target.
        rounds: of the run.
        of_all: whether to look for the factor of every pair where participants or records are drawn, and not
            just for that of the pair with the largest epsilon.
    """
    assert isinstance(ledger, MovingReleases)
    units = {found.unit: found.count for found in ledger.units_outside(frozenset())}
    largest, raw, pairs = 0.0, dict[int, int](), list[tuple[int, Party]]()
    for unit, observer in _bearing_pairs(ledger, noise.towards, rounds.trees[0][1]):
        if charge_of(ledger, rounds.spec, unit, observer).is_unprotected:
            raw[unit] = units.get(unit, 1)
        else:
            pairs.append((unit, observer))
    if pairs and is_sampled(ledger, rounds.spec) and not of_all:
        delta = rounds.spec.privacy.delta
        pairs = [max(pairs, key=lambda pair: charge_of(ledger, rounds.spec, *pair).epsilon(delta))]
    for unit, observer in pairs:
        factor = factor_of(ledger, rounds.spec, unit, observer, noise.epsilon)
        assert factor is not None  # something protects this pair
        if math.isinf(factor):
            raise SpecError("privacy.noise.for", noise.towards, unreachable(ledger, unit, observer))
        largest = max(largest, factor)
    if largest == 0.0:
        allowed = "received raw updates of every unit while it was trusted; no noise gives it an epsilon"
        raise SpecError("privacy.noise.for", noise.towards, allowed)
    if not raw:
        return largest, ()
    said = (
        f"{noise.towards} received the raw updates of {sum(raw.values())} devices while it was trusted: no "
        "target holds for them"
    )
    return largest, (said,)


def _bearing_pairs(ledger: MovingReleases, towards: str, tree: Tree) -> Iterator[tuple[int, Party]]:
    """A unit of each class, with the observers that ``towards`` stands for."""
    if towards not in OBSERVER_KINDS:
        observer = parse_observer(towards, tree, place="privacy.noise.for")
        members = {observer.index} if observer.kind == "device" else set[int]()
        yield from ((found.unit, observer) for found in ledger.units_outside(members))
        return
    found = [(pair.unit, pair.observer) for pair in ledger.pair_classes() if is_of_kind(pair, towards)]
    if not found:
        raise SpecError("privacy.noise.for", towards, "stands for nobody in this topology")
    yield from found
