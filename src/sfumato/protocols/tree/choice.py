"""Which protocol runs the plan of a tree: rounds as planned, under control, or with an adapted clip norm."""

from __future__ import annotations

from typing import Any

from sfumato.data.partition import Partition
from sfumato.engine.base import Engine
from sfumato.protocols.adaptive.rounds import AdaptiveProtocol
from sfumato.protocols.base import FederatedProtocol
from sfumato.protocols.message_hooks import Listener
from sfumato.protocols.tree.adaptive_clip import AdaptiveClipProtocol
from sfumato.protocols.tree.moving import MovingTreeProtocol
from sfumato.protocols.tree.rounds import TreeProtocol
from sfumato.schedule.adaptive_clip import adaptive_clip_of
from sfumato.schedule.tree import TreePlan


def tree_protocol(
    plan: TreePlan, engine: Engine, partition: Partition, parameters: int, listener: Listener | None
) -> FederatedProtocol[Any]:
    """Make the protocol that runs ``plan`` on a tree.

    It has adaptive control, an adaptive clip norm, moving devices or none of these, as the spec says.

    Args:
        plan: resolved and calibrated.
        engine: trains devices.
        partition: rows of the data set of each device.
        parameters: coordinates of the model.
        listener: is told of every message; ``None``: nobody.
    """
    if plan.spec.control is not None:
        return AdaptiveProtocol(plan, engine, partition, parameters, listener)
    if adaptive_clip_of(plan.spec) is not None:
        return AdaptiveClipProtocol(plan, engine, partition, parameters, listener)
    if plan.eras:
        return MovingTreeProtocol(plan, engine, partition, parameters, listener)
    return TreeProtocol(plan, engine, partition, parameters, listener)
