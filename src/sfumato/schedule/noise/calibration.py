"""Noise for a target of ε: a multiplier for every source of a tree, of trees that change, and of groups.

`least_noise` searches; here it is said which sources scale together, how a pair is charged, what is refused
and what is told.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING

import numpy as np

from sfumato.errors import SpecError
from sfumato.privacy.declared_releases import PairCharge
from sfumato.privacy.losses import gaussian
from sfumato.privacy.tree.releases import TreeReleases
from sfumato.schedule.noise.least_noise import (
    FOR,
    TOLERANCE,
    FloatArray,
    Verdict,
    charge_of,
    least_noise,
    pairs_towards,
    verdict_on_factors,
    verdict_on_worst,
)
from sfumato.schedule.noise.placement import NoisePlan, place_by_trust
from sfumato.schedule.noise.shared_factors import FactorsFound, factors_of
from sfumato.schedule.participation import TreeParticipants, participants_of
from sfumato.schedule.tree_facts import TreeRounds, tree_releases
from sfumato.spec.document import Spec
from sfumato.spec.limits import LEAST_SOURCE, MOST_SOURCE
from sfumato.spec.privacy import OBSERVER_KINDS, NoiseByTarget

if TYPE_CHECKING:
    from sfumato.schedule.air.power_control import AirPlan
    from sfumato.schedule.groups import GroupPlan

_EXACT_TOLERANCE = 1e-6  # of factors that are no roots
_ALL_TRUST = (
    "is trusted with raw updates, so no noise gives it an epsilon: trust it no longer, or state the target "
    f"towards others ({FOR})"
)
NO_TARGET = "no target holds for them"
"""Part of every note on devices whose target of ε does not hold, as they trust its observer."""
Told = tuple[str, ...]


def calibrate_tree(
    noise: NoiseByTarget, rounds: TreeRounds, participants: TreeParticipants, air: AirPlan | None
) -> tuple[NoisePlan, Told]:
    """Scale each source of one tree so that each unit's ε towards ``noise.towards`` is ``noise.epsilon``.

    Where very many units differ, ε may be a little less. Over the air devices add what the receiver's own
    noise lacks; nothing where that is enough already.

    Args:
        noise: the target.
        rounds: of the tree.
        participants: of a round.
        air: the devices' uplink, where it is the air.

    Returns:
        Multipliers of every source, and notes for the user.

    Raises:
        SpecError: the observer does not exist, sees raw updates of every unit, or learns something that no
            noise hides (an elected supernode, or who takes part where that must be hidden).
    """
    tree, needed = rounds.tree, np.empty(0)
    found: FactorsFound | None = None
    start = place_by_trust(tree, [1.0] * tree.depth)
    ends = np.cumsum([tree.leaf_count, *(tier.size for tier in tree.tiers)])

    def with_sizes(sizes: FloatArray) -> NoisePlan:
        device, *node = np.split(sizes, ends[:-1])
        scaled = start.scaled(device, node)
        if air is None:
            return scaled
        from sfumato.schedule.air.settings import with_received_noise  # which needs radios

        return with_received_noise(scaled, start, air, device)

    def judged(sizes: FloatArray) -> Verdict:
        nonlocal needed, found
        plan = with_sizes(sizes)
        declared = tree_releases(rounds, tree, participants, plan)
        needed, found = _factors_of_leaves(declared, noise, rounds, found)
        if air is not None:  # there is no less noise than the receiver's
            needed = np.where(plan.device.any(axis=1), needed, np.fmax(needed, 1.0))
        tolerance = TOLERANCE if _is_sampled(declared, rounds.spec) else _EXACT_TOLERANCE
        return verdict_on_factors(_factors_of_sources(rounds, needed), tolerance)

    plan = with_sizes(least_noise(judged, np.ones(ends[-1])))
    if not np.isnan(needed).any():
        return plan, ()
    raw = int(tree.devices[np.isnan(needed)].sum())
    return plan, (f"{noise.towards} is trusted with the raw updates of {raw} devices: {NO_TARGET}",)


def _factors_of_leaves(
    declared: TreeReleases, noise: NoiseByTarget, rounds: TreeRounds, before: FactorsFound | None
) -> tuple[FloatArray, FactorsFound]:
    """The factor on all noise stds that the units of each leaf need to meet the target, ``[leaves]``.

    NaN where the observer may see raw updates of the leaf. And the factors of the pairs themselves, which the
    next trial takes as ``before``.

    Raises:
        SpecError: it may see those of all leaves, or no noise is enough for a pair.
    """
    tree = rounds.tree
    needed = np.full(tree.leaf_count, np.nan)
    pairs = pairs_towards(declared, noise.towards, tree, where="this topology")
    charges = [charge_of(declared, rounds.spec, unit, observer) for unit, observer in pairs]
    left = [charge for charge in charges if not charge.is_unprotected]
    own = partial(_factor_to_target, noise=noise, spec=rounds.spec)
    delta = rounds.spec.privacy.delta
    found = factors_of(left, own, epsilon=noise.epsilon, delta=delta, before=before)
    for charge, factor in zip(left, found.factors, strict=True):
        here = declared.leaves_like(tree.leaf_of(charge.device))
        needed[here] = np.fmax(needed[here], factor)
    if np.isnan(needed).all():
        raise SpecError(FOR, noise.towards, _ALL_TRUST)
    return needed, found


def _factors_of_sources(rounds: TreeRounds, needed: FloatArray) -> FloatArray:
    """The factor of every source: the largest that the leaves it serves need, 1 where it serves none.

    ``needed``: factor that the units of each leaf need, ``[leaves]``; NaN for none. Devices of each leaf come
    first, then the nodes of each tier.
    """
    tree, found = rounds.tree, [np.nan_to_num(needed, nan=1.0)]
    for tier in range(tree.depth):
        factor = np.zeros(tree.tiers[tier].size)
        np.fmax.at(factor, tree.paths[:, tier], np.nan_to_num(needed, nan=0.0))
        found.append(np.where(factor > 0, factor, 1.0))
    return np.concatenate(found)


def _factor_to_target(charge: PairCharge, noise: NoiseByTarget, spec: Spec) -> float:
    """The factor on a pair's noise that makes its ε the target; 1 where it is just below already.

    Args:
        charge: of the pair, with noise at factor 1.
        noise: states the target.
        spec: states δ.

    Raises:
        SpecError: no noise reaches it.
    """
    target, delta = noise.epsilon, spec.privacy.delta
    is_drawn = charge.record is not None or charge.distinct_exposures[0].draws[0].sampling.kind != "all"
    if is_drawn and target * (1 - TOLERANCE) <= charge.epsilon(delta) <= target:  # else a root
        return 1.0
    found = charge.noise_scale(target, delta)
    if math.isinf(found):
        raise SpecError(FOR, noise.towards, _why_unreachable(charge))
    return found


def _why_unreachable(charge: PairCharge) -> str:
    """A sentence on why no amount of noise gives a pair of a tree the epsilon asked for."""
    (observer,), declared = charge.coalition, charge.releases
    who, whose = declared.party_name(observer), f"device:{charge.device}"
    if isinstance(declared, TreeReleases) and declared.elections and observer.kind == "device":
        return (
            f"no noise gives {whose} this epsilon towards {who}: as an elected supernode {who} receives what "
            "is not noised before, more often than delta allows; let devices add noise, or name supernodes"
        )
    return f"no noise gives {whose} this epsilon towards {who}, which sees whether the unit takes part"


def _is_sampled(declared: TreeReleases, spec: Spec) -> bool:
    """Whether pairs are charged for draws: factors are then roots of sampled compositions."""
    records = spec.privacy.unit_within_device and declared.batches.rates is not None
    return records or declared.draw_kind != "all"


def calibrate_over_time(noise: NoiseByTarget, rounds: TreeRounds) -> tuple[NoisePlan, Told]:
    """Scale all noise by one factor so that the worst unit's ε of the whole run is the target.

    For trees that change over time; the target is ``noise.epsilon`` towards ``noise.towards`` at the spec's
    δ. Returns multipliers of every source, and notes for the user. The noise of devices keeps its ratio to
    that of edges (`_shares_of_devices`). Where factors are roots, only that of the pair with the largest ε is
    looked for: a root of a composition takes as long as a dozen of them.

    Raises:
        SpecError: the observer does not exist or stands for nobody, is trusted with the raw updates of every
            unit, or sees who takes part where that must be hidden.
    """
    from sfumato.schedule import moves

    spec, raw = rounds.spec, dict[int, int]()
    start = moves.noise_under_any_trust(rounds.trees, lambda tree: place_by_trust(tree, [1.0] * tree.depth))
    shares = _shares_of_devices(noise.towards, rounds)

    def with_sizes(sizes: FloatArray) -> NoisePlan:
        everywhere = [np.full(tier.size, sizes[0]) for tier in rounds.tree.tiers]
        return start.scaled(shares * sizes[0], everywhere)

    def judged(sizes: FloatArray) -> Verdict:
        declared = moves.moving_releases(rounds, moves.releases_over_time(rounds, with_sizes(sizes)))
        counts = {found.unit: found.count for found in declared.units_outside(frozenset())}
        pairs = pairs_towards(declared, noise.towards, rounds.tree, where="this topology")
        charges = [charge_of(declared, spec, unit, observer) for unit, observer in pairs]
        raw.update({each.device: counts.get(each.device, 1) for each in charges if each.is_unprotected})
        left = [each for each in charges if not each.is_unprotected]
        if left and _is_sampled(declared, spec):
            spent = [each.epsilon(spec.privacy.delta) for each in left]
            worst = left[spent.index(max(spent))]
            return verdict_on_worst(max(spent), noise.epsilon, lambda: needed([worst]))
        return verdict_on_factors(np.array([needed(left)]), _EXACT_TOLERANCE)._replace(excess=1.0)

    def needed(charges: Sequence[PairCharge]) -> float:
        largest = max((_factor_to_target(each, noise, spec) for each in charges), default=0.0)
        if largest == 0.0:
            allowed = "received raw updates of every unit while it was trusted; no noise gives it an epsilon"
            raise SpecError(FOR, noise.towards, allowed)
        return largest

    found = with_sizes(least_noise(judged, np.ones(1)))
    if not raw:
        return found, ()
    said = (
        f"{noise.towards} received the raw updates of {sum(raw.values())} devices while it was trusted: no "
        "target holds for them"
    )
    return found, (said,)


def _shares_of_devices(towards: str, rounds: TreeRounds) -> FloatArray:
    """The noise of a device under each edge, over the noise that a trusted edge adds, ``[leaves]``.

    The cloud and the public receive only sums over the participants of an edge. The noise of ``n`` of them,
    each with multiplier ``d``, hides one contribution to their sum as a trusted edge's multiplier ``d √n``
    does. Without sampling, T rounds with ``n_t`` participants are charged for the sum over t of ``1 / (d²
    n_t)``, and those of a trusted edge with multiplier 1 for T. Both are equal where ``d²`` is the mean of
    ``1 / n_t`` over the rounds. Other observers may receive the message of one device: d is 1.

    Args:
        towards: the observer that the target of ε is about.
        rounds: of the run, with its trees.
    """
    if towards not in ("cloud", "public"):
        return np.ones(rounds.tree.leaf_count)
    firsts = [first for first, _ in rounds.trees]
    lasting = np.diff([*firsts, rounds.spec.training.rounds])
    drawn = np.stack([participants_of(rounds.spec, tree).drawn for _, tree in rounds.trees])
    return np.sqrt(np.average(1.0 / drawn, axis=0, weights=lasting))


def calibrate_groups(plan: GroupPlan, noise: NoiseByTarget) -> tuple[FloatArray, Told]:
    """Find the least noise multiplier, one for all groups, at which every unit's ε is within the target.

    The target is ``noise.epsilon`` towards ``noise.towards``. Noise is relative to each group's clip norm.

    Args:
        plan: with any noise, which is replaced.
        noise: the target.

    Returns:
        The multiplier ``[M]`` for M groups, and notes for the user.

    Raises:
        SpecError: the observer does not exist, is trusted with raw updates of every unit, needs no noise at
            all, or sees something that no noise hides; or the multiplier is outside the range that a spec
            allows.
    """
    target, delta, trusting = noise.epsilon, plan.spec.privacy.delta, 0

    def judged(sizes: FloatArray) -> Verdict:
        nonlocal trusting
        trial = replace(plan, multipliers=np.full(plan.groups.count, sizes[0]))
        pairs, trusting = _charges_in_groups(trial, noise.towards)
        spent = [pair.epsilon(delta) for pair in pairs]
        worst = max(spent)

        asked = [pairs[spent.index(worst)]] if worst > 0 else pairs
        return verdict_on_worst(worst, target, lambda: _factor_in_groups(asked, noise, delta))

    enough = float(least_noise(judged, np.array([first_trial_multiplier(plan, target)]))[0])
    if not LEAST_SOURCE <= enough <= MOST_SOURCE:
        allowed = f"would give every group this multiplier; must be {LEAST_SOURCE:g} to {MOST_SOURCE:g}"
        raise SpecError("privacy.noise", enough, allowed)
    said = f"{noise.towards} is trusted with the raw updates of {trusting} devices: {NO_TARGET}"
    if noise.towards in OBSERVER_KINDS and not plan.trusted.all():  # they may have others, not trusted
        said = (
            f"some masters are trusted with the raw updates of {trusting} devices: {NO_TARGET} "
            "towards masters that they trust"
        )
    return np.full(plan.groups.count, enough), (said,) if trusting else ()


def first_trial_multiplier(plan: GroupPlan, target: float) -> float:
    """A noise multiplier above 0 at which to start the search for ε = ``target``.

    It is the answer for a worker in the most groups if the observer sees all releases and nothing is
    amplified by sampling.
    """
    memberships = np.bincount(plan.groups.members)
    releases = max(1, int(memberships.max()) * plan.release_count)
    return math.sqrt(releases) / gaussian.mu(epsilon=target, delta=plan.spec.privacy.delta)


def _charges_in_groups(plan: GroupPlan, towards: str) -> tuple[list[PairCharge], int]:
    """The charges of the pairs that a target is about, and how many workers trust the observer instead.

    ``towards``: a kind of observer, or the name of one, as ``privacy.noise.for`` has it.

    Raises:
        SpecError: there is no such pair, or all trust the observer.
    """
    pairs = pairs_towards(plan.releases, towards, plan.parties, where="these groups")
    left = [(unit, observer) for unit, observer in pairs if not plan.trusts(observer, unit)]
    if not left:
        raise SpecError(FOR, towards, _ALL_TRUST)
    (_, observer), *_ = pairs
    if len(left) == len(pairs):
        trusting = 0
    elif towards in OBSERVER_KINDS:
        trusting = plan.raw_to_trusted_edge
    else:
        trusting = int(plan.groups.sizes[observer.index])
    return [charge_of(plan.releases, plan.spec, *pair) for pair in left], trusting


def _factor_in_groups(pairs: Sequence[PairCharge], noise: NoiseByTarget, delta: float) -> float:
    """The least factor on all noise at which each of ``pairs``, at least one, meets the target of ``noise``.

    Args:
        pairs: charges, at least one.
        noise: the target of ε.
        delta: δ in (0, 1).

    Raises:
        SpecError: every noise meets it, or none.
    """
    factor = max(pair.noise_scale(noise.epsilon, delta) for pair in pairs)
    if factor == 0:
        allowed = (
            "learns so little that this epsilon needs no noise; name an observer that noise protects from"
        )
        raise SpecError(FOR, noise.towards, allowed)
    if math.isinf(factor):
        pair = pairs[0]
        allowed = (
            f"no noise gives device:{pair.device} this epsilon towards "
            f"{pair.releases.party_name(pair.coalition[0])}, which sees something of it that is not noised, "
            "or whether it takes part"
        )
        raise SpecError(FOR, noise.towards, allowed)
    return factor
