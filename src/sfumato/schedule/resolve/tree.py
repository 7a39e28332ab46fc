"""From the spec of a tree to its plan: random choices made, noise sized, the result frozen."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import partial

import numpy as np

from sfumato.data.dataset_sizes import check_population, mean_examples
from sfumato.errors import SpecError
from sfumato.network import tree as federation
from sfumato.network.inlining import inlined
from sfumato.network.tree import Tree
from sfumato.network.trust import as_written, with_trust
from sfumato.privacy.draws.batches import BatchFacts
from sfumato.privacy.tree.releases import TreeReleases
from sfumato.radio.channels import Channels
from sfumato.schedule.adaptive_clip import adaptive_clip_notes, check_adaptive_clip
from sfumato.schedule.air.power_control import AirPlan, air_of
from sfumato.schedule.air.settings import air_notes, check_power, filled_up, settle_air
from sfumato.schedule.batches import batch_facts, require_record_rates
from sfumato.schedule.control.adaptive import check_control
from sfumato.schedule.integer_grid import check_secure
from sfumato.schedule.local_steps import Aggregation, of_training
from sfumato.schedule.model_size import check_model_size
from sfumato.schedule.moves import (
    Rounds,
    changes_after_the_end,
    check_noise,
    ledger_over_time,
    noise_in,
    over_all,
    trees_of,
)
from sfumato.schedule.noise.calibration import calibrate, dp_fedavg_device_factor, h2fdp_noise
from sfumato.schedule.noise.moving_calibration import calibrate_over_time
from sfumato.schedule.noise.placement import (
    NoisePlan,
    from_sources,
    place_by_trust,
    to_sources,
    with_device_factor,
)
from sfumato.schedule.noise.zone_placement import place_by_zone
from sfumato.schedule.participation import Cohort, participants_of
from sfumato.schedule.resolve.drift_correction import check_drift_correction
from sfumato.schedule.resolve.protocol_defaults import apply_preset, as_single_cluster, with_listed_counts
from sfumato.schedule.tree import TreePlan
from sfumato.schedule.tree_facts import build_ledger
from sfumato.spec.document import Spec
from sfumato.spec.limits import MAX_STATED
from sfumato.spec.privacy import NoiseByFormula, NoiseByMultiplier, NoiseBySource, NoiseByTarget, Placement
from sfumato.spec.topology import Star
from sfumato.spec.topology import Tree as WrittenTree
from sfumato.spec.used_keys import unused_keys


def resolve_tree(spec: Spec) -> TreePlan:
    """Make every random choice of ``spec``, size every noise source, and freeze the result.

    Resolving the spec of the result gives the same plan again.

    Raises:
        SpecError: sections that do not fit each other or the data.
    """
    check_model_size(spec)
    spec, of_cluster = as_single_cluster(inlined(spec))
    unused = next(unused_keys(spec), None)  # a tree out of a file is known only now
    if unused is not None:
        raise SpecError(unused.key, unused.value, unused.allowed)
    assert isinstance(spec.topology, Star | WrittenTree)  # groups are resolved elsewhere
    tree = federation.from_spec(spec.topology)
    spec, on_air = settle_air(spec, tree)
    preset = apply_preset(spec, tree.depth)
    spec, notes = preset.spec, (*of_cluster, *on_air, *preset.notes, *adaptive_clip_notes(spec))
    tree = with_trust(tree, spec.trust, seed=spec.seed)
    spec, trees = trees_of(with_listed_counts(spec, tree), tree)
    notes = (*notes, *changes_after_the_end(spec), *check_population(spec, tree))
    Channels.of_tree(spec, tree).check()
    rounds = of_training(spec.training, tree.depth, tree.leaf_count)
    _check_schedules(spec, rounds)
    _check_size(tree, rounds)
    _check_elections(spec, rounds)
    batches = batch_facts(spec, tree.devices, _pieces(rounds, tree.leaf_count))
    check_secure(spec, tree, len(rounds), batches)
    check_adaptive_clip(spec)
    check_drift_correction(spec, len(rounds))
    participants = participants_of(spec, tree)
    air = air_of(spec, tree, participants.drawn)
    over_time = Rounds(spec, trees, rounds, batches)
    noise, more = _noise_over_time(over_time, participants, air)
    if air is not None:
        check_power(noise, air)
        more = (*more, *air_notes(air))
    stated = spec.privacy.noise
    sources = to_sources(tree, noise)
    if stated.kind != "none" and not spec.privacy.step_noise and not (air is not None and not sources):
        if not sources:
            raise SpecError("privacy.noise", None, "gives every source a multiplier of 0; write noise: none")
        origin = stated.calibrated_from if isinstance(stated, NoiseBySource) else stated
        frozen = NoiseBySource(sources=sources, calibrated_from=origin)
        spec = spec.model_copy(update={"privacy": spec.privacy.model_copy(update={"noise": frozen})})
    spec = spec.model_copy(update={"trust": as_written(tree, spec.trust)})
    over_time = Rounds(spec, trees, rounds, batches)
    releases = over_time.releases(noise)
    ledger = ledger_over_time(trees, releases)
    if ledger.rounds_after_noise:
        more = (
            *more,
            "devices round what they noised, and sums of rounded messages can be taken apart: towards "
            "everybody a device's own noise is all that is counted",
        )
    plan = TreePlan(spec, tree, rounds, participants, noise, ledger, (*notes, *more))
    check_control(plan)
    return plan if len(trees) == 1 else _moving(plan, over_time, releases)


def _moving(plan: TreePlan, over_time: Rounds, releases: Sequence[TreeReleases]) -> TreePlan:
    """``plan`` with the plan of every tree."""
    eras = []
    for (first, tree), facts in zip(over_time.trees, releases, strict=True):
        noise, cohort = noise_in(tree, plan.noise, over_time.trees), participants_of(plan.spec, tree)
        eras.append((first, replace(plan, tree=tree, participants=cohort, noise=noise, ledger=facts)))
    return replace(plan, eras=tuple(eras))


def _noise_over_time(
    rounds: Rounds, participants: Cohort, air: AirPlan | None
) -> tuple[NoisePlan, tuple[str, ...]]:
    """Multipliers of every source that adds noise in any round, and what the user should hear."""
    spec, trees, noise = rounds.spec, rounds.trees, rounds.spec.privacy.noise
    if isinstance(noise, NoiseByTarget):
        require_record_rates(spec, trees[0][1].devices, rounds.batches)
    if len(trees) == 1:
        return _noise(spec, trees[0][1], rounds.aggregations, participants, rounds.batches, air)
    if isinstance(noise, NoiseByTarget):
        start = over_all(trees, lambda tree: place_by_trust(tree, [1.0] * tree.depth))
        return calibrate_over_time(noise, rounds, start)

    def of(tree: Tree) -> NoisePlan:
        return _noise(spec, tree, rounds.aggregations, participants, rounds.batches, air)[0]

    found = over_all(trees, of)
    check_noise(found, trees)
    return found, ()


def _check_size(tree: Tree, rounds: tuple[Aggregation, ...]) -> None:
    """Refuse more aggregations of more nodes than can be accounted for one by one."""
    nodes = sum(tier.size for tier in tree.tiers)
    if nodes * len(rounds) > MAX_STATED:
        allowed = (
            f"makes {len(rounds):,} aggregations a round in a tree of {nodes:,} aggregators; at most "
            f"{MAX_STATED:,} of the two multiplied: each has a noise of its own"
        )
        raise SpecError("training", None, allowed)


def _pieces(rounds: tuple[Aggregation, ...], leaves: int) -> list[list[int]]:
    """Local steps behind the messages of a round: for each leaf, where they differ; else once."""
    if not any(aggregation.of_edge for aggregation in rounds):
        return [[aggregation.local_steps for aggregation in rounds]]
    steps = np.stack([aggregation.steps_of(leaves) for aggregation in rounds], axis=1)
    return [own[own > 0].tolist() for own in steps]


def _check_schedules(spec: Spec, rounds: tuple[Aggregation, ...]) -> None:
    """Refuse schedules of single edges where what goes with them is worked out for all edges together."""
    key, value = "training.edge_every", spec.training.edge_every
    if spec.training.edge_at_global:
        key, value = "training.edge_at_global", True
    elif not any(aggregation.of_edge for aggregation in rounds):
        return
    if spec.sends_over_the_air:
        allowed = "is not derived over the air, where the power of each aggregation is settled for all edges"
        raise SpecError(key, value, allowed)
    if spec.control is not None:
        raise SpecError(key, value, "must be one number with control, which spaces the aggregations itself")


def _check_elections(spec: Spec, rounds: tuple[Aggregation, ...]) -> None:
    """Refuse failing supernodes in a round of several aggregations: an office is held for all of it."""
    if spec.elects_supernodes and spec.faults is not None and len(rounds) > 1:
        rate = spec.faults.supernode_failure_rate
        if rate:
            allowed = (
                f"goes with one aggregation a round; this one has {len(rounds)}, and a supernode that failed "
                "in one of them would be back in the next"
            )
            raise SpecError("faults.supernode_failure_rate", rate, allowed)


def _noise(
    spec: Spec,
    tree: Tree,
    rounds: tuple[Aggregation, ...],
    participants: Cohort,
    batches: BatchFacts,
    air: AirPlan | None,
) -> tuple[NoisePlan, tuple[str, ...]]:
    noise = spec.privacy.noise
    match noise:
        case NoiseBySource():
            return from_sources(tree, noise), ()
        case NoiseByMultiplier(at="step"):  # every device adds it to its gradients, and none to messages
            return place_by_trust(tree, [0.0] * tree.depth), ()
        case NoiseByMultiplier(placement=Placement() as placement):
            tiers = (aggregation.tier for aggregation in rounds)
            return place_by_zone(tree, placement, noise.multiplier, tiers, seed=spec.seed), ()
        case NoiseByMultiplier():
            plan = place_by_trust(tree, [noise.multiplier] * tree.depth)
            if air is not None:
                return filled_up(plan, air, noise.multiplier), ()
            if spec.protocol == "dp-fedavg":
                plan = with_device_factor(plan, dp_fedavg_device_factor(float(participants.count[0])))
            return plan, ()
        case NoiseByFormula(formula="h2fdp"):
            examples = mean_examples(spec, tree)
            return h2fdp_noise(noise, spec, tree, rounds, examples), ()
        case NoiseByTarget():
            start = place_by_trust(tree, [1.0] * tree.depth)
            build = partial(build_ledger, spec, tree, rounds, participants, batches)
            return calibrate(noise, spec, tree, start, build, air)
        case _:
            silent = NoisePlan(
                np.zeros((tree.leaf_count, tree.depth)),
                tuple(np.zeros((t.size, tree.depth)) for t in tree.tiers),
            )
            return silent, ()
