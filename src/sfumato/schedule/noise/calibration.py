"""From what ``privacy.noise`` says to a multiplier for every source."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import replace

import numpy as np
import numpy.typing as npt

from sfumato.errors import SpecError
from sfumato.network.tree import Tree
from sfumato.privacy.observers import Party
from sfumato.privacy.pair_charge import PairCharge
from sfumato.privacy.tree.releases import TreeReleases
from sfumato.schedule.air.power_control import AirPlan
from sfumato.schedule.local_steps import Aggregation, momentum_gain
from sfumato.schedule.noise.placement import NoisePlan, place_by_trust
from sfumato.schedule.rows.observers import is_of_kind, parse_observer
from sfumato.spec.document import Spec
from sfumato.spec.privacy import OBSERVER_KINDS, NoiseByFormula, NoiseByTarget

FloatArray = npt.NDArray[np.float64]
_TOLERANCE = 1e-6
_SAMPLED_TOLERANCE = 3e-4  # a factor under sampling is a root found to 1e-4
_ITERATIONS = 60


def h2fdp_noise(
    noise: NoiseByFormula, spec: Spec, tree: Tree, rounds: tuple[Aggregation, ...], examples_per_device: float
) -> NoisePlan:
    """The noise that H2FDP's (15) with Lemma 3.2 amounts to.

    ``sigma = c2 q Delta sqrt(L ln(1/delta)) / epsilon`` with ``Delta = 2 eta tau G`` (``2 C`` where whole
    updates are clipped), over ``s_c`` at a trusted edge. ``L`` is the number of global aggregations of all
    training, or of the edge's own, ``q`` the batch size over the examples of a device. A multiplier is sigma
    over the message's actual zero-out sensitivity: ``eta G`` times what the steps it holds can add up to.

    In deeper trees than the paper's every tier is treated as its edges are: ``L`` counts the aggregations by
    that tier. No claim is made then (`claims.h2fdp`).
    """
    training, share = spec.training, record_rate(spec, examples_per_device)
    per_step = spec.privacy.clip is not None and spec.privacy.clip.kind == "step"

    def multiplier(steps: int, releases: int) -> float:
        stated = 2.0 * rounds[-1].step / momentum_gain(steps, training.momentum) if per_step else 2.0
        sigma = noise.c2 * share * math.sqrt(releases * math.log(1 / spec.privacy.delta)) / noise.epsilon
        return sigma * stated

    held = np.stack([aggregation.steps_of(tree.leaf_count) for aggregation in rounds])
    multipliers = []
    for tier in range(tree.depth):
        own = held[[a.tier == tier for a in rounds]]
        steps, counts = own.max(axis=0, initial=0), (own > 0).sum(axis=0)
        if tier == tree.depth - 1 > 0 and rounds[-1].edge_broadcasts:
            counts = counts + np.array(rounds[-1].edge_broadcasts)
            steps = np.where(rounds[-1].edge_broadcasts, np.maximum(steps, held[-1]), steps)
        each = [
            multiplier(max(int(most), 1), training.rounds * int(count))
            for most, count in zip(steps, counts, strict=True)
        ]
        multipliers.append(np.array(each))
    plan = place_by_trust(tree, multipliers)
    if training.global_update == "resend" and tree.depth == 2 and per_step:
        # a trusted edge's global message holds the whole round
        for edge, own in enumerate(held.T):
            whole = sum(momentum_gain(int(steps), training.momentum) for steps in own[own > 0])
            plan.node[1][edge, 0] *= momentum_gain(int(own[-1]), training.momentum) / whole
    return plan


def record_rate(spec: Spec, examples_per_device: float) -> float:
    """q of (15): the share of a device's examples that a batch holds."""
    size = spec.training.batch_size
    return 1.0 if size == "all" else min(1.0, size / examples_per_device)


def dp_fedavg_device_factor(participants: float) -> float:
    """DP-FedAvg's devices add ``C sigma / sqrt(r)`` each, and their sum sigma (Alg. 1 of PFELS)."""
    return 1.0 / math.sqrt(participants)


def calibrate(
    noise: NoiseByTarget,
    spec: Spec,
    tree: Tree,
    start: NoisePlan,
    build: Callable[[NoisePlan], TreeReleases],
    air: AirPlan | None = None,
) -> tuple[NoisePlan, tuple[str, ...]]:
    """Scale every source by itself until each unit's epsilon towards ``noise.towards`` equals the target.

    Each pass asks, for every class of units, by which factor the noise it meets must grow, and gives each
    source the largest factor of the units it serves; where views hold one source only (edges under a
    cloud) the first pass is exact. If sources keep pulling at each other, all are raised until the
    worst unit meets the target. Over the air devices add what the receiver's own noise lacks; nothing where
    that is enough already.

    Raises:
        SpecError: the observer does not exist, sees raw updates of every unit, or learns something that no
            noise hides (an elected supernode, or who takes part where that must be hidden).
    """
    plan = start
    for attempt in range(_ITERATIONS):
        ledger = build(plan)
        needed, notes = _factors(ledger, noise, tree, spec)
        tolerance = _SAMPLED_TOLERANCE if is_sampled(ledger, spec) else _TOLERANCE
        if air is not None:  # there is no less noise than the receiver's
            needed = np.where(plan.device.any(axis=1), needed, np.fmax(needed, 1.0))
        settled = float(np.nanmax(np.abs(needed - 1.0))) < tolerance
        if settled or attempt == _ITERATIONS - 1:
            # what is left is within the tolerance, or pulls at each other: the worst unit decides for all
            return _raised(plan, tree, float(np.nanmax(needed)), start, air), notes
        plan = _scaled(plan, *_by_source(tree, plan, needed), start, air)
    raise AssertionError("unreachable: the last attempt returns")


