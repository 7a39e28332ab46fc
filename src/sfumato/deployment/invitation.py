"""What `deploy` writes into a party's folder, and the party reads when it starts.

    spec.yaml      the resolved spec, as run folders keep it
    terms.yaml     the party's number; purpose, label, sizes of the data, and the keys of all parties
    consent.yaml   of a device: what its owner consents to; a file that is there already stays
    data.npz       of a device: its rows, where consent.yaml names no other file

Beside them are the party's own key and memory (`party_folder`), and for hops between machines ``hops.yaml``
and the key of its connections (`hops_file`, `hop_keys`).
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import yaml
from pydantic import Field

from sfumato.data.dataset import Dataset
from sfumato.data.dataset_sizes import declaring
from sfumato.deployment.calls import at_once
from sfumato.deployment.carrier import FrameReceiver
from sfumato.deployment.common_terms import CommonTerms
from sfumato.deployment.consent import Consent, agree, differences, proposed_consent, read_consent
from sfumato.deployment.declared_facts import DeclaredFacts
from sfumato.deployment.device import DeviceParty, require_own_key
from sfumato.deployment.doors import Doors
from sfumato.deployment.duties import duties, taking_part
from sfumato.deployment.edge import EdgeParty
from sfumato.deployment.group_terms import GroupTerms
from sfumato.deployment.kinds_of_terms import kind_of_terms
from sfumato.deployment.known_consents import note_loop_agreed, require_loop_agreed, state_folder
from sfumato.deployment.ledger import OwnersLedger
from sfumato.deployment.loop_code import LoopCode
from sfumato.deployment.party_folder import PartyFolder
from sfumato.deployment.private_files import require_own, require_private, write_private
from sfumato.deployment.randomness import SystemRandomness
from sfumato.deployment.refusals import require_own_loop_fits
from sfumato.deployment.rows_file import DATA, packed_rows, read_rows, rows_path, write_rows
from sfumato.deployment.section_files import read_section
from sfumato.deployment.sockets import AwaitedParty
from sfumato.deployment.subtree import Subtree
from sfumato.deployment.terms import DeploymentTerms
from sfumato.deployment.worker import WorkerParty
from sfumato.errors import SpecError
from sfumato.spec.base import Count, Section, Whole
from sfumato.spec.frozen import FrozenSpec, versions
from sfumato.spec.load import load_spec
from sfumato.user_text import read_bytes
from sfumato.wire.keys import KEY_BYTES, digest

TERMS, CONSENT = "terms.yaml", "consent.yaml"
_SPEC = "spec.yaml"
_KEY = "key"


class Relay(Section):
    """A program of others, such as Flower, that carries frames from an aggregator to the party's socket."""

    socket: str = Field(description="where the party listens, in the stead of its own folder")
    user: Whole = Field(description="that the programs run under, a number: the sockets are his")


class Invitation(Section):
    """The file ``terms.yaml``."""

    number: Whole = Field(description="of this party in the list of public keys")
    parameters: Count
    purpose: str
    label: str
    facts: DeclaredFacts = Field(description="the sizes of the spec's data set")
    public_keys: tuple[str, ...] = Field(description="of all parties, by number, in hexadecimal digits")
    children: tuple[str, ...] = Field(
        default=(), description="of an edge on the machine of its devices: where it reaches them"
    )
    made_keys: tuple[Whole, ...] | None = Field(
        default=None, description="whose secret keys whoever deploys made, by number; null: not said"
    )
    relay: Relay | None = Field(default=None, description="on one machine: who carries frames to its sockets")
    data: str = Field(default=DATA, description="of a device: the file of rows that is proposed to its owner")


