"""The hops of a party, as it starts: who is at their other ends, as far as it can be known beforehand."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from sfumato.deployment.common_terms import CommonTerms
from sfumato.deployment.device import require_own_key
from sfumato.deployment.hop_keys import HopKey, certificate_bytes, require_bound
from sfumato.deployment.hop_proofs import Neighbour, OwnEnd
from sfumato.deployment.hops_file import HOPS, Bound, Child, Parent, read_hops
from sfumato.deployment.party_folder import read_identity
from sfumato.errors import SpecError


@dataclass(frozen=True)
class DialedParent(Neighbour):
    """A parent of a party, which dials it.

    Attributes:
        address: ``HOST:PORT``.
    """

    address: str


@dataclass(frozen=True)
class Neighbours:
    """A party's hops to others.

    Attributes:
        own: its own end of them.
        parents: to which it connects: one, or the masters of a worker; none of the cloud and of masters.
        children: that connect to it; none of a device.
        listens: where it waits for them, ``HOST:PORT``.
    """

    own: OwnEnd
    parents: Sequence[DialedParent]
    children: Sequence[Neighbour]
    listens: str


def read_neighbours(folder: Path, number: int, terms: CommonTerms) -> Neighbours:
    """Read the hops of a party from ``hops.yaml``, and check them against the terms.

    Args:
        folder: of the party.
        number: of the party.
        terms: of the run.

    Raises:
        SpecError: the file has other parents or children, or a certificate without a binding by the key that
            the terms have for its owner.
        RunError: a key cannot be used, or other users could change it.
        UnsafeTermsError: the party's key is not the one in the terms.
    """
    hops, path, identity = read_hops(folder), folder / HOPS, read_identity(folder)
    require_own_key(terms, number, identity)

    def met(other: int, entry: Bound, place: str) -> tuple[int, str, bytes, bytes]:
        certificate = certificate_bytes(entry.certificate, f"{path}: {place}.certificate")
        require_bound(terms.keys[other], certificate, entry.binding, f"{path}: {place}.binding")
        return other, terms.name(other), terms.keys[other], certificate

    def require_those_of_the_terms(key: str, found: Sequence[Parent | Child], wanted: Iterable[int]) -> None:
        if sorted(one.number for one in found) != sorted(wanted):
            names = ", ".join(map(terms.name, wanted)) or "none"
            raise SpecError(f"{path}: {key}", len(found), f"must be those of the terms: {names}")

    require_those_of_the_terms(
        "parents", hops.parents, () if number in terms.heads else terms.parents(number)
    )
    below = () if number < terms.device_count else tuple(terms.children(number))
    require_those_of_the_terms("children", hops.children, below)
    parents = [
        DialedParent(*met(one.number, one, f"parents[{index}]"), one.address)
        for index, one in enumerate(hops.parents)
    ]
    children = [
        Neighbour(*met(one.number, one, f"children[{index}]")) for index, one in enumerate(hops.children)
    ]
    if len({child.certificate for child in children}) != len(children):
        raise SpecError(f"{path}: children", None, "must have a certificate each: two have the same one")
    own = OwnEnd(HopKey(folder), identity, terms.session)
    return Neighbours(own, parents, children, hops.listens or "")
