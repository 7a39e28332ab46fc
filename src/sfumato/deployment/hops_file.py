"""The file ``hops.yaml`` of a party: whom it connects to, who connects to it, and by which certificates."""

from __future__ import annotations

from pathlib import Path

from sfumato.deployment.hop_keys import certificate_bytes
from sfumato.deployment.private_files import require_own
from sfumato.deployment.section_files import read_section
from sfumato.errors import SpecError
from sfumato.spec.base import Section, Whole

HOPS = "hops.yaml"
"""The name of the file, in a party's folder."""

_PORTS = range(1, 1 << 16)


class Parent(Section):
    """Whom a device or an edge dials."""

    name: str
    address: str
    certificate: str


class Child(Section):
    """Who may dial an edge or the cloud; whoever is not listed, or not any more, is refused."""

    number: Whole
    name: str
    certificate: str


class Hops(Section):
    """The file ``hops.yaml``."""

    parent: Parent | None = None
    listens: str | None = None
    children: tuple[Child, ...] = ()


def read_hops(folder: Path) -> Hops:
    """The hops of a party's folder.

    Raises:
        SpecError: the file cannot be read, or holds something else.
        RunError: others could change it.
    """
    path = folder / HOPS
    require_own(path)
    found = read_section(path, Hops)
    if (found.listens is None) != (not found.children):
        raise SpecError(
            f"{path}: listens", found.listens, "must be there where there are children, and only there"
        )
    if found.parent is not None:
        address_of(found.parent.address, f"{path}: parent.address")
        certificate_bytes(found.parent.certificate, f"{path}: parent.certificate")
    if found.listens is not None:
        address_of(found.listens, f"{path}: listens")
    for index, child in enumerate(found.children):
        certificate_bytes(child.certificate, f"{path}: children[{index}].certificate")
    return found


def address_of(text: str, place: str) -> tuple[str, int]:
    """The host and the port of ``HOST:PORT``, an address of IPv6 in brackets.

    Raises:
        SpecError: it is something else; the message names ``place``.
    """
    host, _, port = text.rpartition(":")
    is_bracketed = host.startswith("[") and host.endswith("]")
    host = host[1:-1] if is_bracketed else host
    right = port.isascii() and port.isdigit() and int(port) in _PORTS
    if not (host and right) or "/" in host or (":" in host and not is_bracketed):
        raise SpecError(place, text, "must be HOST:PORT, such as graz.example.org:8470; every hop is TLS")
    return host, int(port)
