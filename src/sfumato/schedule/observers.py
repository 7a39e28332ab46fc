"""Names of units and observers: what a user may write, and whom it means."""

from __future__ import annotations

from sfumato.errors import SpecError
from sfumato.privacy.tiered import Party
from sfumato.schedule.plan import Parties


def parse_unit(name: str, parties: Parties, *, place: str = "--unit") -> int:
    """The device called ``device:N`` (or just ``N``).

    Raises:
        SpecError: there is no such device.
    """
    kind, _, number = name.rpartition(":")
    if kind in ("", "device") and number.isdecimal() and int(number) < parties.device_count:
        return int(number)
    raise SpecError(place, name, f"must be device:0 to device:{parties.device_count - 1}")


def parse_observer(name: str, parties: Parties, *, place: str = "--observer") -> Party:
    """The party called ``cloud``, ``public``, ``device:N``, or an aggregator by its tier's name.

    Raises:
        SpecError: there is no such party.
    """
    name = name.strip()
    if name == "public" and parties.has_public:
        return Party("public")
    if name.startswith("device:"):
        return Party("device", 0, parse_unit(name, parties, place=place))
    try:
        tier, index = parties.find_node(name, place=place)
    except SpecError as error:
        also = f"{'public and ' if parties.has_public else ''}device:0..{parties.device_count - 1}"
        raise SpecError(place, name, f"{error.allowed}; also {also}") from None
    return Party("node", tier, index)


def parse_coalition(names: str, parties: Parties, *, place: str = "--observer") -> tuple[Party, ...]:
    """Observers joined by commas, each once, in the order written."""
    return tuple(dict.fromkeys(parse_observer(name, parties, place=place) for name in names.split(",")))
