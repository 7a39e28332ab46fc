"""Numbers that may differ from group to group: one for all, or a list with one for each group.

A section keeps both: the scalar that every protocol reads (the largest, where a list was written), and
the list. A user writes a list in the scalar's place; a resolved spec spells out the two.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from sfumato.spec.base import refuse

if TYPE_CHECKING:
    from sfumato.spec.document import Spec


def apart(value: Any, one: str, many: str) -> Any:
    """A section as written, with a list under ``one`` moved to ``many``, and ``one`` its largest entry."""
    if not isinstance(value, dict):
        return value
    listed = value[one] if isinstance(value.get(one), list | tuple) else value.get(many)
    if not isinstance(listed, list | tuple) or not listed:
        return value
    section = {key: entry for key, entry in value.items() if key != one} | {many: list(listed)}
    try:
        largest = max(listed, key=float)
    except (TypeError, ValueError, OverflowError):
        largest = listed[0]  # the checks of ``many`` say which entry is wrong
    scalar = value.get(one)
    return section | {one: largest if scalar is None or scalar is listed else scalar}


def agree(one: str, scalar: float, many: str, listed: tuple[float, ...] | None) -> None:
    """Refuse a scalar that contradicts its list."""
    if listed is not None and scalar != max(listed):
        raise refuse(one, scalar, f"must be left out beside {many}, or be its largest entry, {max(listed):g}")


def lists_of(spec: Spec) -> dict[str, tuple[float, ...]]:
    """The lists that ``spec`` gives, by the key path they were written under."""
    clip, noise, participation = spec.privacy.clip, spec.privacy.noise, spec.training.participation
    found = {
        "privacy.clip.norm": None if clip is None else clip.norms,
        "privacy.noise.multiplier": noise.multipliers if noise.kind == "multiplier" else None,
        "training.participation.rate": participation.rates if participation.kind == "poisson" else None,
    }
    return {key: listed for key, listed in found.items() if listed is not None}