def _raised(plan: NoisePlan, tree: Tree, factor: float, start: NoisePlan, air: AirPlan | None) -> NoisePlan:
    """``plan`` with all noise ``factor`` times as large, where that is more."""
    if factor <= 1.0:
        return plan
    everywhere = [np.full(tier.size, factor) for tier in tree.tiers]
    return _scaled(plan, np.full(tree.leaf_count, factor), everywhere, start, air)


def _scaled(
    plan: NoisePlan, device: FloatArray, node: list[FloatArray], start: NoisePlan, air: AirPlan | None
) -> NoisePlan:
    """``plan`` with every source's noise, or the noise it is received with, multiplied by its factor."""
    scaled = plan.scaled(device, node)
    if air is None:
        return scaled
    floor, present = air.multiplier[:, None] ** 2, air.guaranteed_noisers[:, None]
    wanted = (plan.device**2 * present + floor) * device[:, None] ** 2
    added = np.sqrt(np.maximum(wanted - floor, 0.0) / present)
    return replace(scaled, device=np.where(start.device > 0, added, 0.0))


def _factors(
    ledger: TreeReleases, noise: NoiseByTarget, tree: Tree, spec: Spec
) -> tuple[FloatArray, tuple[str, ...]]:
    """Factor each leaf's units need, NaN where the observer is trusted with their raw updates."""
    orbits = ledger.leaf_classes
    needed = np.full(tree.leaf_count, np.nan)
    for unit, observers in _bearing_pairs(ledger, noise.towards, tree):
        leaf = tree.leaf_of(unit)
        for observer in observers:
            factor = factor_of(ledger, spec, unit, observer, noise.epsilon)
            if factor is None:
                continue
            if math.isinf(factor):
                raise SpecError("privacy.noise.for", noise.towards, unreachable(ledger, unit, observer))
            alike = orbits == orbits[leaf]
            needed[alike] = np.fmax(needed[alike], factor)
    if np.isnan(needed).all():
        raise SpecError(
            "privacy.noise.for", noise.towards, "is trusted with raw updates; no noise gives it an epsilon"
        )
    notes: tuple[str, ...] = ()
    if np.isnan(needed).any():
        count = int(tree.devices[np.isnan(needed)].sum())
        notes = (
            f"{noise.towards} is trusted with the raw updates of {count} devices: no target holds for them",
        )
    return needed, notes


def unreachable(ledger: TreeReleases, unit: int, observer: Party) -> str:
    """Why no amount of noise gives a pair the epsilon asked for."""
    who, whose = ledger.party_name(observer), f"device:{unit}"
    if ledger.elections and observer.kind == "device":
        return (
            f"no noise gives {whose} this epsilon towards {who}: as an elected supernode {who} receives what "
            "is not noised before, more often than delta allows; let devices add noise, or name supernodes"
        )
    return f"no noise gives {whose} this epsilon towards {who}, which sees whether the unit takes part"


def factor_of(ledger: TreeReleases, spec: Spec, unit: int, observer: Party, target: float) -> float | None:
    """Factor on a pair's noise that makes its epsilon the target; 1 where it is, up to a root's error.

    ``None`` where the observer is trusted with something
    that has no noise.
    """
    charge = charge_of(ledger, spec, unit, observer)
    if charge.is_unprotected:
        return None
    delta, of_record = spec.privacy.delta, charge.record is not None
    is_drawn = of_record or charge.exposures[0].draws[0].sampling.kind != "all"
    least = target * (1 - _SAMPLED_TOLERANCE)
    if is_drawn and least <= charge.epsilon(delta) <= target:  # else a root: many compositions
        return 1.0
    return charge.noise_scale(target, delta)


def charge_of(ledger: TreeReleases, spec: Spec, unit: int, observer: Party) -> PairCharge:
    """How a pair is charged; where targets are for records, as a record of ``unit``."""
    return PairCharge.of(
        ledger,
        "record" if spec.privacy.unit == "record" else "device",
        unit,
        (observer,),
        neighbours=spec.privacy.neighbours,
        by_filter=spec.control is not None,
    )


def is_sampled(ledger: TreeReleases, spec: Spec) -> bool:
    """Whether factors are roots of sampled compositions."""
    records = spec.privacy.unit == "record" and ledger.batches.rates is not None
    return records or ledger.draw_kind != "all"


def _bearing_pairs(ledger: TreeReleases, towards: str, tree: Tree) -> Iterator[tuple[int, list[Party]]]:
    """Units, one a class, with the observers that ``towards`` stands for."""
    if towards in OBSERVER_KINDS:
        by_unit: dict[int, list[Party]] = {}
        for pair in ledger.pair_classes():
            observers = by_unit.setdefault(pair.unit, [])
            if is_of_kind(pair, towards):
                observers.append(pair.observer)
        if not any(by_unit.values()):
            raise SpecError("privacy.noise.for", towards, "stands for nobody in this topology")
        yield from by_unit.items()
        return
    observer = parse_observer(towards, tree, place="privacy.noise.for")
    members = {observer.index} if observer.kind == "device" else set[int]()
    yield from ((found.unit, [observer]) for found in ledger.units_outside(members))


def _by_source(tree: Tree, plan: NoisePlan, needed: FloatArray) -> tuple[FloatArray, list[FloatArray]]:
    """Each source's factor: the largest that the leaves it serves need, 1 where it serves none."""
    per_node = []
    for tier in range(tree.depth):
        factor = np.zeros(tree.tiers[tier].size)
        np.fmax.at(factor, tree.paths[:, tier], np.nan_to_num(needed, nan=0.0))
        per_node.append(np.where(factor > 0, factor, 1.0))
    return np.nan_to_num(needed, nan=1.0), per_node
