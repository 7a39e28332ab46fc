"""What a spec keeps in files beside it, put into the spec: the topology's tree or graph, and distances.

A resolved spec depends on no such file any more. Of each file read, the SHA-256 is kept in ``hashes``.
Data sets stay where they are.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from sfumato.errors import SpecError
from sfumato.network.tree import read_topology_file
from sfumato.spec.document import Spec
from sfumato.spec.limits import MOST_METRES
from sfumato.spec.moves import TopologyMoves
from sfumato.spec.radio import REFERENCE_M, LinkRadio
from sfumato.spec.topology import GroupTopology, TreeTopology
from sfumato.spec.used_keys import unused_keys
from sfumato.user_text import read_bytes, read_text

TOPOLOGY_FILE, MOVES_FILE = "topology.file", "topology.moves.file"
DISTANCES = "radio.distances_m"


def inlined(spec: Spec) -> Spec:
    """``spec`` with the contents and SHA-256 of all files that its topology, moves and radio name.

    Raises:
        SpecError: a file cannot be read, or does not hold what it should.
    """
    topology, radio = spec.topology, spec.radio
    hashes: dict[str, str] = {}
    update: dict[str, Any] = {}
    if isinstance(topology, TreeTopology) and topology.file is not None:
        hashes[TOPOLOGY_FILE] = _file_hash(topology.file, TOPOLOGY_FILE)
        read = read_topology_file(Path(topology.file))
        update["topology"] = topology.model_copy(
            update={"file": None, "level_names": read.level_names, "sites": read.sites}
        )
    if isinstance(topology, TreeTopology) and topology.moves is not None and topology.moves.file is not None:
        from sfumato.network.moves import read_trace

        hashes[MOVES_FILE] = _file_hash(topology.moves.file, MOVES_FILE)
        trace = TopologyMoves(trace=read_trace(Path(topology.moves.file)))
        update["topology"] = (update.get("topology") or topology).model_copy(update={"moves": trace})
    if isinstance(topology, GroupTopology) and topology.file is not None:
        from sfumato.network.group_graph import from_graph  # with NetworkX

        hashes[TOPOLOGY_FILE] = _file_hash(topology.file, TOPOLOGY_FILE)
        groups = from_graph(Path(topology.file), topology.devices)
        if groups.group_names and topology.group_names:
            allowed = "must be left out: the nodes of the graph name the groups"
            raise SpecError("topology.group_names", list(topology.group_names), allowed)
        update["topology"] = topology.model_copy(
            update={
                "file": None,
                "structure": "list",
                "groups": groups.as_lists(),
                "devices": groups.workers,
                "group_names": topology.group_names or groups.group_names,
            }
        )
    if isinstance(radio, LinkRadio) and isinstance(radio.distances_m, str):
        hashes[DISTANCES] = _file_hash(radio.distances_m, DISTANCES)
        update["radio"] = radio.model_copy(update={"distances_m": read_distances(Path(radio.distances_m))})
    if not update:
        return spec
    found = spec.model_copy(update=update | {"hashes": {**_hashes_of_other_files(spec.hashes), **hashes}})
    for unused in unused_keys(found):  # some keys have an effect in some trees only
        raise SpecError(*unused)
    return found


def read_distances(path: Path) -> tuple[float, ...]:
    """A tuple of distances in metres from the text file ``path``, which has one number a line.

    Raises:
        SpecError: it cannot be read, or holds something else.
    """
    place = f"{DISTANCES}: {path.name}"
    lines = read_text(path, place=DISTANCES).split()
    return tuple(
        _checked_distance(line, f"{place}: number {number}") for number, line in enumerate(lines, start=1)
    )


def _checked_distance(text: str, place: str) -> float:
    """The distance in metres that ``text`` gives; ``place``: where it stands, for the error.

    Raises:
        SpecError: it is no number, or out of range.
    """
    try:
        found = float(text)
    except ValueError:
        found = float("nan")
    if not REFERENCE_M <= found <= MOST_METRES:
        raise SpecError(place, text, f"must be a number from {REFERENCE_M:g} to {MOST_METRES:g} (metres)")
    return found


def _hashes_of_other_files(hashes: Mapping[str, str]) -> dict[str, str]:
    """The ``hashes`` by name of the input, without those of files that are read anew."""
    return {
        name: value for name, value in hashes.items() if name not in (TOPOLOGY_FILE, MOVES_FILE, DISTANCES)
    }


def _file_hash(file: str, place: str) -> str:
    """The SHA-256 of a file, in hexadecimal; errors are at ``place``."""
    return hashlib.sha256(read_bytes(Path(file), place=place)).hexdigest()
