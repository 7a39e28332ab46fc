"""The network in the spec of a run folder: its tree or groups, trust, and noise multipliers."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np
from pydantic import TypeAdapter, ValidationError

from sfumato.errors import SpecError
from sfumato.families import Family, family_of_topology
from sfumato.network import groups as grouping
from sfumato.network.groups import Groups, listed
from sfumato.network.moves import trees_over_time
from sfumato.network.tree import BoolArray, Tree, from_spec, with_trust
from sfumato.report.formatting import join_names, pluralise, ranges_text
from sfumato.report.results.spec_sections import noise_section_of, section_of
from sfumato.schedule.local_steps import training_aggregations
from sfumato.spec import topology as written
from sfumato.spec.topology import Topology, Trust
from sfumato.spec.training import Training

_TOPOLOGY: TypeAdapter[Topology] = TypeAdapter(Topology)
_OBSERVERS = {
    "cloud": "the cloud",
    "public": "the public",
    "edge": "an edge",
    "own-edge": "the own edge",
    "other-edge": "another edge",
    "peer": "a peer",
    "other-device": "another device",
    "device": "a device",
}
_NUMBERED = re.compile(r"\b([a-z][a-z0-9_-]*):([0-9]+)\b")  # a party without a title


@dataclass(frozen=True)
class GroupNetwork:
    """Overlapping groups.

    Attributes:
        groups: who is in which group in any round.
        trusted: whose masters may see raw updates ``[M]``.
        changes: the rounds (from 1) from which on the groups have other members.
    """

    groups: Groups
    trusted: BoolArray
    changes: tuple[int, ...] = ()


AT_STEPS = "every device, at every local step"
"""Who adds noise where it is added to gradients."""


class DeviceNoise(NamedTuple):
    """The noise that devices under one aggregator add.

    Attributes:
        multipliers: by aggregating tier, the global step's first; () where they add none to messages.
        at_steps: the multiplier of what each of them adds at every local step; 0 for none.
        numbers: of those that add noise, counted within the aggregator; ``None`` for all.
    """

    multipliers: tuple[float, ...] = ()
    at_steps: float = 0.0
    numbers: frozenset[int] | None = None

    @property
    def of_some(self) -> bool:
        """Whether any of the devices adds noise."""
        return bool(self.multipliers) or self.at_steps > 0

    @property
    def of_all(self) -> bool:
        """Whether every one of the devices adds noise."""
        return self.of_some and self.numbers is None

    def adds_in(self, tier: int) -> bool:
        """Whether any of the devices adds noise in steps that ``tier`` aggregates; 0: global ones."""
        return self.at_steps > 0 or (bool(self.multipliers) and self.multipliers[tier] > 0)

    def is_of(self, number: int) -> bool:
        """Whether the device with this number, counted within the aggregator, adds noise."""
        return self.of_some and (self.numbers is None or number in self.numbers)


@dataclass(frozen=True)
class Network:
    """The network of a run.

    Attributes:
        shape: a tree (also for a star), groups, or a sentence that says why it is not known.
        noise: multipliers by owner (``cloud``, ``edge:3``, ``edge:3/devices``, ``edge:3/devices:0-4,7``),
            the global step's first; owners whose multipliers are all zero add nothing and are left out.
        step_noise: the multiplier of what every device adds at every local step; 0 for none.
        over_air: whether devices' messages are added over the air, with the receivers' noise.
        family: of the topology, if its shape is known.
        trees: from which round (from 0) on, where devices move or trust changes; else empty.
        rounds: of the run.
        secure: names of the hops with secure aggregation.
        aggregating: tiers that aggregate at some step of a round; 0, the cloud's global step, is always among
            them. Noise for the steps of other tiers is never added.
    """

    shape: Tree | GroupNetwork | str
    noise: Mapping[str, tuple[float, ...]]
    over_air: bool = False
    family: Family | None = None
    trees: tuple[tuple[int, Tree], ...] = ()
    rounds: int = 0
    secure: frozenset[str] = frozenset()
    step_noise: float = 0.0
    aggregating: tuple[int, ...] = (0,)

    @property
    def has_noise(self) -> bool:
        """Whether any party adds noise of its own; the receivers' noise over the air is not meant."""
        return bool(self.noise) or self.step_noise > 0

    @property
    def device_word(self) -> str:
        """What a device is called: "worker" in overlapping groups, "site" in a star with names."""
        if isinstance(self.shape, GroupNetwork):
            return "worker"
        return "site" if isinstance(self.shape, Tree) and self.shape.device_names else "device"

    def titled(self, name: str) -> str:
        """A party's name, or several joined by commas, with the titles that the topology gives."""
        if isinstance(self.shape, str):
            return name
        return (self.shape if isinstance(self.shape, Tree) else self.shape.groups).titled(name)

    def adds_noise(self, owner: str) -> bool:
        """Whether the aggregator ``owner`` adds any noise."""
        return owner in self.noise

    def adds_noise_in(self, owner: str, tier: int) -> bool:
        """Whether the aggregator ``owner`` adds noise in steps that ``tier`` aggregates; 0: global ones."""
        return self.adds_noise(owner) and self.noise[owner][tier] > 0

    def is_trusted(self, observer: str) -> bool:
        """Whether the aggregator ``observer`` is ever trusted with raw updates; False for any other party."""
        return any(observer in names for _, names in self.trusted_by_round)

    @cached_property
    def trusted_by_round(self) -> list[tuple[int, list[str]]]:
        """Names of trusted aggregators by the round (from 1) from which on they are; [] without a shape."""
        match self.shape:
            case Tree() as tree:
                return [(first + 1, _trusted_in(one)) for first, one in self.trees or ((0, tree),)]
            case GroupNetwork() as grouped:
                return [(1, [f"master:{group}" for group in np.flatnonzero(grouped.trusted)])]
            case _:
                return []

    def noise_of_devices(self, above: str) -> DeviceNoise:
        """The noise that the devices under the aggregator ``above`` add."""
        if self.step_noise:
            return DeviceNoise(at_steps=self.step_noise)
        return self._noise_by_devices.get(above, DeviceNoise())

    @cached_property
    def _noise_by_devices(self) -> dict[str, DeviceNoise]:
        """The noise of devices, by the aggregator that they are under."""
        found = {}
        for owner, multipliers in self.noise.items():
            above, slash, devices = owner.partition("/devices")
            if slash:
                numbers = _numbers_in(devices[1:]) if devices else None
                found[above] = DeviceNoise(multipliers, numbers=numbers)
        return found


