"""Names of units and observers: what a user may write, and whom it means."""

from __future__ import annotations

from sfumato.errors import SpecError
from sfumato.federation.topology import Tree
from sfumato.privacy.tiered import Party


def parse_unit(name: str, tree: Tree, *, place: str = "--unit") -> int:
    """The device called ``device:N`` (or just ``N``).

    Raises:
        SpecError: there is no such device.
    """
    kind, _, number = name.rpartition(":")
    if kind in ("", "device") and number.isdecimal() and int(number) < tree.device_count:
        return int(number)
    raise SpecError(place, name, f"must be device:0 to device:{tree.device_count - 1}")


def parse_observer(name: str, tree: Tree, *, place: str = "--observer") -> Party:
    """The party called ``cloud``, ``public``, ``device:N``, or an aggregator by its tier's name.

    Raises:
        SpecError: there is no such party.
    """
    name = name.strip()
    if name == "public":
        return Party("public")
    if name.startswith("device:"):
        return Party("device", 0, parse_unit(name, tree, place=place))
    try:
        tier, index = tree.find_node(name, place=place)
    except SpecError as error:
        raise SpecError(place, name, f"{error.allowed}; also public and device:0..{tree.device_count - 1}") from None
    return Party("node", tier, index)


def parse_coalition(names: str, tree: Tree, *, place: str = "--observer") -> tuple[Party, ...]:
    """Observers joined by commas, each once, in the order written."""
    return tuple(dict.fromkeys(parse_observer(name, tree, place=place) for name in names.split(",")))