@dataclass(frozen=True)
class Started:
    """A party that was started from its folder. It must be closed.

    Attributes:
        party: answers frames; an edge with all below it.
        folder: its own.
        relay: who carries frames to its sockets, if it is not their senders.
        words: what it agreed to, a sentence each.
        children: of an edge: its connections to them.
    """

    party: FrameReceiver
    folder: PartyFolder
    relay: Relay | None
    words: tuple[str, ...]
    children: tuple[AwaitedParty, ...] = ()

    def close(self) -> None:
        """Close the folder, and the connections to children."""
        for child in self.children:
            child.close()
        self.folder.close()


def write_invitation(
    folder: Path,
    doors: Doors,
    terms: CommonTerms,
    number: int,
    data: Dataset | None,
    loop: LoopCode | None = None,
) -> None:
    """Write the files of a party's folder other than its key and memory.

    These are the terms and, of a device, its rows and a proposed consent.

    Args:
        folder: of the party.
        doors: the sockets of all parties.
        terms: of the run.
        number: of the party.
        data: of a device: a data set whose training rows are its own.
        loop: of a device: that its owner, who calls this, agrees to; ``None``: that of its consent, if any.

    Raises:
        RunError: a file cannot be written.
        SpecError: the device has a consent that names another loop.
    """
    is_edge = number >= terms.device_count and number not in terms.heads
    children = terms.children(number) if is_edge else ()
    below = tuple(str(doors.reached[child]) for child in children)
    user = doors.relay_user
    relay = None if user is None else Relay(socket=str(doors.own[number]), user=user)
    write_terms(folder, terms, number, children=below, relay=relay)
    if data is None:
        return
    write_rows(folder, data)
    if not (folder / CONSENT).exists():
        propose_consent(folder, terms, number, DATA, loop)
    if loop is not None:
        found = loop_of(folder, read_consent(folder / CONSENT))
        if found is None or found.named != loop.named:
            other = f"names {'no loop' if found is None else found.named}"
            raise SpecError(loop.place, loop.named, f"must be that of {folder / CONSENT}, which {other}")
        note_loop_agreed(folder / CONSENT, loop)


def write_terms(folder: Path, terms: CommonTerms, number: int, **more: Any) -> None:
    """Write ``spec.yaml`` and ``terms.yaml`` of party ``number``; ``more`` are further keys of the latter.

    Raises:
        RunError: they cannot be written.
    """
    said = Invitation(
        number=number,
        parameters=terms.parameters,
        purpose=terms.purpose,
        label=terms.label,
        facts=DeclaredFacts.of(terms.facts),
        public_keys=tuple(key.hex() for key in terms.keys),
        made_keys=terms.made_keys,
        **more,
    )
    write_private(folder / _SPEC, FrozenSpec.of(terms.plan.spec, {}, versions()).text.encode())
    write_private(folder / TERMS, yaml.safe_dump(said.model_dump(mode="json"), sort_keys=False).encode())


def propose_consent(
    folder: Path, terms: CommonTerms, number: int, rows: str, loop: LoopCode | None = None
) -> Path:
    """Write a proposed consent of a device for its owner to read and edit; makes its ledger if missing.

    Args:
        folder: of the device.
        terms: of the run.
        number: of the device.
        rows: path of the file of its rows, as the consent names it.
        loop: a training loop that the owner named, never one that the deployer named.

    Returns:
        The file of rows that it names: the one that ``rows`` leads to.

    Raises:
        DataError: the rows cannot be read, or a link in the folder leads to them.
        RunError: it cannot be written, or others can read the rows.
    """
    consent = _proposed(folder, terms, number, _led_to(folder, rows))
    if loop is not None:
        consent = consent.model_copy(update={"loop": loop.named})
    if not Path(consent.ledger).exists():
        OwnersLedger.create(Path(consent.ledger))
    proposed = consent.model_dump(mode="json")
    write_private(folder / CONSENT, yaml.safe_dump(proposed, sort_keys=False, allow_unicode=True).encode())
    return folder / consent.data


