"""What two specs differ in."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from sfumato.spec.document import Spec


def changed_values(before: Spec, now: Spec) -> dict[str, tuple[Any, Any]]:
    """The values in ``before`` and in ``now`` by dotted key, for the keys where two specs differ, ascending.

    A value that one of them lacks is ``None``.
    """
    old, new = (_flat(spec.model_dump(mode="json", by_alias=True)) for spec in (before, now))
    return {
        key: (old.get(key), new.get(key))
        for key in sorted(old.keys() | new.keys())
        if old.get(key) != new.get(key)
    }


def differing_values(documents: Sequence[Mapping[str, Any]]) -> dict[str, tuple[Any, ...]]:
    """The values in each of ``documents`` by dotted key, for the keys in which these are not all equal.

    A value that a document lacks is ``None``.
    """
    flat = [_flat(document) for document in documents]
    keys = dict.fromkeys(key for one in flat for key in one)
    found = {key: tuple(one.get(key) for one in flat) for key in keys}
    return {key: values for key, values in found.items() if any(value != values[0] for value in values)}


def first_difference(key: str, old: Any, new: Any) -> tuple[str, Any, Any]:
    """The innermost place at which two values of ``key`` differ, the first in order if there are several.

    Sections are compared key by key, lists of one length entry by entry.

    Args:
        key: dotted key of both values.
        old: one value.
        new: the other, which must differ from it.

    Returns:
        The dotted key of that place, such as ``sites[2].name``, and its values in ``old`` and in ``new``;
        ``None`` where one has none.
    """
    if isinstance(old, dict) and isinstance(new, dict):
        places = [(f"{key}.{name}", old.get(name), new.get(name)) for name in {**old, **new}]
    elif isinstance(old, list) and isinstance(new, list) and len(old) == len(new):
        places = [(f"{key}[{n}]", *both) for n, both in enumerate(zip(old, new, strict=True))]
    else:
        return key, old, new
    return first_difference(*next(place for place in places if place[1] != place[2]))


def _flat(value: Any, prefix: str = "") -> dict[str, Any]:
    """``value`` as a mapping of one level: dotted keys to the values that are no sections; lists stay whole.

    ``prefix``: the key of ``value`` itself, which stands alone where it is no section.
    """
    if not isinstance(value, Mapping):
        return {prefix: value}
    found: dict[str, Any] = {}
    for name, item in value.items():
        found |= _flat(item, f"{prefix}.{name}" if prefix else name)
    return found
