"""`deploy --parties`: a folder for every party, to be handed over to its owner.

    key, memory                           that sign and remember; only where the owner has not made them
    hop-key.pem, hop-certificate.pem      of its connections; likewise
    public.yaml                           the public halves of both keys
    spec.yaml, terms.yaml, hops.yaml      what it has to know; no secrets
    data.npz                              rows of the spec, where the file of parties names no others
    sheet.txt                             what the party does, sees and says, and how it is started, in words
    party.service                         for systemd

A consent is not among them: a device proposes one to its owner, on its own machine (`hops_check`).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import yaml

from sfumato.arguments import Argument
from sfumato.deployment.common_terms import CommonTerms
from sfumato.deployment.hop_keys import PublicKeys, make_keys, read_public
from sfumato.deployment.hops_file import HOPS, Child, Hops, Parent
from sfumato.deployment.invitation import write_terms
from sfumato.deployment.kinds_of_terms import kind_of_terms
from sfumato.deployment.local_parties import rows_of
from sfumato.deployment.parties_file import PartyEntry, read_parties
from sfumato.deployment.party_folder import folder_names
from sfumato.deployment.party_sheet import sheet, systemd_unit
from sfumato.deployment.private_files import write_private
from sfumato.deployment.rows_file import write_rows
from sfumato.deployment.terms import new_label
from sfumato.errors import SpecError
from sfumato.learning.parameters import ParameterLayout
from sfumato.network.groups import Groups
from sfumato.network.tree import Tree
from sfumato.schedule.resolve import resolve
from sfumato.simulation.training_inputs import TrainingInputs
from sfumato.spec.document import Spec


@dataclass(frozen=True)
class HandedOver:
    """What `hand_over` wrote.

    Attributes:
        folders: of all parties, by number.
        with_secrets: names of the parties whose keys were made here, so that their folders hold secrets.
    """

    folders: Sequence[Path]
    with_secrets: Sequence[str]


def hand_over(spec: Spec, parties: Path, out: Path) -> HandedOver:
    """Write the folders of all parties of ``spec`` into the new folder ``out``.

    Args:
        spec: as loaded.
        parties: the file with the parties' addresses, public keys and rows (`parties_file`).
        out: the folder of the folders.

    Raises:
        SpecError: the spec cannot be deployed, the file of parties does not fit it, or ``out`` is not empty.
        SfumatoError: the data cannot be read, or a folder cannot be written.
    """
    resolved = resolve(spec)
    inputs = TrainingInputs.of(resolved)
    parameters = ParameterLayout.of(inputs.model).total
    kind = kind_of_terms(spec)
    plan = kind.deployable(resolved, parameters)
    assert isinstance(plan.parties, Tree | Groups)
    purpose, entries = read_parties(parties, plan.parties)
    if out.exists() and (not out.is_dir() or any(out.iterdir())):
        raise SpecError(Argument("out"), str(out), "is there already; every run has folders of its own")
    names = folder_names(plan.parties)
    folders = [out / name for name in names]
    sent = {
        name: read_public(parties.parent / entry.public)
        for name, entry in entries.items()
        if entry.public is not None
    }  # before any key is made
    _require_different(parties, sent)
    public = [
        sent[name] if name in sent else make_keys(folder) for name, folder in zip(names, folders, strict=True)
    ]
    in_order = [entries[name] for name in names]
    made = tuple(number for number, entry in enumerate(in_order) if entry.public is None)
    terms = kind.of(
        plan.spec,
        parameters=parameters,
        purpose=purpose,
        label=new_label(plan.spec.name),
        keys=tuple(one.signing for one in public),
        made_keys=made,
    )
    for number, folder in enumerate(folders):
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)  # before anything is in it
        is_simulated = number < terms.device_count and in_order[number].data is None
        if is_simulated:
            write_rows(folder, rows_of(inputs.data, inputs.partition, number))
        _write_folder(folder, terms, number, in_order[number], _hops(terms, number, in_order, public))
    return HandedOver(folders, [names[number] for number in made])


def _require_different(parties: Path, sent: Mapping[str, PublicKeys]) -> None:
    """Refuse two parties with one key, or with certificates that TLS would take for one another.

    ``parties``: the file, for the message; ``sent``: public keys by name of the party.

    Raises:
        SpecError: there are two.
    """
    for what, shown in (
        ("key", {name: one.signing for name, one in sent.items()}),
        ("subject of its certificate", {name: one.subject for name, one in sent.items()}),
    ):
        first: dict[bytes, str] = {}
        for name, one in shown.items():
            if (other := first.setdefault(one, name)) != name:
                allowed = f"must be of another party than {other}: both have the same {what}"
                raise SpecError(f"{parties}: parties.{name}.public", None, allowed)


def _write_folder(folder: Path, terms: CommonTerms, number: int, entry: PartyEntry, hops: Hops) -> None:
    """Write the folder of party ``number`` except for its keys and rows: terms, hops, sheet and service."""
    given = {} if entry.data is None else {"data": entry.data}
    write_terms(folder, terms, number, **given)
    text = yaml.safe_dump(hops.model_dump(mode="json", exclude_none=True), sort_keys=False)
    write_private(folder / HOPS, text.encode())
    write_private(folder / "sheet.txt", sheet(terms, number, folder.name, hops, data=entry.data).encode())
    write_private(folder / "party.service", systemd_unit(terms, number, folder.name).encode())


def _hops(
    terms: CommonTerms, number: int, entries: Sequence[PartyEntry], public: Sequence[PublicKeys]
) -> Hops:
    """The hops of party ``number``, for its file.

    Args:
        terms: of the run.
        number: of the party.
        entries: of all parties, by number, with their addresses.
        public: public keys of all parties, by number, with certificates.
    """
    parents = []
    for above in () if number in terms.heads else terms.parents(number):
        address, shown = entries[above].address, public[above]
        assert address is not None  # the file of parties was checked
        parents.append(
            Parent(number=above, address=address, certificate=shown.certificate, binding=shown.binding)
        )
    if number < terms.device_count:
        return Hops(parents=tuple(parents))
    own = entries[number]
    children = tuple(
        Child(number=child, certificate=public[child].certificate, binding=public[child].binding)
        for child in terms.children(number)
    )
    return Hops(parents=tuple(parents), listens=own.listens or own.address, children=children)
