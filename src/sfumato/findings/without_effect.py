"""Findings on settings that have no effect: moves and other changes, and kinds of observers to be watched."""

from __future__ import annotations

from sfumato.schedule.base import Plan
from sfumato.schedule.rows.observers import is_of_kind
from sfumato.spec.document import Spec
from sfumato.spec.privacy import OBSERVER_KINDS


def warn_of_idle_moves(plan: Plan) -> str | None:
    """A warning about moves of a trace that name the edge that a device is under already; or ``None``."""
    idle = plan.moves_without_change
    if not idle:
        return None
    first, device, edge = idle[0]
    others = f"; {len(idle) - 1:,} more are alike" if len(idle) > 1 else ""
    return (
        f"the move of device {device} to edge {edge} in round {first} (topology.moves) changes nothing, as "
        f"it is there already{others}"
    )


def warn_of_late_changes(spec: Spec) -> str | None:
    """A warning about moves, changes of trust and changes of groups after the last round.

    ``None`` without any.
    """
    topology, last = spec.topology, spec.training.rounds
    moves = getattr(topology, "moves", None)
    firsts = {
        "topology.moves": [first for first, _, _ in (moves.trace or () if moves is not None else ())],
        "topology.eras": [era.from_round for era in getattr(topology, "eras", ())],
        "trust.from": [first for first in spec.trust.from_ or () if first > 0],
    }
    late = {place: sum(first > last for first in found) for place, found in firsts.items()}
    said = [
        f"{count:,} of {len(firsts[place]):,} changes of {place} {'are' if count > 1 else 'is'} after the "
        f"last round, {last:,}, and {'change' if count > 1 else 'changes'} nothing"
        for place, count in late.items()
        if count
    ]
    return "; ".join(said) or None


def warn_of_kinds_nobody_is(plan: Plan) -> str | None:
    """A warning about kinds of observers in ``watch`` that this network has none of; ``None`` without any."""
    kinds = [name for name in plan.spec.watch or () if name in OBSERVER_KINDS]
    pairs = tuple(plan.releases.pair_classes()) if kinds else ()
    missing = [kind for kind in dict.fromkeys(kinds) if not any(is_of_kind(pair, kind) for pair in pairs)]
    if not missing:
        return None
    return (
        f"watch names {', '.join(missing)}, and in this network no device has an observer of "
        f"{'that kind' if len(missing) == 1 else 'these kinds'}: no ε is followed for "
        f"{'it' if len(missing) == 1 else 'them'}"
    )
