"""Which protocol runs a plan, which state a checkpoint holds, and how to add a variant of a grouped
protocol."""

from __future__ import annotations

from typing import Any

from sfumato.data.partition import Partition
from sfumato.engine.base import Engine
from sfumato.families import family_of
from sfumato.privacy.groups.facts import GroupedKind
from sfumato.protocols.adaptive.state import AdaptiveState
from sfumato.protocols.base import FederatedProtocol, State
from sfumato.protocols.groups.base import ROUND_FUNCTIONS, RoundFunction
from sfumato.protocols.groups.state import GroupedState
from sfumato.protocols.message_hooks import Listener
from sfumato.protocols.tree.adaptive_clip import AdaptedState
from sfumato.protocols.tree.state import DeployedState, TreeState
from sfumato.schedule.base import Plan
from sfumato.spec.document import add_variant

_STATES: dict[str, type[State]] = {
    state.kind: state for state in (TreeState, DeployedState, AdaptedState, AdaptiveState, GroupedState)
}


def protocol_of(
    plan: Plan,
    engine: Engine,
    partition: Partition,
    parameters: int,
    listener: Listener | None = None,
) -> FederatedProtocol[Any]:
    """Make the protocol that runs ``plan``, of a tree or of groups.

    Args:
        plan: resolved and calibrated.
        engine: trains devices.
        partition: rows of the data set of each device.
        parameters: coordinates of the model.
        listener: is told of every message; ``None``: nobody.
    """
    return family_of(plan.spec).protocol(plan, engine, partition, parameters, listener)


def state_of(kind: str) -> type[State]:
    """The class of state that checkpoints call ``kind``.

    Raises:
        KeyError: there is none.
    """
    return _STATES[kind]


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
