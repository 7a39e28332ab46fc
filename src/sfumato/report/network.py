"""The federation a run folder describes: its tree or groups, who is trusted, who adds noise."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from pydantic import TypeAdapter, ValidationError

from sfumato.errors import SpecError
from sfumato.federation.topology import Tree, from_spec
from sfumato.federation.trust import with_trust
from sfumato.spec.topology import Groups, Topology, Trust

_TOPOLOGY: TypeAdapter[Topology] = TypeAdapter(Topology)


@dataclass(frozen=True)
class GroupSet:
    """Overlapping groups: ``members[m]`` are the workers of group ``m``."""

    members: tuple[frozenset[int], ...]

    @property
    def workers(self) -> int:
        """Number of workers in any group."""
        return len(frozenset().union(*self.members))

    def of(self, worker: int) -> tuple[int, ...]:
        """The groups ``worker`` is in."""
        return tuple(m for m, members in enumerate(self.members) if worker in members)

    def shared(self) -> dict[tuple[int, int], int]:
        """Workers in common, for every two groups that have any."""
        pairs = ((a, b) for b in range(len(self.members)) for a in range(b))
        counts = {(a, b): len(self.members[a] & self.members[b]) for a, b in pairs}
        return {pair: count for pair, count in counts.items() if count}

    def distances(self, start: tuple[int, ...]) -> dict[int, int]:
        """Steps from the nearest group of ``start`` to every group within reach over shared workers."""
        links = self.shared()
        reached, frontier = dict.fromkeys(start, 0), list(start)
        while frontier:
            at = frontier.pop(0)
            for pair in links:
                if at in pair:
                    other = pair[0] + pair[1] - at
                    if other not in reached:
                        reached[other] = reached[at] + 1
                        frontier.append(other)
        return reached


@dataclass(frozen=True)
class Network:
    """What is known of the federation.

    Attributes:
        shape: a tree (a star is one), groups, or a sentence saying why neither is known here.
        noise: multipliers by owner (``cloud``, ``edge:3``, ``edge:3/devices``), the global step's first;
            owners whose multipliers are all zero add nothing and are left out.
    """

    shape: Tree | GroupSet | str
    noise: Mapping[str, tuple[float, ...]]

    def adds_noise(self, owner: str) -> bool:
        """Whether ``owner`` adds any noise."""
        return owner in self.noise


def read_network(spec: Mapping[str, Any]) -> Network:
    """The federation of a resolved spec."""
    return Network(_shape(spec), _noise(spec))


def _shape(spec: Mapping[str, Any]) -> Tree | GroupSet | str:
    try:
        topology = _TOPOLOGY.validate_python(spec["topology"])
        if isinstance(topology, Groups):
            return _groups(topology)
        trust = Trust.model_validate(spec.get("trust") or {})
        return with_trust(from_spec(topology), trust, seed=int(spec.get("seed", 0)))
    except SpecError as error:
        return f"The topology is not drawn: {error}."
    except ValidationError as error:
        return f"The topology is not drawn: {error.errors()[0]['msg']}."


def _groups(topology: Groups) -> GroupSet | str:
    groups, count = topology.groups, topology.devices
    if isinstance(groups, tuple):
        return GroupSet(tuple(frozenset(members) for members in groups))
    if topology.structure == "global" and count is not None:
        return GroupSet((frozenset(range(count)),))
    if groups is None or count is None or topology.structure not in ("clusters", "ring", "string"):
        return f"The groups are not drawn: the spec does not list them (structure {topology.structure})."
    size = count // groups
    overlap = 0 if topology.structure == "clusters" else 1
    wrap = topology.structure == "ring"
    return GroupSet(
        tuple(
            frozenset(w % count for w in range(m * size, (m + 1) * size + overlap) if wrap or w < count)
            for m in range(groups)
        )
    )


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