def _trusted_in(tree: Tree) -> list[str]:
    """Names of the aggregators of a tree that are trusted."""
    return [
        tree.node_name(t, int(i)) for t, tier in enumerate(tree.tiers) for i in np.flatnonzero(tier.trusted)
    ]


def read_network(spec: Mapping[str, Any]) -> Network:
    """The network (shape, noise, trust) that a resolved spec describes.

    ``spec``: as parsed from a run folder's spec.yaml; keys of older versions may be missing.
    """
    shape = _shape(spec)
    family = None if isinstance(shape, str) else _family(spec)
    hops = section_of(spec, "transport")
    on_air = "air" in hops.values()
    secure = frozenset(hop for hop, how in hops.items() if how == "secure-aggregation")
    rounds = section_of(spec, "training").get("rounds")
    if isinstance(shape, Tree) and isinstance(rounds, int):
        trees = _trees(spec, shape, rounds)
        tiers = _aggregating(section_of(spec, "training"), shape)
        return Network(shape, _noise(spec), on_air, family, trees, rounds, secure, _step_noise(spec), tiers)
    return Network(shape, _noise(spec), on_air, family, secure=secure, step_noise=_step_noise(spec))


def parties_in_words(names: str) -> str:
    """Names of parties, joined by commas or in a text, as drawings name them: "edge 0" for ``edge:0``."""
    return _NUMBERED.sub(r"\1 \2", names)


def towards_in_words(observer: str) -> str:
    """The phrase that follows an ε in a sentence for ``observer``: "towards the cloud"; also for kinds of
    observers, such as ``own-edge``.
    """
    return f"towards {_OBSERVERS.get(observer, parties_in_words(observer))}"


def owner_in_words(owner: str) -> str:
    """The owner of a noise source in words: ``edge:3/devices:0-4`` is "devices 0-4 under edge 3"."""
    party, _, devices = owner.partition("/")
    above = "the cloud" if party == "cloud" else parties_in_words(party)
    if not devices:
        return above
    numbers = devices.partition(":")[2]
    return f"devices {numbers} under {above}" if numbers else f"every device under {above}"


def owners_in_words(owners: Sequence[str], most: int = 4) -> str:
    """The owners of noise sources in words, those of one kind by their numbers: "every device under edges
    0–9".

    ``most``: how many kinds and names are listed.
    """
    numbers: dict[tuple[str, str], list[int]] = {}  # by the kind of the party, and "/devices" or ""
    said: list[str] = []
    for owner in owners:
        above, slash, devices = owner.partition("/devices")
        if (found := _NUMBERED.fullmatch(above)) and not devices:
            numbers.setdefault((found[1], slash), []).append(int(found[2]))
        else:
            said.append(owner_in_words(owner))
    for (kind, devices), alike in numbers.items():
        parties = f"{pluralise(kind, len(alike))} {ranges_text(sorted(alike))}"
        said.append(f"every device under {parties}" if devices else parties)
    return join_names(said, most)


