"""From the spec of a tree to its plan: random choices made, noise sized, the result frozen."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

from sfumato.data.dataset_sizes import check_population, mean_examples
from sfumato.errors import SpecError
from sfumato.network import tree as federation
from sfumato.network.inlining import inlined
from sfumato.network.tree import Tree, trust_as_written, with_trust
from sfumato.schedule.batches import batch_facts, require_record_rates
from sfumato.schedule.local_steps import Aggregation, training_aggregations
from sfumato.schedule.noise.calibration import calibrate_over_time, calibrate_tree
from sfumato.schedule.noise.placement import (
    NoisePlan,
    dp_fedavg_device_factor,
    from_sources,
    h2fdp_noise,
    place_by_trust,
    to_sources,
)
from sfumato.schedule.participation import TreeParticipants, participants_of
from sfumato.schedule.resolve import shared_refusals, tree_refusals
from sfumato.schedule.resolve.protocol_defaults import (
    as_single_cluster,
    with_listed_counts,
    with_protocol_defaults,
)
from sfumato.schedule.tree import TreePlan
from sfumato.schedule.tree_facts import TreeRounds, tree_releases, uplink_over_the_air
from sfumato.spec.document import Spec
from sfumato.spec.limits import MAX_STATED
from sfumato.spec.privacy import NoiseByFormula, NoiseByMultiplier, NoiseBySource, NoiseByTarget, Placement
from sfumato.spec.refusals import Refusals, refuse_first
from sfumato.spec.topology import StarTopology, TreeTopology

if TYPE_CHECKING:
    from sfumato.schedule.air.power_control import AirPlan

Told = tuple[str, ...]
"""What the user should hear."""


def resolve_tree(spec: Spec) -> TreePlan:
    """Make every random choice of ``spec``, size every noise source, and freeze the result.

    Resolving the spec of the result gives the same plan again.

    Raises:
        SpecError: sections that do not fit each other or the data.
        DataError: the data are in a file that cannot be read.
    """
    spec, tree, notes = _with_tree_and_defaults(spec)
    spec, trees = _with_changes_over_time(spec, tree)
    notes = (*notes, *check_population(spec, tree))
    rounds = _rounds_of(spec, trees)
    refuse_first(_refusals(rounds))
    participants = participants_of(spec, tree)
    air = uplink_over_the_air(spec, tree, participants)
    noise, of_noise = _sized_noise(rounds, participants, air)
    of_air = Told()
    if air is not None:
        from sfumato.schedule.air.settings import air_notes, check_power

        check_power(noise, air)
        of_air = air_notes(air)
    rounds = replace(rounds, spec=_with_noise_and_trust_written(spec, tree, noise, air))
    return _plan_of(rounds, participants, noise, (*notes, *of_noise, *of_air))


def _with_tree_and_defaults(spec: Spec) -> tuple[Spec, Tree, Told]:
    """``spec`` with its protocol's defaults, its tree with trust marked, and notes for the user."""
    if spec.model.kind == "mlp" or (spec.privacy.clip is not None and spec.privacy.clip.per_layer):
        from sfumato.schedule.model_size import check_model_size

        check_model_size(spec)
    spec, of_cluster = as_single_cluster(inlined(spec))
    assert isinstance(spec.topology, StarTopology | TreeTopology)  # groups are resolved elsewhere
    tree = federation.from_spec(spec.topology)
    on_air = Told()
    if spec.sends_over_the_air or spec.air is not None or spec.compression is not None:
        from sfumato.schedule.air.settings import settle_air

        spec, on_air = settle_air(spec, tree)
    spec, of_protocol = with_protocol_defaults(spec, tree.depth)
    tree = with_trust(tree, spec.trust, seed=spec.seed)
    spec, of_clip = with_listed_counts(spec, tree), Told()
    if spec.privacy.clip is not None and spec.privacy.clip.adapt is not None:
        from sfumato.schedule.adaptive_clip import adaptive_clip_notes

        of_clip = adaptive_clip_notes(spec)
    return spec, tree, (*of_cluster, *on_air, *of_protocol, *of_clip)


