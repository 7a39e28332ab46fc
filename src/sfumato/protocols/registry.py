"""Which protocol runs a plan, and how to add a variant of a grouped protocol."""

from __future__ import annotations

from functools import singledispatch
from typing import Any

import numpy as np
import numpy.typing as npt

from sfumato.data.partition import Partition
from sfumato.engine.base import Engine
from sfumato.protocols.adaptive.rounds import AdaptiveProtocol
from sfumato.protocols.adaptive.state import AdaptiveState
from sfumato.protocols.base import FederatedProtocol, State
from sfumato.protocols.groups.base import ROUND_FUNCTIONS, GroupedProtocol, RoundFunction
from sfumato.protocols.groups.state import GroupedState
from sfumato.protocols.message_hooks import Listener
from sfumato.protocols.tree.rounds import TreeProtocol
from sfumato.protocols.tree.state import TreeState
from sfumato.schedule.base import Plan
from sfumato.schedule.groups import GroupPlan
from sfumato.schedule.tree import TreePlan
from sfumato.spec.grouped_protocols import GroupedKind, add_variant

STATES: dict[str, type[State]] = {state.kind: state for state in (TreeState, AdaptiveState, GroupedState)}


@singledispatch
def protocol_of(
    plan: Plan,
    engine: Engine,
    partition: Partition,
    parameters: int,
    listener: Listener | None = None,
) -> FederatedProtocol[Any]:
    """The protocol that runs ``plan``; see its class for the arguments."""
    raise TypeError(f"no protocol runs a {type(plan).__name__}")


@protocol_of.register
def _(
    plan: TreePlan,
    engine: Engine,
    partition: Partition,
    parameters: int,
    listener: Listener | None = None,
) -> FederatedProtocol[Any]:
    if plan.spec.control is not None:
        return AdaptiveProtocol(plan, engine, partition, parameters, listener)
    return TreeProtocol(plan, engine, partition, parameters, listener)


@protocol_of.register
def _(
    plan: GroupPlan,
    engine: Engine,
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


def register_grouped(name: str, run_round: RoundFunction, *, releases_of: GroupedKind) -> None:
    """Add a variant of a grouped protocol: specs may then say ``protocol: NAME``.

    The accountant charges the releases of ``releases_of``, so the variant must make those releases and no
    others. Its workers send through `GroupOperations.send_` and its masters release through
    `GroupOperations.noised_averages`, in the same rounds and with the same merging as that protocol. Whatever
    else it does must be computed from what was released.

    Args:
        name: of the variant.
        run_round: runs one of its rounds.
        releases_of: the protocol that it is accounted for as.

    Raises:
        SpecError: the name is taken.
    """
    add_variant(name, releases_of)
    ROUND_FUNCTIONS[name] = run_round
