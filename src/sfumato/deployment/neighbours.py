"""The hops of a party, as it starts: who is at their other ends, as far as it can be known beforehand."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from sfumato.deployment.device import require_own_key
from sfumato.deployment.hop_keys import HopKey, certificate_bytes, require_bound
from sfumato.deployment.hop_proofs import Neighbour, OwnEnd
from sfumato.deployment.hops_file import HOPS, Bound, read_hops
from sfumato.deployment.party_folder import read_identity
from sfumato.deployment.terms import DeploymentTerms
from sfumato.errors import SpecError


@dataclass(frozen=True)
class Neighbours:
    """A party's hops to others.

    Attributes:
        own: its own end of them.
        parent: to which it connects; ``None`` for the cloud.
        address: of the parent, ``HOST:PORT``.
        children: that connect to it; none of a device.
        listens: where it waits for them, ``HOST:PORT``.
    """

    own: OwnEnd
    parent: Neighbour | None
    address: str
    children: Sequence[Neighbour]
    listens: str


def read_neighbours(folder: Path, number: int, terms: DeploymentTerms) -> Neighbours:
    """Read the hops of a party from ``hops.yaml``, and check them against the terms.

    Args:
        folder: of the party.
        number: of the party.
        terms: of the run.

    Raises:
        SpecError: the file has another parent or other children, or a certificate without a binding by the
            key that the terms have for its owner.
        RunError: a key cannot be used, or other users could change it.
        UnsafeTermsError: the party's key is not the one in the terms.
    """
    hops, path, identity = read_hops(folder), folder / HOPS, read_identity(folder)
    require_own_key(terms, number, identity)

    def met(other: int, entry: Bound, place: str) -> Neighbour:
        certificate = certificate_bytes(entry.certificate, f"{path}: {place}.certificate")
        require_bound(terms.keys[other], certificate, entry.binding, f"{path}: {place}.binding")
        return Neighbour(other, terms.name(other), terms.keys[other], certificate)

    if (hops.parent is None) != (number == terms.cloud):
        raise SpecError(f"{path}: parent", None, "must be there for devices and edges, and only for them")
    parent = None if hops.parent is None else met(terms.parent(number), hops.parent, "parent")
    wanted = {} if number < terms.cloud else terms.children(number)
    if sorted(child.number for child in hops.children) != sorted(wanted):
        names = ", ".join(map(terms.name, wanted)) or "none"
        raise SpecError(f"{path}: children", len(hops.children), f"must be those of the terms: {names}")
    children = [met(child.number, child, f"children[{index}]") for index, child in enumerate(hops.children)]
    if len({child.certificate for child in children}) != len(children):
        raise SpecError(f"{path}: children", None, "must have a certificate each: two have the same one")
    own = OwnEnd(HopKey(folder), identity, terms.session)
    address = "" if hops.parent is None else hops.parent.address
    return Neighbours(own, parent, address, children, hops.listens or "")
