"""What a tree is refused with once its rounds are known: one table a subject, read from the first row on.

`resolve.tree` asks whether a spec uses a subject at all: a row may rely on that, and on the rows before it.
"""

from __future__ import annotations

import math
from collections.abc import Callable

from sfumato.schedule.tree_facts import TreeRounds
from sfumato.spec.document import Spec
from sfumato.spec.refusals import Refusal
from sfumato.spec.transport import Compression

ONLY_PLAIN = {
    "air": "the air carries amplitudes, not bits",
    "secure-aggregation": "secure aggregation rounds",
}


def _clips_steps(spec: Spec) -> bool:
    return spec.privacy.clip is not None and spec.privacy.clip.kind != "update"


def _compression(rounds: TreeRounds) -> Compression:
    assert rounds.spec.compression is not None  # who asks has seen to it
    return rounds.spec.compression


def _feedback(applies: Callable[[TreeRounds], object], allowed: str) -> Refusal[TreeRounds]:
    """A refusal of error feedback."""
    return Refusal(
        lambda rounds: _compression(rounds).error_feedback and applies(rounds),
        "compression.error_feedback",
        True,
        allowed,
    )


COMPRESSION: tuple[Refusal[TreeRounds], ...] = (
    Refusal(lambda rounds: rounds.spec.training.global_update == "resend",
            "compression", None, "goes with training.global_update: increment only"),
    Refusal(lambda rounds: _compression(rounds).bits is not None and rounds.hops[-1] != "plain",
            "compression.bits", lambda rounds: _compression(rounds).bits,
            lambda rounds: f"goes with a plain hop: {ONLY_PLAIN[rounds.hops[-1]]}"),
    Refusal(lambda rounds: _compression(rounds).kind == "top-k" and len(rounds.aggregations) > 1,
            "compression.kind", "top-k", "goes with one aggregation a round: edges have models of their own"),
    _feedback(lambda rounds: len(rounds.aggregations) > 1,
              "goes with one aggregation a round: what a device remembers must follow from global models"),
    _feedback(lambda rounds: rounds.spec.faults is not None, "does not go with faults"),
    _feedback(lambda rounds: rounds.spec.control is not None, "does not go with control"),
    _feedback(lambda rounds: rounds.spec.air is not None and rounds.spec.air.min_gain is not None,
              "does not go with air.min_gain: the silent would forget"),
)  # fmt: skip
"""Messages that are compressed."""


def _edge_key(rounds: TreeRounds) -> str:
    """The key by which single edges have schedules of their own."""
    return f"training.{'edge_at_global' if rounds.spec.training.edge_at_global else 'edge_every'}"


def _edge_value(rounds: TreeRounds) -> object:
    return True if rounds.spec.training.edge_at_global else rounds.spec.training.edge_every


EDGE_SCHEDULES: tuple[Refusal[TreeRounds], ...] = (
    Refusal(lambda rounds: rounds.spec.sends_over_the_air, _edge_key, _edge_value,
            "is not derived over the air, where the power of each aggregation is settled for all edges"),
    Refusal(lambda rounds: rounds.spec.control is not None, _edge_key, _edge_value,
            "must be one number with control, which spaces the aggregations itself"),
)  # fmt: skip
"""Schedules of single edges, where what goes with them is worked out for all edges together."""

LOCAL_WORK: tuple[Refusal[TreeRounds], ...] = (
    Refusal(lambda rounds: rounds.spec.training.local_epochs is not None and _clips_steps(rounds.spec),
            "privacy.clip.kind", "step",
            "needs local steps: the number of steps in an epoch is a device's own secret; use update"),
    Refusal(lambda rounds: rounds.spec.training.global_update == "resend" and rounds.tree.depth != 2,
            "training.global_update", "resend", "is defined for edges under the cloud only; use increment"),
)  # fmt: skip
"""Work between aggregations whose bound would not be known."""


def _secure_tier(rounds: TreeRounds, most: float = math.inf) -> int | None:
    """The first tier that receives from nodes under masks, and some node of which has so few below it."""
    tiers = (tier for tier, hop in enumerate(rounds.hops[:-1]) if hop == "secure-aggregation")
    return next((tier for tier in tiers if int(rounds.tree.children[tier].min()) <= most), None)


def _hop_key(rounds: TreeRounds, tier: int | None) -> str:
    assert tier is not None  # the row before asked
    names = [one.name for one in rounds.tree.tiers]
    return f"transport.{names[tier + 1]}_to_{names[tier]}"


SECURE_AGGREGATION: tuple[Refusal[TreeRounds], ...] = (
    Refusal(lambda rounds: rounds.spec.privacy.clip is None, "privacy.clip", None,
            "is required: a ring has room for bounded messages only"),
    Refusal(lambda rounds: rounds.spec.privacy.clips_examples and rounds.batches.rates is None,
            "privacy.clip.kind", "example",
            lambda rounds: "must be update or step with secure-aggregation here: a ring has room for bounded "
                           f"messages only, and {rounds.batches.why_not_drawn}"),
    Refusal(lambda rounds: "air" in rounds.hops, "transport", "air",
            "cannot be mixed with secure-aggregation: the air adds no integers"),
    Refusal(lambda rounds: rounds.spec.compression is not None and rounds.spec.compression.bits is not None,
            "compression.bits", lambda rounds: _compression(rounds).bits,
            "secure aggregation has a grid of its own"),
    Refusal(lambda rounds: len(rounds.aggregations) > 1 and _secure_tier(rounds) is not None,
            lambda rounds: _hop_key(rounds, _secure_tier(rounds)), "secure-aggregation",
            "needs one aggregation a round: models that differ add up to no sum"),
    Refusal(lambda rounds: _secure_tier(rounds, most=2) is not None,
            lambda rounds: _hop_key(rounds, _secure_tier(rounds, most=2)), "secure-aggregation",
            "needs at least 3 below every node: of two, each knows the other's"),
)  # fmt: skip
"""Secure aggregation where its sums would not be what the accountant is told (`schedule.integer_grid`)."""

ELECTIONS: tuple[Refusal[TreeRounds], ...] = (
    Refusal(lambda rounds: len(rounds.aggregations) > 1, "faults.supernode_failure_rate",
            lambda rounds: rounds.spec.faults and rounds.spec.faults.supernode_failure_rate,
            lambda rounds: f"goes with one aggregation a round; this one has {len(rounds.aggregations)}, and "
                           "a supernode that failed in one of them would be back in the next"),
)  # fmt: skip
"""Supernodes that fail: an office is held for a whole round."""

SCAFFOLD: tuple[Refusal[TreeRounds], ...] = (
    Refusal(lambda rounds: len(rounds.aggregations) > 1, "training.drift_correction", "scaffold",
            "must be none here: it goes with one aggregation a round, from whose models control variates "
            "follow"),
)  # fmt: skip
"""Beside what is refused in `shared_refusals`."""
