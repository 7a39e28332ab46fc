"""The file that ``deploy --parties`` reads: who takes part, where aggregators listen, where rows are.

Parties go by the names of their folders: ``device-0``, ``edge-1``, ``cloud``.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from pydantic import Field

from sfumato.deployment.common_terms import require_shown_as_is
from sfumato.deployment.hops_file import address_of
from sfumato.deployment.party_folder import folder_names
from sfumato.deployment.section_files import read_section
from sfumato.errors import SpecError
from sfumato.network.groups import Groups
from sfumato.network.tree import Tree
from sfumato.spec.base import Section


class PartyEntry(Section):
    """What the file says of one party."""

    address: str | None = Field(default=None, description="of an aggregator: HOST:PORT that children dial")
    listens: str | None = Field(default=None, description="HOST:PORT of its own machine; default: address")
    data: str | None = Field(default=None, description="of a device: the file of its rows, on its machine")
    public: str | None = Field(default=None, description="the file of its public keys, if it has made them")


class PartiesFile(Section):
    """The file. A device that it leaves out has the rows of the spec, and keys that `deploy` makes."""

    purpose: str = Field(min_length=1, description="what the data are used for: devices consent to it")
    parties: dict[str, PartyEntry]


def read_parties(path: Path, parties: Tree | Groups) -> tuple[str, Mapping[str, PartyEntry]]:
    """The purpose, and the entry of every party by the name of its folder.

    Raises:
        SpecError: the file cannot be read, or does not fit the parties of the spec.
    """
    said, names = read_section(path, PartiesFile), folder_names(parties)
    require_shown_as_is(said.purpose, f"{path}: purpose")
    for name in said.parties:
        if name not in names:
            some = f"{names[0]}, …, {names[parties.device_count - 1]}"
            allowed = f"must be a party of the spec: {', '.join([some, *names[parties.device_count :]])}"
            raise SpecError(f"{path}: parties", name, allowed)
    entries = {name: said.parties.get(name, PartyEntry()) for name in names}
    for name, entry in entries.items():
        place = f"{path}: parties.{name}"
        if name.startswith("device-"):
            for key in ("address", "listens"):
                if getattr(entry, key) is not None:
                    raise SpecError(f"{place}.{key}", getattr(entry, key), "must be left out: a device dials")
            continue
        if entry.data is not None:
            raise SpecError(f"{place}.data", entry.data, "must be left out: only devices have rows")
        if entry.address is None:
            raise SpecError(f"{place}.address", None, "must be given: its children dial it, at HOST:PORT")
        address_of(entry.address, f"{place}.address")
        if entry.listens is not None:
            address_of(entry.listens, f"{place}.listens")
    return said.purpose, entries
