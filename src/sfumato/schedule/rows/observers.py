"""Units and observers: their names, whom these mean, and how a unit is charged towards who observes it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from sfumato.arguments import Argument, ErrorPlace
from sfumato.errors import SpecError
from sfumato.network.tree import MOST_SITES
from sfumato.privacy.declared_releases import DeclaredReleases, PairCharge
from sfumato.privacy.observers import ObserverKind, PairClass, Party, Relation
from sfumato.schedule.base import Parties, Plan
from sfumato.spec.base import closest_hint
from sfumato.spec.document import Spec
from sfumato.spec.limits import MAX_COALITION
from sfumato.spec.other_words import unit_hint
from sfumato.spec.privacy import Unit
from sfumato.user_text import decimal

_UNIT, _OBSERVER = Argument("unit"), Argument("observer")
_UNIONS: dict[str, tuple[ObserverKind, ...]] = {
    "edge": ("own-edge", "other-edge"),
    "device": ("peer", "other-device"),
}


def parse_unit(name: str, parties: Parties, *, own: Unit = "device", place: ErrorPlace = _UNIT) -> int:
    """The index of the device called ``device:N``, ``N``, or by a name of its own.

    Args:
        name: as the user wrote it.
        parties: of the network.
        own: ``privacy.unit`` of the spec, for the error.
        place: key or option to blame.

    Raises:
        SpecError: there is no such device.
    """
    if name in parties.device_names:
        return parties.device_names.index(name)
    kind, _, number = name.rpartition(":")
    found = decimal(number)
    if kind in ("", "device") and found is not None and found < parties.device_count:
        return found
    known = f"{unit_hint(name)}{_known_names(name, parties)}"
    kinds = ("device",) if own == "device" else ("record" if own == "both" else own, "device")
    raise SpecError(place, name, f"must be {_ranges(kinds, parties)}{known}")


def _ranges(kinds: Sequence[str], parties: Parties) -> str:
    """The units that there are of these kinds, such as ``person:0 to person:2, or device:0 to device:2``."""
    return ", or ".join(f"{kind}:0 to {kind}:{parties.device_count - 1}" for kind in kinds)


def _known_names(name: str, parties: Parties) -> str:
    """A clause for the refusal of ``name`` with the names of devices; empty where they have none."""
    names = parties.device_names
    if not names:
        return ""
    more = [f"{len(names) - MOST_SITES:,} more"] if len(names) > MOST_SITES else []
    return f"; named are {', '.join([*names[:MOST_SITES], *more])}{closest_hint(name, names)}"


def parse_protected(
    name: str, parties: Parties, *, own: Unit = "device", place: ErrorPlace = _UNIT
) -> tuple[str, int]:
    """The kind and N of ``device:N``, ``record:N`` and ``person:N`` (any one record or person of device N).

    A number or a device's name alone is of the kind that the spec protects.

    Args:
        name: of a unit.
        parties: who there is.
        own: ``privacy.unit`` of the spec.
        place: of ``name``, for errors.

    Raises:
        SpecError: there is no such device, or a number or name stands alone where ``own`` is ``both``.
    """
    _require_text(name, place, "device:3")
    kind, _, number = name.partition(":")
    if kind in ("record", "person"):
        if (kind == "person") != (own == "person"):
            allowed = (
                "goes with privacy.unit: person and data.person_column"
                if kind == "person"
                else "must be person:N or device:N: with privacy.unit: person devices draw persons, not rows"
            )
            raise SpecError(place, name, allowed)
        if number in parties.device_names:
            return kind, parties.device_names.index(number)
        found = decimal(number)
        if found is not None and found < parties.device_count:
            return kind, found
        allowed = f"must be {_ranges((kind, 'device'), parties)}{_known_names(number, parties)}"
        raise SpecError(place, name, allowed)
    device = parse_unit(name, parties, own=own, place=place)
    if name.startswith("device:"):
        return "device", device
    if own == "both":
        allowed = f"must be device:{device} or record:{device}, as privacy.unit is both"
        raise SpecError(place, name, allowed)
    return own, device


def parse_observer(name: str, parties: Parties, *, place: ErrorPlace = _OBSERVER) -> Party:
    """The party called ``cloud``, ``public``, ``device:N``, or an aggregator by its tier's name or its own.

    Args:
        name: as the user wrote it; blanks around it do not count.
        parties: of the network.
        place: key or option to blame.

    Raises:
        SpecError: there is no such party.
    """
    name = name.strip()
    if name == "public" and parties.has_public:
        return Party("public")
    is_device = name.startswith("device:") or name in parties.device_names
    try:
        if is_device:
            return Party("device", 0, parse_unit(name, parties, place=place))
        tier, index = parties.find_node(name, place=place)
    except SpecError as error:
        others = "aggregators" if is_device else f"device:0..{parties.device_count - 1}"
        also = f"{'public and ' if parties.has_public else ''}{others}"
        raise SpecError(place, name, f"{error.allowed}; also {also}") from None
    return Party("node", tier, index)


def parse_coalition(names: str, parties: Parties, *, place: ErrorPlace = _OBSERVER) -> tuple[Party, ...]:
    """The parties that ``names`` lists, separated by commas, each once, in the order written.

    ``place`` is named in errors.

    Raises:
        SpecError: there is no such party, or there are more than ``MAX_COALITION``.
    """
    _require_text(names, place, "cloud, or cloud,device:3")
    listed = names.count(",") + 1
    if listed > MAX_COALITION:
        allowed = f"must be at most {MAX_COALITION:,} parties: what each adds is computed"
        raise SpecError(place, f"{listed:,} parties", allowed)
    return tuple(dict.fromkeys(parse_observer(name, parties, place=place) for name in names.split(",")))


def _require_text(name: object, place: ErrorPlace, such_as: str) -> None:
    """Raise a `SpecError` if ``name`` is not text; ``such_as`` is an example for the message."""
    if not isinstance(name, str):
        raise SpecError(place, name, f"must be text, like {such_as}")


def is_of_kind(pair: PairClass, kind: str) -> bool:
    """Whether the observer of ``pair`` is of ``kind``, one of `OBSERVER_KINDS`.

    ``edge`` is any aggregator below the cloud, ``own-edge`` one above the unit, ``other-edge`` any other.
    ``device`` is any other device, ``peer`` one under the same edge or in a common group, ``other-device``
    one that is no peer. Whether the unit trusts it with raw updates does not matter.
    """
    return pair.relation.kind in _UNIONS.get(kind, (kind,))


@dataclass(frozen=True)
class ObservedUnit:
    """A unit and a coalition.

    Attributes:
        kind: ``device``; or ``record`` or ``person`` for any one of these of the device.
        device: its number.
        coalition: who observes it.
        relation: how observer and unit are placed.
        stands_for: equivalent ordered pairs that it represents; no unit of them has a larger ε.
        least: of these units, the device whose records are drawn least often, where not all are drawn alike.
        sites: numbers of the sites that these units are at, where a user named any.
        kinds: of how many kinds the pairs are.
        mildest: of several kinds, that with the smallest ε; ``None`` where it is not known.
    """

    kind: str
    device: int
    coalition: tuple[Party, ...]
    relation: Relation
    stands_for: int
    least: int | None = None
    sites: tuple[int, ...] = ()
    kinds: int = 1
    mildest: PairClass | None = None

    @classmethod
    def of_class(cls, kind: str, pair: PairClass) -> ObservedUnit:
        """The pair with the largest ε of a class, for units of ``kind`` (device, record or person)."""
        rest = pair.relation, pair.pair_count, pair.least, pair.sites, pair.kinds, pair.mildest
        return cls(kind, pair.unit, (pair.observer,), *rest)

    def charge(self, plan: Plan, declared: DeclaredReleases, *, drawn_like: int | None = None) -> PairCharge:
        """What the accountant charges to the unit towards the coalition, given the releases of ``plan``.

        ``declared``: these releases. ``drawn_like``: the device whose records are drawn as often as the
        unit's; ``None``: the unit's own.
        """
        return PairCharge.of(
            declared,
            self.kind,
            self.device,
            self.coalition,
            neighbours=plan.spec.privacy.neighbours,
            drawn_like=drawn_like,
            by_filter=plan.spec.control is not None,
        )


def main_unit(spec: Spec) -> str:
    """The kind of unit whose ε is followed over rounds: ``privacy.unit``, or ``device`` for ``both``."""
    return "device" if spec.privacy.unit == "both" else spec.privacy.unit


def unit_kinds(plan: Plan) -> tuple[str, ...]:
    """The kinds of units that the spec protects: ``privacy.unit``; ``both`` is device and record."""
    unit = plan.spec.privacy.unit
    return ("device", "record") if unit == "both" else (unit,)
