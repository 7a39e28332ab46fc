"""The finding that an ε is so large that it hardly protects: of whom, and towards whom."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence

from sfumato.privacy.guarantee import Guarantee
from sfumato.privacy.observers import ObserverKind
from sfumato.rounding import certainty, number, upper_bound

LARGE_EPSILON = 10.0
"""Even odds become 22,026 to 1 at most: whoever guesses is right but once in 22,027 times."""
WHAT_LARGE_MEANS = (
    f"at ε = {LARGE_EPSILON:g} an observer with even odds can already become {certainty(LARGE_EPSILON)} sure"
)
"""The end of the finding, which `without_meaning` leaves out."""
_TOWARDS: Mapping[ObserverKind, str] = {
    "cloud": "the cloud", "public": "the public", "own-edge": "their own edge", "other-edge": "other edges",
    "peer": "devices under the same aggregator", "other-device": "other devices",
    "asked-for": "the observers that were asked for",
}  # fmt: skip
_TOWARDS_IN_GROUPS: Mapping[ObserverKind, str] = {
    "own-edge": "their own master", "other-edge": "other masters", "peer": "workers of the same group",
    "other-device": "other workers",
}  # fmt: skip


def warn_of_large_epsilon(
    guarantees: Iterable[Guarantee], at_edges: str = "", device: str = "device", *, moving: bool = False
) -> str | None:
    """A warning that names the largest finite ε above `LARGE_EPSILON`; ``None`` where there is none.

    Args:
        guarantees: rows towards all observers.
        at_edges: how many devices are ever under an edge that they do not trust, as text; "": not known.
        device: what a device is called; ``worker`` in groups, whose aggregators are masters.
        moving: whether devices move, so that one may be under several edges.
    """
    rows = list(guarantees)
    untrusted = [row for row in rows if not row.is_raw]
    above = [row for row in untrusted if row.epsilon > LARGE_EPSILON]
    finite = [row for row in above if row.epsilon < math.inf]
    if not finite:
        return None
    worst = max(finite, key=lambda row: row.epsilon)
    everywhere = len(above) == len(untrusted) and not _some_may_have_less(above)
    counted = above if everywhere else _of_kinds_with_finite(above)
    if everywhere:
        but = "" if len(untrusted) == len(rows) else " that they do not trust with raw updates"
        whom = f"for all {_kinds_of_units(above, device)} towards every observer{but}"
    else:
        whom = _of_whom(rows, counted, at_edges, device, moving=moving)
    endless = [row for row in counted if row.epsilon == math.inf]
    most = upper_bound(worst.epsilon)
    if endless and _are_counted(counted):
        far = f": at most {most} for {_how_many(finite)} and ∞ for {_how_many(endless)}"
    else:
        far = f", up to {most}{' where it is finite' if endless else ''}"
    return (
        f"ε is above {LARGE_EPSILON:g} {whom}{far} "
        f"(δ = {number(worst.delta)}; for example {worst.unit} towards {worst.observer}): {WHAT_LARGE_MEANS}"
    )


def without_meaning(finding: str) -> str:
    """The finding of `warn_of_large_epsilon` without what a large ε means; any other text as it is."""
    return finding.removesuffix(f": {WHAT_LARGE_MEANS}")


def _are_counted(rows: Sequence[Guarantee]) -> bool:
    """Whether every unit of ``rows`` is in one row: all are of one kind, towards the cloud or the public."""
    found = {(row.relation.kind, row.unit_kind) for row in rows}
    return len(found) == 1 and found.pop()[0] in ("cloud", "public") and not _some_may_have_less(rows)


def _how_many(rows: Sequence[Guarantee]) -> str:
    """How many units the rows stand for."""
    return f"{sum(row.stands_for for row in rows):,}"


def _kinds_of_units(rows: Sequence[Guarantee], device: str) -> str:
    """The kinds of units of rows, such as ``devices or records``."""
    units = sorted({row.unit_kind for row in rows})
    return " or ".join(f"{device if unit == 'device' else unit}s" for unit in units)


def _some_may_have_less(above: Sequence[Guarantee]) -> bool:
    """Whether a row of ``above`` stands for units of which some may have an ε of at most `LARGE_EPSILON`."""
    return any(row.least_known is None or row.least_known <= LARGE_EPSILON for row in above)


def _of_whom(
    rows: Sequence[Guarantee], above: Sequence[Guarantee], at_edges: str, device: str, *, moving: bool
) -> str:
    """For how many units (up to, where some may have less), and towards whom, ε is above `LARGE_EPSILON`.

    ``above``: those of ``rows`` that are above, ∞ too, towards kinds of observers with a finite one.
    ``at_edges``, ``device`` and ``moving``: as of `warn_of_large_epsilon`.
    """
    kinds, some_less = _kinds_of_units(above, device), _some_may_have_less(above)
    words = {**_TOWARDS, **(_TOWARDS_IN_GROUPS if device == "worker" else {})}
    if moving:
        words["own-edge"] = "an edge that they are ever under"
    towards = list(dict.fromkeys(words[row.relation.kind] for row in above))
    whom = " and ".join(filter(None, [", ".join(towards[:-1]), towards[-1]]))
    found = {row.relation.kind for row in above}
    counted = found & {"cloud", "public"}
    if at_edges and kinds == "devices" and found == {"own-edge"}:
        apart = sum(row.relation.kind == "own-edge" and not row.is_raw for row in rows)
        most = "up to " if some_less or apart > len(above) else ""
        return f"for {most}{at_edges} devices towards {whom}"
    if len(towards) > 1 or not counted:
        return f"for some {kinds} towards {whom}"
    every = sum(row.stands_for for row in rows if row.relation.kind in counted)
    many = f"{_how_many(above)} of {every:,} {kinds}"
    return f"for {'up to ' if some_less else ''}{many} towards {whom}"


def _of_kinds_with_finite(above: Sequence[Guarantee]) -> list[Guarantee]:
    """The rows of ``above`` whose kind of observer has a finite ε in one of these rows."""
    finite = {row.relation.kind for row in above if row.epsilon < math.inf}
    return [row for row in above if row.relation.kind in finite]