def _with_changes_over_time(spec: Spec, tree: Tree) -> tuple[Spec, tuple[tuple[int, Tree], ...]]:
    """The trees of a run, each from which round (from 0) on, and ``spec`` with its moves written out."""
    if getattr(spec.topology, "moves", None) is None and spec.trust.from_ is None:
        return spec, ((0, tree),)
    from sfumato.schedule.moves import trees_of

    return trees_of(spec, tree)


def _rounds_of(spec: Spec, trees: tuple[tuple[int, Tree], ...]) -> TreeRounds:
    """The rounds of a run: its trees, the aggregations of a round, and how devices draw their batches."""
    (_, tree), *_ = trees
    if getattr(spec.radio, "distances_m", None) is not None:
        from sfumato.radio.channels import Channels

        Channels.of_tree(spec, tree).check_distances()
    aggregations = training_aggregations(spec.training, tree.depth, tree.leaf_count)
    _check_size(tree, aggregations)
    batches = batch_facts(spec, tree.devices, _steps_of_messages(aggregations, tree.leaf_count))
    return TreeRounds(spec, trees, aggregations, batches)


def _check_size(tree: Tree, aggregations: tuple[Aggregation, ...]) -> None:
    """Raise a `SpecError` if there are more aggregations of more nodes than can be accounted for singly."""
    nodes = sum(tier.size for tier in tree.tiers)
    if nodes * len(aggregations) > MAX_STATED:
        allowed = (
            f"makes {len(aggregations):,} aggregations a round in a tree of {nodes:,} aggregators; at most "
            f"{MAX_STATED:,} of the two multiplied: each has a noise of its own"
        )
        raise SpecError("training", None, allowed)


def _steps_of_messages(aggregations: tuple[Aggregation, ...], leaves: int) -> list[list[int]]:
    """Numbers of local steps behind each message of a round, in order.

    One list for each of ``leaves`` leaves where some aggregation is of some edges only, else one for all.
    """
    if not any(aggregation.of_edge for aggregation in aggregations):
        return [[aggregation.local_steps for aggregation in aggregations]]
    steps = np.stack([aggregation.steps_of(leaves) for aggregation in aggregations], axis=1)
    return [own[own > 0].tolist() for own in steps]


def _refusals(rounds: TreeRounds) -> Refusals:
    """The refusals of a tree whose rounds are known, table after table."""
    spec, clip = rounds.spec, rounds.spec.privacy.clip
    if spec.sends_over_the_air:
        from sfumato.schedule.air.settings import air_refusals

        yield from air_refusals(spec)
    yield from tree_refusals.tree_compression_refusals(rounds)
    yield from tree_refusals.edge_schedule_refusals(rounds)
    yield from tree_refusals.supernode_failure_refusals(rounds)
    yield from tree_refusals.secure_aggregation_refusals(rounds)
    if clip is not None and clip.adapt is not None:
        from sfumato.schedule.adaptive_clip import adaptive_clip_refusals

        yield from adaptive_clip_refusals(spec)
    yield from shared_refusals.drift_correction_refusals(spec)
    yield from tree_refusals.scaffold_refusals(rounds)
    yield from tree_refusals.local_work_refusals(rounds)
    yield from shared_refusals.mechanism_refusals(spec)


def _sized_noise(
    rounds: TreeRounds, participants: TreeParticipants, air: AirPlan | None
) -> tuple[NoisePlan, Told]:
    """Multipliers of every source that adds noise in any round, and notes for the user.

    Args:
        rounds: resolved, without their noise.
        participants: who takes part in a round.
        air: of the devices' uplink, whose receivers add noise; ``None`` without.
    """
    noise, is_moving = rounds.spec.privacy.noise, len(rounds.trees) > 1
    if isinstance(noise, NoiseByTarget):
        require_record_rates(rounds.spec, rounds.tree.devices, rounds.batches)
        if is_moving:
            return calibrate_over_time(noise, rounds)
        return calibrate_tree(noise, rounds, participants, air)
    if not is_moving:
        return _stated_noise(rounds, rounds.tree, participants, air), ()
    from sfumato.schedule.moves import noise_under_any_trust

    return noise_under_any_trust(
        rounds.trees, lambda tree: _stated_noise(rounds, tree, participants, None)
    ), ()


