"""Which protocol plays the plan of a tree: its rounds as planned, or under adaptive control."""

from __future__ import annotations

from typing import Any

from sfumato.data.partition import Partition
from sfumato.engine.local import LocalEngine
from sfumato.protocols.adaptive import ControlledProtocol
from sfumato.protocols.base import FederatedProtocol
from sfumato.protocols.message_hooks import Listener
from sfumato.protocols.tree.rounds import TieredProtocol
from sfumato.schedule.tree import TreePlan


def tree_protocol(
    plan: TreePlan, engine: LocalEngine, partition: Partition, parameters: int, listener: Listener | None
) -> FederatedProtocol[Any]:
    """The protocol that plays ``plan``; see its class for the arguments."""
    if plan.spec.control is not None:
        return ControlledProtocol(plan, engine, partition, parameters, listener)
    return TieredProtocol(plan, engine, partition, parameters, listener)
