"""What a tree is refused with once its rounds are known: one table of refusals for each subject."""

from __future__ import annotations

import math

from sfumato.schedule.tree_facts import TreeRounds
from sfumato.spec.refusals import Refusals

# fmt: off

ONLY_PLAIN = {
    "air": "the air carries amplitudes, not bits",
    "secure-aggregation": "secure aggregation rounds",
}


def tree_compression_refusals(rounds: TreeRounds) -> Refusals:
    """The settings that compressed messages in trees exclude, as rows (applies, key, value, allowed).

    If ``applies`` of a row is true, the spec of ``rounds`` is refused with an error about ``key``.
    """
    spec, aggregates_once = rounds.spec, len(rounds.aggregations) == 1
    compression = spec.compression
    if compression is None:
        return
    yield (spec.training.global_update == "resend", "compression", None,
           "goes with training.global_update: increment only")
    if compression.bits is not None:
        hop = rounds.hops[-1]
        yield (hop != "plain", "compression.bits", compression.bits,
               f"goes with a plain hop: {ONLY_PLAIN.get(hop)}")
    yield (compression.kind == "top-k" and not aggregates_once, "compression.kind", "top-k",
           "goes with one aggregation a round: edges have models of their own")
    if compression.error_feedback:
        for applies, allowed in (
            (not aggregates_once,
             "goes with one aggregation a round: what a device remembers must follow from global models"),
            (spec.faults is not None, "does not go with faults"),
            (spec.control is not None, "does not go with control"),
            (spec.air is not None and spec.air.min_gain is not None,
             "does not go with air.min_gain: the silent would forget"),
        ):
            yield applies, "compression.error_feedback", True, allowed


def edge_schedule_refusals(rounds: TreeRounds) -> Refusals:
    """The settings that edges with periods of their own exclude, as rows (applies, key, value, allowed).

    If ``applies`` of a row is true, the spec of ``rounds`` is refused with an error about ``key``.
    """
    spec, training = rounds.spec, rounds.spec.training
    if not (training.edge_at_global or any(aggregation.of_edge for aggregation in rounds.aggregations)):
        return
    key, value = "training.edge_every", training.edge_every
    if training.edge_at_global:
        key, value = "training.edge_at_global", True
    yield (spec.sends_over_the_air, key, value,
           "is not derived over the air, where the power of each aggregation is settled for all edges")
    yield (spec.control is not None, key, value,
           "must be one number with control, which spaces the aggregations itself")


def local_work_refusals(rounds: TreeRounds) -> Refusals:
    """Settings of local work that nothing is derived for, as rows (applies, key, value, allowed).

    They are local epochs with clipped steps or examples, and ``resend`` in a tree without exactly two tiers.
    If ``applies`` of a row is true, the spec of ``rounds`` is refused with an error about ``key``.
    """
    training, clip = rounds.spec.training, rounds.spec.privacy.clip
    clips_steps = clip is not None and clip.kind != "update"
    yield (training.local_epochs is not None and clips_steps, "privacy.clip.kind", "step",
           "needs local steps: the number of steps in an epoch is a device's own secret; use update")
    yield (training.global_update == "resend" and rounds.tree.depth != 2, "training.global_update", "resend",
           "is defined for edges under the cloud only; use increment")


def _secure_hop(rounds: TreeRounds, most: float = math.inf) -> str | None:
    """The key of the first masked hop between aggregators with a node above at most ``most`` others.

    Hops of devices are not looked at. ``None`` where there is no such hop.
    """
    tiers = (tier for tier, hop in enumerate(rounds.hops[:-1]) if hop == "secure-aggregation")
    found = next((tier for tier in tiers if int(rounds.tree.children[tier].min()) <= most), None)
    return None if found is None else f"transport.{rounds.tree.hop_names[found]}"


def secure_aggregation_refusals(rounds: TreeRounds) -> Refusals:
    """The settings that secure aggregation in trees excludes, as rows (applies, key, value, allowed).

    If ``applies`` of a row is true, the spec of ``rounds`` is refused with an error about ``key``.
    """
    spec, compression = rounds.spec, rounds.spec.compression
    if "secure-aggregation" not in rounds.hops:
        return
    yield (spec.privacy.clip is None, "privacy.clip", None,
           "is required: a ring has room for bounded messages only")
    yield (spec.privacy.clips_examples and rounds.batches.rates is None, "privacy.clip.kind", "example",
           "must be update or step with secure-aggregation here: a ring has room for bounded messages only, "
           f"and {rounds.batches.why_not_drawn}")
    yield ("air" in rounds.hops, "transport", "air",
           "cannot be mixed with secure-aggregation: the air adds no integers")
    bits = None if compression is None else compression.bits
    yield (bits is not None, "compression.bits", bits, "secure aggregation has a grid of its own")
    masked, masked_pair = _secure_hop(rounds), _secure_hop(rounds, most=2)
    yield (len(rounds.aggregations) > 1 and masked is not None, str(masked), "secure-aggregation",
           "needs one aggregation a round: models that differ add up to no sum")
    yield (masked_pair is not None, str(masked_pair), "secure-aggregation",
           "needs at least 3 below every node: of two, each knows the other's")


def supernode_failure_refusals(rounds: TreeRounds) -> Refusals:
    """Refuse failing supernodes in rounds of several aggregations, as rows (applies, key, value, allowed).

    A supernode serves for a whole round, so there can be only one aggregation. If ``applies`` of a row is
    true, the spec of ``rounds`` is refused with an error about ``key``.
    """
    faults, aggregations = rounds.spec.faults, len(rounds.aggregations)
    rate = None if faults is None else faults.supernode_failure_rate
    yield (rate and aggregations > 1, "faults.supernode_failure_rate", rate,
           f"goes with one aggregation a round; this one has {aggregations}, and a supernode that failed in "
           "one of them would be back in the next")


def scaffold_refusals(rounds: TreeRounds) -> Refusals:
    """The settings that SCAFFOLD in trees excludes, as rows (applies, key, value, allowed).

    If ``applies`` of a row is true, the spec of ``rounds`` is refused with an error about ``key``.
    """
    is_scaffold = rounds.spec.training.drift_correction.kind == "scaffold"
    yield (is_scaffold and len(rounds.aggregations) > 1, "training.drift_correction", "scaffold",
           "must be none here: it goes with one aggregation a round, from whose models control variates "
           "follow")
