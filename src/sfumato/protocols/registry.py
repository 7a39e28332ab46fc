"""Which protocol plays a plan: one place that knows them all."""

from __future__ import annotations

from functools import singledispatch
from typing import Any

import numpy as np
import numpy.typing as npt

from sfumato.data.partition import Partition
from sfumato.engine.local import LocalEngine
from sfumato.protocols.adaptive import ControlledProtocol, ControlledState
from sfumato.protocols.base import FederatedProtocol, State
from sfumato.protocols.groups.rounds import GroupedProtocol, GroupedState
from sfumato.protocols.message_hooks import Listener
from sfumato.protocols.tree.rounds import TieredProtocol, TieredState
from sfumato.schedule.base import Plan
from sfumato.schedule.groups import GroupPlan
from sfumato.schedule.tree import TreePlan

STATES: dict[str, type[State]] = {state.kind: state for state in (TieredState, ControlledState, GroupedState)}


@singledispatch
def protocol_of(
    plan: Plan,
    engine: LocalEngine,
    partition: Partition,
    parameters: int,
    listener: Listener | None = None,
) -> FederatedProtocol[Any]:
    """The protocol that plays ``plan``; see its class for the arguments."""
    raise TypeError(f"nothing plays a {type(plan).__name__}")


@protocol_of.register
def _(
    plan: TreePlan,
    engine: LocalEngine,
    partition: Partition,
    parameters: int,
    listener: Listener | None = None,
) -> FederatedProtocol[Any]:
    if plan.spec.control is not None:
        return ControlledProtocol(plan, engine, partition, parameters, listener)
    return TieredProtocol(plan, engine, partition, parameters, listener)


@protocol_of.register
def _(
    plan: GroupPlan,
    engine: LocalEngine,
    partition: Partition,
    parameters: int,
    listener: Listener | None = None,
) -> FederatedProtocol[Any]:
    return GroupedProtocol(plan, engine, partition, parameters, listener)


@singledispatch
def shares_of(plan: Plan) -> npt.NDArray[np.int64]:
    """How many devices each place that data are divided among has: a tree's leaves, else one place."""
    return np.array([plan.parties.device_count], dtype=np.int64)


@shares_of.register
def _(plan: TreePlan) -> npt.NDArray[np.int64]:
    return plan.tree.devices