def loop_of(folder: Path, consent: Consent) -> LoopCode | None:
    """The training loop that a device's consent names, read but not run; ``None`` if it names none.

    Raises:
        SpecError: it cannot be read, or is not named by a file and a function.
    """
    if consent.loop is None:
        return None
    return LoopCode.read(consent.loop, folder, f"{folder / CONSENT}: loop")


def different_from_proposed(folder: Path, said: Invitation, terms: CommonTerms) -> Iterator[str]:
    """Yield a sentence for each difference between a device's consent and a proposed one.

    Raises:
        DataError: the rows that it names cannot be read.
        SpecError: it cannot be read.
        RunError: other users can read it, or the rows.
    """
    require_private(folder / CONSENT)
    consent = read_consent(folder / CONSENT)
    proposed = _proposed(folder, terms, said.number, consent.data)
    yield from differences(consent, proposed.model_copy(update={"data": _led_to(folder, said.data)}))


def _proposed(folder: Path, terms: CommonTerms, number: int, named: str) -> Consent:
    """The consent that is proposed to the owner of device ``number``; its ledger need not be there yet.

    ``named``: path of the file of its rows, as the consent names it.
    """
    data = read_rows(rows_path(folder, named))
    rows = packed_rows(replace(data, train_persons=None))  # the same ledger in runs of another unit
    ledger = _ledger_of(rows if len(data.train_labels) else b"%d of none" % number)
    return proposed_consent(terms, number, ledger).model_copy(update={"data": named})


def _led_to(folder: Path, named: str) -> str:
    """The name of the file that whoever deploys names; outside the folder links are those of this machine."""
    place = folder.resolve()
    rows = Path(os.path.normpath(place / named))
    return named if rows.is_relative_to(place) else str(rows.resolve())


def _ledger_of(packed: bytes) -> Path:
    """The path of the ledger for a proposed consent, from ``packed``, the rows as bytes.

    Ledgers are in one folder of the user's. Their names are hashes of the rows with a key that is kept there,
    so the same rows have the same ledger in every run, and the name tells nobody else which rows they are.
    """
    ledgers = state_folder("ledgers")
    key = ledgers / _KEY
    if not key.exists():
        write_private(key, os.urandom(KEY_BYTES))
    require_private(key)
    return ledgers / digest(b"rows", read_bytes(key), packed)[:8].hex()


def ledger_path(consent: Consent, folder: Path) -> Path:
    """The path of the ledger that a consent names: outside ``folder``, which may not outlive the run.

    Raises:
        SpecError: it is inside, or the path depends on the working directory.
    """
    path = Path(consent.ledger)
    if not path.is_absolute() or path.resolve().is_relative_to(folder.resolve()):
        allowed = f"must be an absolute path, and not in {folder}"
        raise SpecError("consent.ledger", consent.ledger, allowed)
    return path


def read_terms(folder: Path) -> tuple[Invitation, CommonTerms]:
    """The content of ``terms.yaml`` in a party's folder, and the terms of the run, computed from it.

    Raises:
        SpecError: a file cannot be read or does not fit the others.
        RunError: other users could change the files.
    """
    for file in (folder, folder / TERMS, folder / _SPEC):
        require_own(file)
    said = read_section(folder / TERMS, Invitation)
    try:
        keys = tuple(bytes.fromhex(key) for key in said.public_keys)
    except ValueError:
        raise SpecError(f"{folder / TERMS}: public_keys", None, "must be hexadecimal digits") from None
    if any(number >= len(keys) for number in said.made_keys or ()):
        raise SpecError(f"{folder / TERMS}: made_keys", said.made_keys, "must be numbers of parties")
    spec = load_spec(folder / _SPEC)
    with declaring(said.facts.facts(spec.data.source)):
        terms = kind_of_terms(spec).of(
            spec,
            parameters=said.parameters,
            purpose=said.purpose,
            label=said.label,
            keys=keys,
            made_keys=said.made_keys,
        )
    if said.number >= len(keys):
        raise SpecError(f"{folder / TERMS}: number", said.number, "must be that of a party")
    return said, terms


