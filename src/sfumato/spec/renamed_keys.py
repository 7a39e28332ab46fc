"""Keys of a spec that have another name now: the one table of them, and how a document in old words is read.

*Aliases* are keys that are published as the format (docs/spec.md): they are read as the new key, and a
resolved spec says the new one. Every other old key is refused with one line that says the new key.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any

from sfumato.arguments import ErrorPlace
from sfumato.errors import SpecError

ALIASES = {
    "topology.names": "topology.level_names",
    "training.steps_per_round": "training.local_steps",
    "training.global_step": "training.global_update",
    "privacy.noise.placement.clients": "privacy.noise.placement.device_fraction",
}
RENAMED = {
    "faults.devices": "faults.dropout_rate",
    "faults.supernodes": "faults.supernode_failure_rate",
    "faults.least": "faults.survival_threshold",
    "trust.trusted_masters": "trust.trusted_aggregators",
    "privacy.noise.stated": "privacy.noise.calibrated_from",
    "air.csi.truncate": "air.csi.max_error_std",
    "control.gap": "control.optimality_gap_weight",
    "control.gap_scale": "control.optimality_gap_scale",
    "control.when_spent": "control.budget_policy",
}


def new_key(key: str, place: ErrorPlace) -> str:
    """The present name of the dotted ``key``; ``key`` itself if it was not renamed.

    Raises:
        SpecError: an old name that is not read any more; the error is at ``place`` and says the new name.
    """
    for old, new in (ALIASES | RENAMED).items():
        if key == old or key.startswith(f"{old}."):
            if old in RENAMED:
                raise SpecError(place, None, f"is called {new} now")
            return new + key[len(old) :]
    return key


def with_new_keys(document: dict[str, Any], place_of: Callable[[str], ErrorPlace] = str) -> dict[str, str]:
    """Rename the aliases among the keys of ``document``, in place.

    Args:
        document: a spec as a mapping of plain values; what is no mapping where a section should be is left.
        place_of: dotted key to the place that an error names.

    Returns:
        The aliases that were found, by new dotted key.

    Raises:
        SpecError: an old key that is not read any more, or an alias beside its new key.
    """
    found: dict[str, str] = {}
    for old, new in (ALIASES | RENAMED).items():
        *sections, key = old.split(".")
        section = _section_at(document, sections)
        if section is None or key not in section:
            continue
        if old in RENAMED:
            raise SpecError(place_of(old), section[key], f"is called {new} now")
        name = new.rpartition(".")[2]
        if name in section:
            raise SpecError(place_of(old), section[key], f"is another name of {new}: give one of them")
        renamed = {name if k == key else k: value for k, value in section.items()}
        section.clear()
        section.update(renamed)
        found[new] = old
    return found


def as_written(place: str, aliases: Mapping[str, str]) -> str:
    """The dotted key ``place`` as the user wrote it, with the alias in place of its new name.

    ``aliases``: new dotted key to alias, as `with_new_keys` returns it.
    """
    for new, old in aliases.items():
        if place == new or place.startswith((f"{new}.", f"{new}[")):
            return old + place[len(new) :]
    return place


def _section_at(document: Any, path: Iterable[str]) -> dict[str, Any] | None:
    """The section of ``document`` at ``path``, keys from the outermost on; ``None`` where there is none."""
    for key in path:
        document = document.get(key) if isinstance(document, dict) else None
    return document if isinstance(document, dict) else None
