"""The file ``hops.yaml`` of a party: whom it connects to, who connects to it, and by which certificates."""

from __future__ import annotations

from pathlib import Path

from sfumato.deployment.private_files import require_own
from sfumato.deployment.section_files import read_section
from sfumato.errors import SpecError
from sfumato.spec.base import Section, Whole

HOPS = "hops.yaml"
"""The name of the file, in a party's folder."""

_PORTS = range(1, 1 << 16)


class Bound(Section):
    """A certificate, DER in base64, and its binding by the owner's signing key (`hop_proofs`)."""

    certificate: str
    binding: str


class Parent(Bound):
    """The file's entry for a parent, to which a device or an edge connects; workers may have several."""

    number: Whole
    address: str


class Child(Bound):
    """The file's entry for a child, which may connect to an edge or the cloud; others are refused."""

    number: Whole


class Hops(Section):
    """The file ``hops.yaml``."""

    parents: tuple[Parent, ...] = ()
    listens: str | None = None
    children: tuple[Child, ...] = ()


def read_hops(folder: Path) -> Hops:
    """Read the file ``hops.yaml`` of a party's folder.

    Raises:
        SpecError: the file cannot be read, or is not such a file.
        RunError: other users could change it.
    """
    path = folder / HOPS
    require_own(path)
    found = read_section(path, Hops)
    if (found.listens is None) != (not found.children):
        raise SpecError(
            f"{path}: listens", found.listens, "must be there where there are children, and only there"
        )
    for index, parent in enumerate(found.parents):
        address_of(parent.address, f"{path}: parents[{index}].address")
    if found.listens is not None:
        address_of(found.listens, f"{path}: listens")
    return found


def address_of(text: str, place: str) -> tuple[str, int]:
    """The host and the port of ``text``, which is ``HOST:PORT``; an IPv6 address stands in brackets.

    Raises:
        SpecError: ``text`` is no such address; the message names ``place``.
    """
    host, _, port = text.rpartition(":")
    is_bracketed = host.startswith("[") and host.endswith("]")
    host = host[1:-1] if is_bracketed else host
    right = port.isascii() and port.isdigit() and int(port) in _PORTS
    try:
        host.encode("idna")  # as sockets do
    except UnicodeError:
        right = False
    if not (host and right) or "/" in host or (":" in host and not is_bracketed):
        raise SpecError(place, text, "must be HOST:PORT, such as graz.example.org:8470; every hop is TLS")
    return host, int(port)
