"""Changes to a spec that a user asks for beside it: ``key=value`` before it is checked, and several seeds.

The value is YAML and replaces what stood at the dotted key. In a section that comes in kinds (noise,
participation, partition, learning_rate, topology) a key of another kind turns the section into that
kind: keys which the new kind does not know are dropped. So ``privacy.noise.multiplier=2`` over
``{epsilon: 8, for: cloud}`` leaves ``{multiplier: 2}``, and ``model.kind=mlp`` over
``{kind: softmax, bias: false}`` leaves ``{kind: mlp}``.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from sfumato.arguments import Argument
from sfumato.errors import SpecError
from sfumato.spec.base import Section, closest_hint
from sfumato.spec.document import kind_of, sections_at
from sfumato.spec.limits import MAX_SEED, MAX_SEEDS
from sfumato.spec.model import KIND_OF_KEY, Model
from sfumato.spec.renamed_keys import new_key
from sfumato.user_text import parse_yaml, plain
from sfumato.user_text.files import printable_name


def apply_overrides(raw: dict[str, Any], overrides: Iterable[str]) -> list[str]:
    """Apply overrides, texts ``key=value``, to the spec ``raw``, in place, in their order.

    Returns:
        The dotted keys that the overrides decided.

    Raises:
        SpecError: an override is not ``key=value``, its value is not YAML, or its key leads nowhere.
    """
    touched = []
    for override in overrides:
        key, equals, text = override.partition("=")
        named = printable_name(key.strip())
        path = new_key(key.strip(), place_of_change(named)).split(".")
        if not equals or not all(path):
            allowed = "must be key=value, e.g. training.batch_size=60"
            raise SpecError(place_of_change(printable_name(override)), None, allowed)
        place = place_of_change(named)
        value = plain(parse_yaml(text, str(place)), str(place))
        touched.append(_set_key(raw, path, value, place))
    return touched


def place_of_change(key: str) -> Argument:
    """The place that an error message names for an override of the dotted ``key``."""
    return Argument("overrides", key=key)


def _set_key(raw: dict[str, Any], path: list[str], value: Any, place: Argument) -> str:
    """Set ``value`` at the keys ``path`` of ``raw``, in place; errors are at ``place``.

    Returns:
        The dotted key that was decided: a whole section's, where it turned into another kind.

    Raises:
        SpecError: there is no such section, or what is there is a value and no section.
    """
    section, kinds, replaced = raw, sections_at(()), False
    for depth, key in enumerate(path[:-1], start=1):
        known = [name for kind in kinds for name in kind.keys()]  # noqa: SIM118 - a method of a model, no dict
        here = printable_name(".".join(path[:depth]))
        kinds = sections_at(path[:depth])
        if key not in known:
            raise SpecError(place, None, f"there is no section {here}{closest_hint(key, known)}")
        inner, replaced = section.get(key), False
        if not kinds and not isinstance(inner, dict) and key != "transport" and key != "versions":
            raise SpecError(place, None, f"{here} is a value, not a section: set {here} as a whole")
        if not isinstance(inner, dict):
            inner, replaced = {"kind": inner} if isinstance(inner, str) else {}, True
            section[key] = inner
        section = inner
    key = path[-1]
    turned = _drop_keys_of_other_kinds(section, kinds, key, value) or replaced or key == "kind"
    section[key] = value
    return ".".join(path[:-1] if turned else path)


def _drop_keys_of_other_kinds(
    section: dict[str, Any], kinds: list[type[Section]], key: str, value: Any
) -> bool:
    """Drop from ``section``, in place, the keys that do not go with the kind that ``key`` belongs to.

    Args:
        section: as written so far.
        kinds: the classes of sections that may stand there.
        key: that is about to be set.
        value: to be set.

    Returns:
        Whether the section turned into another kind.
    """
    if kinds == [Model] and key == "kind":
        for name in {name for name, kind in KIND_OF_KEY.items() if kind != value} & set(section):
            del section[name]
        return False
    written = {**section, key: value}
    for kind in kinds:
        if set(written) <= set(kind.keys()) and written.get("kind", kind_of(kind)) == kind_of(kind):
            return False
    able = [kind for kind in kinds if key in kind.keys() and (key != "kind" or kind_of(kind) == value)]  # noqa: SIM118
    if len(kinds) < 2 or not able:
        return False
    keep = {name for kind in able for name in kind.keys()} - {"kind"}  # noqa: SIM118
    for name in set(section) - keep:
        del section[name]
    return True


def seeds_from(first: int, count: int) -> range:
    """The seeds ``first``, ``first`` + 1, ..., ``count`` of them.

    Raises:
        SpecError: ``count`` is below 1 or above ``MAX_SEEDS``, or the last seed is above the largest allowed.
    """
    place = Argument("seeds")
    if not isinstance(count, int) or not 1 <= count <= MAX_SEEDS:
        raise SpecError(place, count, f"must be from 1 to {MAX_SEEDS:,}: each seed is a run of its own")
    if first + count - 1 > MAX_SEED:
        raise SpecError(place, count, f"from seed {first} on goes past the largest seed, {MAX_SEED:,}")
    return range(first, first + count)
