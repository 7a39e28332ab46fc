"""What two specs differ in."""

from __future__ import annotations

from typing import Any

from sfumato.spec.document import Spec


def changes(before: Spec, now: Spec) -> dict[str, tuple[Any, Any]]:
    """Dotted keys in which two specs differ, ascending, with both values; ``None`` where there is none."""
    old, new = (_flat(spec.model_dump(mode="json", by_alias=True)) for spec in (before, now))
    return {
        key: (old.get(key), new.get(key))
        for key in sorted(old.keys() | new.keys())
        if old.get(key) != new.get(key)
    }


def _flat(value: Any, prefix: str = "") -> dict[str, Any]:
    """``value`` with one dotted key for every leaf; lists are leaves."""
    if not isinstance(value, dict):
        return {prefix: value}
    found: dict[str, Any] = {}
    for name, item in value.items():
        found |= _flat(item, f"{prefix}.{name}" if prefix else name)
    return found