def _stated_noise(
    rounds: TreeRounds, tree: Tree, participants: TreeParticipants, air: AirPlan | None
) -> NoisePlan:
    """Multipliers that follow from ``privacy.noise`` without a search; all 0 where no message is noised.

    Args:
        rounds: resolved, whose spec states the noise.
        tree: who is trusted, so who adds it; one of ``rounds``.
        participants: who takes part in a round.
        air: of the devices' uplink; ``None`` without.
    """
    spec, noise = rounds.spec, rounds.spec.privacy.noise
    match noise:
        case NoiseBySource():
            return from_sources(tree, noise)
        case NoiseByMultiplier(at="message", placement=Placement() as placement):
            from sfumato.schedule.noise.zone_placement import place_by_zone

            tiers = (aggregation.tier for aggregation in rounds.aggregations)
            return place_by_zone(tree, placement, noise.multiplier, tiers, seed=spec.seed)
        case NoiseByMultiplier(at="message"):
            plan = place_by_trust(tree, [noise.multiplier] * tree.depth)
            if air is not None:
                from sfumato.schedule.air.settings import with_noise_up_to_multiplier

                return with_noise_up_to_multiplier(plan, air, noise.multiplier)
            share = (
                dp_fedavg_device_factor(float(participants.count[0])) if spec.protocol == "dp-fedavg" else 1.0
            )
            return replace(plan, device=plan.device * share)
        case NoiseByFormula(formula="h2fdp"):
            return h2fdp_noise(noise, spec, tree, rounds.aggregations, mean_examples(spec, tree))
        case _:  # none; of the air alone; or every device adds it to its gradients, and none to messages
            return place_by_trust(tree, [0.0] * tree.depth)


def _with_noise_and_trust_written(spec: Spec, tree: Tree, noise: NoisePlan, air: AirPlan | None) -> Spec:
    """``spec`` with the multipliers of ``noise`` for every source, and with all trust, written out.

    Args:
        spec: as the user wrote it.
        tree: says who is trusted.
        noise: as resolved.
        air: of the devices' uplink, whose noise may be all there is; ``None`` without.

    Raises:
        SpecError: noise is asked for, and nobody adds any.
    """
    stated, sources = spec.privacy.noise, to_sources(tree, noise)
    update: dict[str, object] = {"trust": trust_as_written(tree, spec.trust)}
    if stated.kind != "none" and not spec.privacy.step_noise and (sources or air is None):
        if not sources:
            raise SpecError("privacy.noise", None, "gives every source a multiplier of 0; write noise: none")
        origin = stated.calibrated_from if isinstance(stated, NoiseBySource) else stated
        written = NoiseBySource(sources=sources, calibrated_from=origin)
        update["privacy"] = spec.privacy.model_copy(update={"noise": written})
    return spec.model_copy(update=update)


def _plan_of(rounds: TreeRounds, participants: TreeParticipants, noise: NoisePlan, notes: Told) -> TreePlan:
    """The plan of resolved rounds; in a network that moves, with the plan of every tree in it.

    Args:
        rounds: resolved, one tree or several.
        participants: who takes part in a round.
        noise: of every source.
        notes: for the user, so far.

    Raises:
        SpecError: adaptive control is asked for, and its theorem does not hold for this plan.
    """
    spec, one_tree = rounds.spec, len(rounds.trees) == 1
    if one_tree:
        declared = tree_releases(rounds, rounds.tree, participants, noise)
    else:
        from sfumato.schedule import moves

        releases = moves.releases_over_time(rounds, noise)
        declared = moves.moving_releases(rounds, releases)
    if declared.rounds_after_noise:
        notes = (
            *notes,
            "devices round what they noised, and sums of rounded messages can be taken apart: towards "
            "everybody a device's own noise is all that is counted",
        )
    plan = TreePlan(spec, rounds.tree, rounds.aggregations, participants, noise, declared, notes)
    if spec.control is not None:
        from sfumato.schedule.control.adaptive import control_refusals

        refuse_first(control_refusals(plan))
    return plan if one_tree else moves.with_plan_of_every_tree(plan, rounds, releases)