def start_party(
    folder: Path,
    below: Mapping[int, FrameReceiver] | None = None,
    say: Callable[[str], object] = lambda sentence: None,
) -> Started:
    """The party of a folder; a device agrees to the terms, or refuses them.

    Args:
        folder: of a device or an edge.
        below: how an edge reaches its devices, by number; left out: at the sockets that its folder names.
        say: called while it answers, with what only its owner is told.

    Raises:
        ConsentRefusedError: a device does not agree.
        DataError: its data cannot be read, or are not as many as the spec declares.
        SpecError: a file cannot be read or does not fit the others; the loop of its owner fails.
        SfumatoError: its key or its memory cannot be used, or others could change its files, or the loop was
            not agreed to.
    """
    said, terms = read_terms(folder)
    if said.number in terms.heads:
        raise SpecError(f"{folder / TERMS}: number", said.number, "must be that of a device or an edge")
    own = PartyFolder.open(folder)
    try:
        require_own_key(terms, said.number, own.identity)
        if said.number < terms.device_count:
            return _started_device(folder, said, terms, own, say)
        assert isinstance(terms, DeploymentTerms)  # others have no edges
        return _started_edge(folder, said, terms, own, below)
    except BaseException:
        own.close()
        raise


def _started_edge(
    folder: Path,
    said: Invitation,
    terms: DeploymentTerms,
    own: PartyFolder,
    below: Mapping[int, FrameReceiver] | None,
) -> Started:
    """Start an edge over its devices: those ``below`` it by number, or those behind sockets if ``None``."""
    edge = EdgeParty(said.number, terms, own.identity, own.memory, SystemRandomness())
    words = (taking_part(terms, said.number), *duties(terms, said.number))
    devices = terms.children(said.number)
    if below is not None:
        return Started(Subtree(edge, below, at_once), own, said.relay, words)
    if len(said.children) != len(devices):
        raise SpecError(f"{folder / TERMS}: children", len(said.children), f"must be {len(devices)} sockets")
    most = terms.largest_answer(said.number)
    user = None if said.relay is None else said.relay.user
    children = {
        child: AwaitedParty(Path(path), terms.name(child), most, relay_user=user)
        for child, path in zip(devices, said.children, strict=True)
    }
    return Started(Subtree(edge, children, at_once), own, said.relay, words, tuple(children.values()))


def _started_device(
    folder: Path,
    said: Invitation,
    terms: CommonTerms,
    own: PartyFolder,
    say: Callable[[str], object],
) -> Started:
    """Start a device or worker with its own rows, if its owner's consent allows ``terms``."""
    from sfumato.deployment.local_data import LocalData  # PyTorch: edges need none
    from sfumato.deployment.own_loop import OwnLoop
    from sfumato.deployment.worker_data import WorkerData

    number = said.number
    if (folder / CONSENT).exists():
        require_private(folder / CONSENT)
    consent = read_consent(folder / CONSENT)
    rows = rows_path(folder, consent.data)  # never those that whoever deploys names
    found = read_rows(rows)
    agreement = agree(terms, number, consent, ledger_path(consent, folder))
    words = [*agreement.words, f"{terms.name(number)} reads the {len(found.train_labels):,} rows of {rows}."]
    loop = None
    if (code := loop_of(folder, consent)) is not None:
        require_own_loop_fits(terms.plan.spec)
        require_loop_agreed(folder / CONSENT, code)
        loop = OwnLoop.of(code)
        words.append(loop.in_words(terms.name(number)))
    device: FrameReceiver
    of_itself = own.identity, own.memory, SystemRandomness()
    if isinstance(terms, GroupTerms):
        device = WorkerParty(agreement, WorkerData(number, terms, found), *of_itself)
    else:
        assert isinstance(terms, DeploymentTerms)
        device = DeviceParty(agreement, LocalData(number, terms, found, loop, say), *of_itself)
    return Started(device, own, said.relay, tuple(words))