def _aggregating(training: Mapping[str, Any], tree: Tree) -> tuple[int, ...]:
    """The tiers of ``tree`` that aggregate in a round of the section ``training`` of a resolved spec."""
    keys = ("local_steps", "aggregate_every", "edge_every", "edge_at_global")
    stated = Training.model_construct(**{key: training.get(key) for key in keys})
    edges = tree.tiers[-1].size
    return tuple(sorted({each.tier for each in training_aggregations(stated, tree.depth, edges)}))


def _trees(spec: Mapping[str, Any], tree: Tree, rounds: int) -> tuple[tuple[int, Tree], ...]:
    """(first round from 0, tree) of each era of a resolved spec; () where the tree never changes."""
    topology = _TOPOLOGY.validate_python(spec["topology"])
    trust = Trust.model_validate(spec.get("trust") or {})
    moves = topology.moves if isinstance(topology, written.TreeTopology) else None
    trace = () if moves is None or moves.trace is None else moves.trace
    if not trace and trust.from_ is None:
        return ()
    found = trees_over_time(tree, trace, trust, rounds=rounds, least=(1,) * tree.leaf_count)
    return found if len(found) > 1 else ()


def _shape(spec: Mapping[str, Any]) -> Tree | GroupNetwork | str:
    """The tree or the groups of a resolved spec.

    Where its topology is not known or not valid, a sentence that says so.
    """
    try:
        topology = _TOPOLOGY.validate_python(spec["topology"])
        trust, seed = Trust.model_validate(spec.get("trust") or {}), int(spec.get("seed", 0))
        family = _family(spec)
        assert family is not None  # the topology is one of those
        return family.shape(topology, trust, seed)
    except SpecError as error:
        return f"The topology is not drawn: {error}."
    except ValidationError as error:
        return f"The topology is not drawn: {error.errors()[0]['msg']}."


def _family(spec: Mapping[str, Any]) -> Family | None:
    """The family of protocols of the spec's topology; ``None`` where its kind is not known."""
    return family_of_topology(section_of(spec, "topology").get("kind"))


def tree_of_resolved_spec(
    topology: written.StarTopology | written.TreeTopology, trust: Trust, seed: int
) -> Tree:
    """The tree that a resolved spec describes, with trusted aggregators marked.

    ``seed``: of the run, for trust that is drawn.
    """
    return with_trust(from_spec(topology), trust, seed=seed)


def group_shape(topology: written.GroupTopology, trust: Trust, seed: int) -> GroupNetwork:
    """The groups that a resolved spec describes, and which masters are trusted.

    Args:
        topology: section of the spec.
        trust: section of the spec.
        seed: of the spec, by which a share of trusted masters is drawn.
    """
    groups = grouping.named(_groups(topology), topology.group_names, topology.worker_names)
    later = [listed(era.groups, groups.workers) for era in topology.eras]
    changes = tuple(era.from_round for era in topology.eras)
    trusted = grouping.trusted_masters(groups, trust, seed=seed)
    return GroupNetwork(grouping.union_of([groups, *later]), trusted, changes)


def _groups(topology: written.GroupTopology) -> Groups:
    """The groups that a resolved spec describes: listed, or by a rule that needs no data."""
    count, workers = topology.groups, topology.devices
    if isinstance(count, tuple):
        return listed(count, workers)
    if workers is not None and topology.structure == "global":
        return grouping.all_together(workers)
    rules = {"clusters": grouping.clusters, "ring": grouping.ring, "string": grouping.string}
    if workers is None or count is None or topology.structure not in rules:
        why = "the groups depend on data and are not listed"
        raise SpecError("topology.structure", topology.structure, why)
    return rules[topology.structure](workers, count)


def _noise(spec: Mapping[str, Any]) -> dict[str, tuple[float, ...]]:
    """Owner of each noise source, such as ``edge:3/devices``, to its noise multipliers by aggregating tier.

    Owners that add none are left out; empty for a spec without sources.
    """
    sources = noise_section_of(spec).get("sources", ())
    return {
        str(owner): tuple(float(m) for m in source["multipliers"])
        for source in sources
        for owner in source["owners"]
        if any(float(m) > 0 for m in source["multipliers"])
    }


def _step_noise(spec: Mapping[str, Any]) -> float:
    """The multiplier of the noise that every device adds at every local step; 0 where none does."""
    noise = noise_section_of(spec)
    return float(noise["multiplier"]) if noise.get("at") == "step" else 0.0


def _numbers_in(listed: str) -> frozenset[int]:
    """The numbers in a list such as ``0-4,7``."""
    spans = [span.partition("-") for span in listed.split(",")]
    return frozenset(n for first, _, last in spans for n in range(int(first), int(last or first) + 1))
