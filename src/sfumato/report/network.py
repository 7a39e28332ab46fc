"""The network in the spec of a run folder: its tree or groups, trust, and noise multipliers."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from pydantic import TypeAdapter, ValidationError

from sfumato.errors import SpecError
from sfumato.network.groups import Groups, all_together, clusters, listed, ring, string, trusted_masters
from sfumato.network.tree import BoolArray, Tree, from_spec
from sfumato.network.trust import with_trust
from sfumato.spec import topology as written
from sfumato.spec.topology import Topology, Trust

_TOPOLOGY: TypeAdapter[Topology] = TypeAdapter(Topology)


@dataclass(frozen=True)
class GroupNetwork:
    """Overlapping groups, and which of their masters may see raw updates ``[M]``."""

    groups: Groups
    trusted: BoolArray


@dataclass(frozen=True)
class Network:
    """The network of a run.

    Attributes:
        shape: a tree (also for a star), groups, or a sentence that says why it is not known.
        noise: multipliers by owner (``cloud``, ``edge:3``, ``edge:3/devices``), the global step's first;
            owners whose multipliers are all zero add nothing and are left out.
        over_air: whether devices' messages are added over the air, with the receivers' noise.
    """

    shape: Tree | GroupNetwork | str
    noise: Mapping[str, tuple[float, ...]]
    over_air: bool = False

    def adds_noise(self, owner: str) -> bool:
        """Whether ``owner`` adds any noise."""
        return owner in self.noise


def read_network(spec: Mapping[str, Any]) -> Network:
    """The network of a resolved spec."""
    transport = spec.get("transport") or {}
    return Network(_shape(spec), _noise(spec), isinstance(transport, dict) and "air" in transport.values())


def _shape(spec: Mapping[str, Any]) -> Tree | GroupNetwork | str:
    try:
        topology = _TOPOLOGY.validate_python(spec["topology"])
        trust, seed = Trust.model_validate(spec.get("trust") or {}), int(spec.get("seed", 0))
        if isinstance(topology, written.Groups):
            groups = _groups(topology)
            return GroupNetwork(groups, trusted_masters(groups, trust, seed=seed))
        return with_trust(from_spec(topology), trust, seed=seed)
    except SpecError as error:
        return f"The topology is not drawn: {error}."
    except ValidationError as error:
        return f"The topology is not drawn: {error.errors()[0]['msg']}."


def _groups(topology: written.Groups) -> Groups:
    """The groups that a resolved spec describes: listed, or by a rule that needs no data."""
    count, workers = topology.groups, topology.devices
    if isinstance(count, tuple):
        return listed(count, workers)
    if workers is not None and topology.structure == "global":
        return all_together(workers)
    rules = {"clusters": clusters, "ring": ring, "string": string}
    if workers is None or count is None or topology.structure not in rules:
        raise SpecError(
            "topology.structure", topology.structure, "the groups depend on data and are not listed"
        )
    return rules[topology.structure](workers, count)


def _noise(spec: Mapping[str, Any]) -> dict[str, tuple[float, ...]]:
    privacy = spec.get("privacy") or {}
    noise = privacy.get("noise") if isinstance(privacy, dict) else None
    sources = noise.get("sources", ()) if isinstance(noise, dict) else ()
    return {
        str(owner): tuple(float(m) for m in source["multipliers"])
        for source in sources
        for owner in source["owners"]
        if any(float(m) > 0 for m in source["multipliers"])
    }
