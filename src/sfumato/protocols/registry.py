"""Which protocol plays a plan, and which state a checkpoint holds."""

from __future__ import annotations

from typing import Any

from sfumato.data.partition import Partition
from sfumato.engine.local import LocalEngine
from sfumato.families import FAMILIES, family_of
from sfumato.protocols.base import FederatedProtocol, State
from sfumato.protocols.message_hooks import Listener
from sfumato.schedule.base import Plan


def protocol_of(
    plan: Plan,
    engine: LocalEngine,
    partition: Partition,
    parameters: int,
    listener: Listener | None = None,
) -> FederatedProtocol[Any]:
    """The protocol that plays ``plan``; see its class for the arguments."""
    protocol: FederatedProtocol[Any] = family_of(plan.spec).protocol(
        plan, engine, partition, parameters, listener
    )
    return protocol


def state_of(kind: str) -> type[State]:
    """The state of a protocol that checkpoints call ``kind``; KeyError where there is none."""
    states = {name: state for family in FAMILIES for name, state in family.states.items()}
    found: type[State] = states[kind].load()
    return found
