"""What `deploy` writes into a party's folder, and the party reads when it starts.

    spec.yaml      the resolved spec, as run folders keep it
    terms.yaml     the party's number; purpose, label, sizes of the data, and the keys of all parties
    consent.yaml   of a device: what its owner consents to; a file that is there already stays
    data.npz       of a device: its rows, where consent.yaml names no other file

Beside them are the party's own key and memory (`party_folder`), and for hops between machines ``hops.yaml``
and the key of its connections (`hops_file`, `hop_keys`).
"""

from __future__ import annotations

import io
import os
import zipfile
import zlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import yaml
from pydantic import Field

from sfumato.data.builtin_datasets import DatasetFacts
from sfumato.data.dataset import Dataset
from sfumato.data.dataset_sizes import declaring
from sfumato.deployment.calls import at_once
from sfumato.deployment.carrier import FrameReceiver
from sfumato.deployment.consent import Consent, agree, differences, proposed_consent, read_consent
from sfumato.deployment.declared_facts import DeclaredFacts
from sfumato.deployment.device import DeviceParty, require_own_key
from sfumato.deployment.doors import Doors
from sfumato.deployment.duties import duties, taking_part
from sfumato.deployment.edge import EdgeParty
from sfumato.deployment.known_consents import state_folder
from sfumato.deployment.ledger import OwnersLedger
from sfumato.deployment.party_folder import PartyFolder
from sfumato.deployment.private_files import require_own, require_private, write_private
from sfumato.deployment.randomness import SystemRandomness
from sfumato.deployment.section_files import read_section
from sfumato.deployment.sockets import AwaitedParty
from sfumato.deployment.subtree import Subtree
from sfumato.deployment.terms import DeploymentTerms
from sfumato.errors import DataError, SpecError
from sfumato.spec.base import Count, Section, Whole
from sfumato.spec.frozen import FrozenSpec, versions
from sfumato.spec.load import load_spec
from sfumato.user_text import read_bytes
from sfumato.wire.keys import KEY_BYTES, digest

TERMS, CONSENT, DATA = "terms.yaml", "consent.yaml", "data.npz"
_SPEC = "spec.yaml"
_KEY = "key"
_UNREADABLE = (  # what NumPy, zipfile and zlib say of a damaged file
    *(OSError, EOFError, KeyError, IndexError, TypeError, ValueError, OverflowError, RuntimeError),
    *(zipfile.BadZipFile, zlib.error),
)


class Relay(Section):
    """Programs of others that take frames from the socket that an aggregator connects to, to the party's."""

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
        """Close the folder and all connections."""
        for child in self.children:
            child.close()
        self.folder.close()


def write_invitation(
    folder: Path, doors: Doors, terms: DeploymentTerms, number: int, data: Dataset | None
) -> None:
    """Write the folder of a party, but for its key and its memory.

    Args:
        folder: of the party.
        doors: the sockets of all parties.
        terms: of the run.
        number: of the party.
        data: of a device: a data set whose training rows are its own.

    Raises:
        RunError: a file cannot be written.
    """
    children = terms.children(number) if number > terms.cloud else ()
    below = tuple(str(doors.reached[child]) for child in children)
    user = doors.relay_user
    relay = None if user is None else Relay(socket=str(doors.own[number]), user=user)
    write_terms(folder, terms, number, children=below, relay=relay)
    if data is None:
        return
    write_rows(folder, data)
    if not (folder / CONSENT).exists():
        propose_consent(folder, terms, number, DATA)


