"""`deploy --parties`: a folder for every party, to be handed over to its owner.

    key, memory                           that sign and remember; only where the owner has not made them
    hop-key.pem, hop-certificate.pem      of its connections; likewise
    public.yaml                           the public halves of both keys
    spec.yaml, terms.yaml, hops.yaml      what it has to know; no secrets
    data.npz                              rows of the spec, where the file of parties names no others
    sheet.txt                             what the party does, sees and says, and how it is started, in words
    party.service, Containerfile          for systemd, and for containers

A consent is not among them: a device proposes one to its owner, on its own machine (`hops_check`).
"""

from __future__ import annotations

import secrets
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import yaml

from sfumato.arguments import Argument
from sfumato.deployment.hop_keys import PublicKeys, make_keys, read_public
from sfumato.deployment.hops_file import HOPS, Child, Hops, Parent
from sfumato.deployment.invitation import write_rows, write_terms
from sfumato.deployment.local_parties import rows_of
from sfumato.deployment.parties_file import PartyEntry, folder_names, read_parties
from sfumato.deployment.party_sheet import container_file, sheet, systemd_unit
from sfumato.deployment.refusals import require_deployable
from sfumato.deployment.terms import DeploymentTerms
from sfumato.durable_files import replacing
from sfumato.errors import SpecError
from sfumato.learning.parameters import ParameterLayout
from sfumato.schedule.resolve import resolve
from sfumato.simulation.training_inputs import TrainingInputs
from sfumato.spec.document import Spec


@dataclass(frozen=True)
class HandedOver:
    """What `hand_over` wrote.

    Attributes:
        folders: of all parties, by number.
        with_secrets: the names of those that hold keys, which were made here.
    """

    folders: Sequence[Path]
    with_secrets: Sequence[str]


def hand_over(spec: Spec, parties: Path, out: Path) -> HandedOver:
    """Write the folders of all parties of ``spec`` into ``out``, which is new.

    Args:
        spec: as loaded.
        parties: the file that says who takes part, and where.
        out: the folder of the folders.

    Raises:
        SpecError: the spec cannot be deployed, the file of parties does not fit it, or ``out`` is not empty.
        SfumatoError: the data cannot be read, or a folder cannot be written.
    """
    resolved = resolve(spec)
    inputs = TrainingInputs.of(resolved)
    parameters = ParameterLayout.of(inputs.model).total
    plan = require_deployable(resolved, parameters)
    purpose, entries = read_parties(parties, plan.tree)
    if out.exists() and (not out.is_dir() or any(out.iterdir())):
        raise SpecError(Argument("out"), str(out), "is there already; every run has folders of its own")
    names = folder_names(plan.tree)
    folders = [out / name for name in names]
    public = [_public(entries[name], parties, folder) for name, folder in zip(names, folders, strict=True)]
    terms = DeploymentTerms.of(
        plan.spec,
        parameters=parameters,
        purpose=purpose,
        label=f"{plan.spec.name}/{secrets.token_hex(16)}",
        keys=tuple(one.signing for one in public),
    )
    certificates = [one.certificate for one in public]
    if len(set(certificates)) != len(certificates):
        raise SpecError(f"{parties}: parties", None, "must have a certificate each: two have the same one")
    in_order = [entries[name] for name in names]
    for number, folder in enumerate(folders):
        is_simulated = number < terms.cloud and in_order[number].data is None
        if is_simulated:
            write_rows(folder, rows_of(inputs.data, inputs.partition, number))
        _write_folder(folder, terms, number, in_order[number], _hops(terms, number, in_order, certificates))
    made = [name for name in names if entries[name].public is None]
    return HandedOver(folders, made)


def _public(entry: PartyEntry, parties: Path, folder: Path) -> PublicKeys:
    """The public keys of a party: those that it has sent, or new ones, whose secrets are in its folder."""
    if entry.public is None:
        return make_keys(folder)
    return read_public(parties.parent / entry.public)


def _write_folder(folder: Path, terms: DeploymentTerms, number: int, entry: PartyEntry, hops: Hops) -> None:
    """Write the folder of a party, but for keys and rows."""
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    given = {} if entry.data is None else {"data": entry.data}
    write_terms(folder, terms, number, **given)
    text = yaml.safe_dump(hops.model_dump(mode="json", exclude_none=True), sort_keys=False)
    _write(folder / HOPS, text)
    _write(folder / "sheet.txt", sheet(terms, number, folder.name, hops))
    _write(folder / "party.service", systemd_unit(terms, number, folder.name))
    _write(folder / "Containerfile", container_file(folder.name, hops))


def _hops(
    terms: DeploymentTerms, number: int, entries: Sequence[PartyEntry], certificates: Sequence[str]
) -> Hops:
    """The hops of a party."""
    parent = None
    if number != terms.cloud:
        above = terms.parent(number)
        address = entries[above].address
        assert address is not None  # the file of parties was checked
        parent = Parent(name=terms.name(above), address=address, certificate=certificates[above])
    if number < terms.cloud:
        return Hops(parent=parent)
    own = entries[number]
    children = tuple(
        Child(number=child, name=terms.name(child), certificate=certificates[child])
        for child in terms.children(number)
    )
    return Hops(parent=parent, listens=own.listens or own.address, children=children)


def _write(path: Path, text: str) -> None:
    with replacing(path, private=True) as file:
        file.write(text.encode())