def write_terms(folder: Path, terms: DeploymentTerms, number: int, **more: Any) -> None:
    """Write what a party has to know of a run: ``spec.yaml`` and ``terms.yaml``, with ``more`` in the latter.

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


def write_rows(folder: Path, data: Dataset) -> None:
    """Write the rows of a device: the training rows of ``data``.

    Raises:
        RunError: they cannot be written.
    """
    write_private(folder / DATA, _packed(data))


def propose_consent(folder: Path, terms: DeploymentTerms, number: int, rows: str) -> Path:
    """Write a consent for a device, for its owner to read and to edit, with a ledger that goes by its rows.

    Returns:
        The file of rows that it names: the one that ``rows`` leads to.

    Raises:
        DataError: the rows cannot be read, or a link in the folder leads to them.
        RunError: it cannot be written, or others can read the rows.
    """
    consent = _proposed(folder, terms, number, _led_to(folder, rows))
    if not Path(consent.ledger).exists():
        OwnersLedger.create(Path(consent.ledger))
    proposed = consent.model_dump(mode="json")
    write_private(folder / CONSENT, yaml.safe_dump(proposed, sort_keys=False, allow_unicode=True).encode())
    return folder / consent.data


def different_from_proposed(folder: Path, said: Invitation, terms: DeploymentTerms) -> Iterator[str]:
    """Where the consent of a device is not the one that would be proposed to its owner, a sentence each.

    Raises:
        DataError: the rows that it names cannot be read.
        SpecError: it cannot be read.
        RunError: others can read it, or the rows.
    """
    require_private(folder / CONSENT)
    consent = read_consent(folder / CONSENT)
    proposed = _proposed(folder, terms, said.number, consent.data)
    yield from differences(consent, proposed.model_copy(update={"data": _led_to(folder, said.data)}))


def _proposed(folder: Path, terms: DeploymentTerms, number: int, rows: str) -> Consent:
    """What is proposed to the owner of a device with these rows; its ledger need not be there yet."""
    data = _unpacked(_own_rows(folder, rows))
    ledger = _ledger_of(_packed(data) if len(data.train_labels) else b"%d of none" % number)
    return proposed_consent(terms, number, ledger).model_copy(update={"data": rows})


def _led_to(folder: Path, named: str) -> str:
    """The name of the file that whoever deploys names; outside the folder links are those of this machine."""
    place = folder.resolve()
    rows = Path(os.path.normpath(place / named))
    return named if rows.is_relative_to(place) else str(rows.resolve())


def _ledger_of(packed: bytes) -> Path:
    """Where the ledger for a proposed consent is.

    All are in one folder of the user's, and named by a hash of the rows with a key that is kept there: the
    same rows have the same ledger in every run, and the name tells nobody else which rows they are.
    """
    ledgers = state_folder("ledgers")
    key = ledgers / _KEY
    if not key.exists():
        write_private(key, os.urandom(KEY_BYTES))
    require_private(key)
    return ledgers / digest(b"rows", read_bytes(key), packed)[:8].hex()


def ledger_path(consent: Consent, folder: Path) -> Path:
    """Where the ledger of a consent is: not in ``folder``, which may be thrown away after a run.

    Raises:
        SpecError: it is there, or the path would depend on where the process was started.
    """
    path = Path(consent.ledger)
    if not path.is_absolute() or path.resolve().is_relative_to(folder.resolve()):
        allowed = f"must be an absolute path, and not in {folder}"
        raise SpecError("consent.ledger", consent.ledger, allowed)
    return path


def read_terms(folder: Path) -> tuple[Invitation, DeploymentTerms]:
    """What a party's folder says of the run, and the terms that the party makes of it.

    Raises:
        SpecError: a file cannot be read or does not fit the others.
        RunError: others could change the files.
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
        terms = DeploymentTerms.of(
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


def start_party(folder: Path, below: Mapping[int, FrameReceiver] | None = None) -> Started:
    """The party of a folder; a device agrees to the terms, or refuses them.

    Args:
        folder: of a device or an edge.
        below: how an edge reaches its devices, by number; left out: at the sockets that its folder names.

    Raises:
        ConsentRefusedError: a device does not agree.
        DataError: its data cannot be read, or are not as many as the spec declares.
        SpecError: a file cannot be read or does not fit the others.
        SfumatoError: its key or its memory cannot be used, or others could change its files.
    """
    said, terms = read_terms(folder)
    if said.number == terms.cloud:
        raise SpecError(f"{folder / TERMS}: number", said.number, "must be that of a device or an edge")
    own = PartyFolder.open(folder)
    try:
        require_own_key(terms, said.number, own.identity)
        if said.number < terms.cloud:
            return _started_device(folder, said, terms, own)
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


def _started_device(folder: Path, said: Invitation, terms: DeploymentTerms, own: PartyFolder) -> Started:
    from sfumato.deployment.local_data import LocalData  # PyTorch: edges need none

    number = said.number
    if (folder / CONSENT).exists():
        require_private(folder / CONSENT)
    consent = read_consent(folder / CONSENT)
    rows = _own_rows(folder, consent.data)  # never those that whoever deploys names
    found = _unpacked(rows)
    data = LocalData(number, terms, found)
    agreement = agree(terms, number, consent, ledger_path(consent, folder))
    device = DeviceParty(agreement, data, own.identity, own.memory, SystemRandomness())
    read = f"{terms.name(number)} reads the {len(found.train_labels):,} rows of {rows}."
    return Started(device, own, said.relay, (*agreement.words, read))


def _own_rows(folder: Path, named: str) -> Path:
    """The file of a device's rows, by the name that its consent has for it.

    Raises:
        DataError: a link leads to another one.
        RunError: others can read it, or it is not there.
    """
    rows = folder.resolve() / named
    if (target := rows.resolve()) != Path(os.path.normpath(rows)):
        raise DataError(f"{rows}: leads to {target}; name that path at data in consent.yaml if it is meant")
    require_private(rows)
    return target


def _packed(data: Dataset) -> bytes:
    """The training rows of a data set as a file."""
    arrays: dict[str, Any] = {"features": data.train_features, "labels": data.train_labels}
    if data.train_targets is not None:
        arrays["targets"] = data.train_targets
    archive = io.BytesIO()
    np.savez(archive, outputs=np.array([data.facts.outputs]), **arrays)
    return archive.getvalue()


def _unpacked(path: Path) -> Dataset:
    """A data set whose training rows are those in a file, and which has no test rows."""
    try:
        with np.load(path, allow_pickle=False) as archive:
            features, labels, outputs = archive["features"], archive["labels"], int(archive["outputs"][0])
            targets = archive["targets"] if "targets" in archive.files else None
    except _UNREADABLE as error:
        raise DataError(f"{path}: cannot be read: {error}") from None
    if features.ndim < 1 or labels.ndim != 1:
        raise DataError(f"{path}: must have rows of features, and one label a row")
    if len(features) != len(labels) or (targets is not None and len(targets) != len(labels)):
        raise DataError(f"{path}: has {len(features):,} rows of features and {len(labels):,} labels")
    for name, found in (("features", features), ("targets", targets)):
        if found is not None and found.dtype.kind not in "fiu":
            raise DataError(f"{path}: {name} must be numbers; they are {found.dtype}")
    features = features.astype(np.float32 if features.dtype.kind == "f" else np.int64, copy=False)
    if targets is None:
        if not np.issubdtype(labels.dtype, np.integer):
            raise DataError(f"{path}: labels must be whole numbers; they are {labels.dtype}")
        labels = labels.astype(np.int64, copy=False)
        if len(labels) and not (labels.min() >= 0 and labels.max() < outputs):
            raise DataError(f"{path}: labels must be whole numbers from 0 to {outputs - 1}")
    facts = DatasetFacts(str(path), len(labels), 0, outputs, features.shape[1:])
    none = None if targets is None else targets[:0]
    return Dataset(
        facts, features, labels, features[:0], labels[:0], train_targets=targets, test_targets=none
    )
