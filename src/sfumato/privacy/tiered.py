"""The ledger of a tree: what is noised where in a round, and who sees which sums of it.

The facts are arrays a tier (``StepFacts``), so a million devices under a thousand edges are a
thousand numbers. What a coalition sees is a linear map of the noised messages: at a step where the
nodes of tier ``a`` aggregate, every node at or below tier ``a`` on the way receives its children's
averages, and everybody under a tier-``a`` node receives that node's average.

Two bounds for a unit ``u`` and a coalition ``o`` (docs/accounting.md derives both):

*flow*: every aggregation of ``u``'s messages is charged, at the finest sum of it that ``o`` sees, or,
where ``o`` sees none, at the average that goes to ``u``'s own subtree (an ancestor of what ``o`` sees
later, as devices start from it). Only ``u``'s own contribution counts.

*cut*: only what ``o`` sees is charged. Aggregations hidden from ``o`` reach it summed up in the next
one that it sees; the devices that started from a hidden average count with ``2 a_j C_j``. The noise of a
hidden aggregation went into those devices' inputs, so what they send may cancel it: only the noise that is
added at the seen aggregation itself counts.

Noise that a member of ``o`` added, or that entered a sum the member saw, protects nobody: it is taken off.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any, Literal

import numpy as np
import numpy.typing as npt

from sfumato.privacy.accountant import Neighbours
from sfumato.privacy.guarantee import Bound, judge
from sfumato.privacy.release import Draw, Exposure, Release

FloatArray = npt.NDArray[np.float64]
IntArray = npt.NDArray[np.int64]


@dataclass(frozen=True)
class Party:
    """An observer: ``public``, an aggregator (``node``) or a device.

    Attributes:
        kind: which of the three.
        tier: of a node; 0 is the cloud.
        index: of a node within its tier, or of a device.
    """

    kind: Literal["public", "node", "device"]
    tier: int = 0
    index: int = 0


@dataclass(frozen=True)
class StepFacts:
    """One aggregation step of a round, the same in every round up to a common scale.

    Attributes:
        name: for people, e.g. ``edge aggregation at step 5``.
        tier: of the nodes that aggregate.
        bound: of one device's message, l2, for each leaf.
        device_std: noise every participating device adds to its message, for each leaf.
        node_std: noise every node adds to its average before it leaves, for each tier.
        fresh: whether the message repeats what hidden aggregations held, with noise of its own
            (the *resend* reading of H2FDP), for each leaf; otherwise it adds to them.
    """

    name: str
    tier: int
    bound: FloatArray
    device_std: FloatArray
    node_std: tuple[FloatArray, ...]
    fresh: npt.NDArray[np.bool_]


@dataclass(frozen=True)
class PairClass:
    """Equivalent ordered pairs of a unit and an observer, by one of them."""

    unit: int
    observer: Party
    relation: str
    stands_for: int


@dataclass(frozen=True)
class TieredLedger:
    """Facts of a tiered protocol.

    Attributes:
        names: of the tiers, the cloud's first.
        parents: for each tier, every node's parent in the tier above.
        devices: number of devices under each leaf.
        participants: devices of each leaf in a round: all, the fixed number, or the expected one.
        draw: how they are chosen, for each leaf (equal for all but ``population``).
        draw_seen_from: tier from which downward (towards the leaf) aggregators see the draw.
        steps: aggregations of one round, in order; the last one is the cloud's.
        rounds: how many rounds.
    """

    names: tuple[str, ...]
    parents: tuple[IntArray, ...]
    devices: IntArray
    participants: FloatArray
    draw_kind: Literal["all", "poisson", "fixed"]
    draw_rate: float
    draw_seen_from: int
    steps: tuple[StepFacts, ...]
    rounds: int
    _cache: dict[Any, Any] = field(default_factory=dict, init=False, compare=False, repr=False)

    # --- the tree -------------------------------------------------------------------------------

    @property
    def depth(self) -> int:
        """Number of tiers."""
        return len(self.parents)

    @cached_property
    def first_device(self) -> IntArray:
        """Each leaf's first device, and one past the last."""
        return np.concatenate([[0], np.cumsum(self.devices)]).astype(np.int64)

    @property
    def device_count(self) -> int:
        """Number of devices."""
        return int(self.first_device[-1])

    @cached_property
    def children(self) -> tuple[IntArray, ...]:
        """Nodes of the next tier under each node, for every tier but the last."""
        return tuple(
            np.bincount(self.parents[t + 1], minlength=len(self.parents[t])).astype(np.int64)
            for t in range(self.depth - 1)
        )

    @cached_property
    def paths(self) -> IntArray:
        """For every leaf, its ancestors from the cloud down to itself, ``[leaves, depth]``."""
        columns = [np.arange(len(self.devices))]
        for parents in reversed(self.parents[1:]):
            columns.append(parents[columns[-1]])
        return np.stack(columns[::-1], axis=1)

    def leaf_of(self, device: int) -> int:
        """The leaf above ``device``."""
        return int(np.searchsorted(self.first_device, device, side="right") - 1)

    def party_name(self, party: Party) -> str:
        """What the command line calls ``party``."""
        if party.kind == "public":
            return "public"
        if party.kind == "device":
            return f"device:{party.index}"
        return "cloud" if party.tier == 0 else f"{self.names[party.tier]}:{party.index}"

    # --- noise ----------------------------------------------------------------------------------

    @cached_property
    def _leaf_weight(self) -> FloatArray:
        """Weight of one device's message in its leaf's average."""
        return 1.0 / self.participants

    def _average_noise(self, step: int) -> tuple[FloatArray, ...]:
        """Variance of the noise in what each node sends on at ``step``, its own included, for each tier.

        Under Poisson participation no device is sure to be there, so devices' noise does not count here.
        """
        key = ("noise", step)
        if key not in self._cache:
            facts = self.steps[step]
            noisers = np.zeros_like(self.participants) if self.draw_kind == "poisson" else self.participants
            variance = facts.device_std**2 * noisers * self._leaf_weight**2 + facts.node_std[-1] ** 2
            out = [variance]
            for tier in range(self.depth - 2, -1, -1):
                share = np.bincount(
                    self.parents[tier + 1], weights=out[-1], minlength=len(self.parents[tier])
                )
                out.append(share / self.children[tier] ** 2 + facts.node_std[tier] ** 2)
            self._cache[key] = tuple(out[::-1])
        noise: tuple[FloatArray, ...] = self._cache[key]
        return noise

    def _variance(self, path: IntArray, number: int, tier: int, to: int) -> float:
        """Variance of the noise of step ``number`` up to ``path[tier]``, within the average of ``path[to]``.

        A unit that takes part adds its own noise, whoever else is drawn.
        """
        noise = float(self._average_noise(number)[tier][path[tier]])
        if self.draw_kind == "poisson":
            noise += float(self.steps[number].device_std[path[-1]] * self._unit_weight(path, tier)) ** 2
        return noise * self._weight_below(path, tier, to) ** 2

    def _weight_below(self, path: IntArray, tier: int, to: int) -> float:
        """Weight of the average of ``path[tier]`` in the average of its ancestor ``path[to]``."""
        weight = 1.0
        for t in range(to, tier):
            weight /= float(self.children[t][path[t]])
        return weight

    def _unit_weight(self, path: IntArray, to: int) -> float:
        """Weight of one device's message in the average of its ancestor ``path[to]``."""
        return float(self._leaf_weight[path[-1]]) * self._weight_below(path, self.depth - 1, to)

    # --- views ----------------------------------------------------------------------------------

    def exposures(self, unit: int, coalition: Sequence[Party]) -> tuple[Exposure, ...]:
        """The flow and the cut exposure of ``unit`` towards ``coalition``.

        Raises:
            ValueError: the coalition contains the unit, which knows its own data.
        """
        members = tuple(dict.fromkeys(coalition))
        if Party("device", 0, unit) in members:
            raise ValueError(f"coalition: got device:{unit}; must not contain the unit")
        path = self.paths[self.leaf_of(unit)]
        return self._flow(unit, path, members), self._cut(unit, path, members)

    def judge(self, exposure: Exposure, *, delta: float, neighbours: Neighbours) -> Bound:
        """The smallest sound bound that an exposure of this ledger gives."""
        return judge(exposure, delta=delta, neighbours=neighbours)

    def _deepest_on_path(self, path: IntArray, coalition: Sequence[Party], step: StepFacts) -> int | None:
        """Deepest tier at which a member of the coalition receives a message that holds the unit's."""
        tiers = [
            p.tier for p in coalition if p.kind == "node" and path[p.tier] == p.index and p.tier >= step.tier
        ]
        return max(tiers, default=None)

    def _sees(self, path: IntArray, coalition: Sequence[Party], step: StepFacts) -> bool:
        """Whether some member receives the average made at ``step`` above the unit."""
        if step.tier == 0:
            return True
        root = path[step.tier]
        for party in coalition:
            if party.kind == "device":
                if self.paths[self.leaf_of(party.index)][step.tier] == root:
                    return True
            elif (
                party.kind == "node" and party.tier >= step.tier and self._ancestor(party, step.tier) == root
            ):
                return True
        return False

    def _ancestor(self, node: Party, tier: int) -> int:
        index = node.index
        for t in range(node.tier, tier, -1):
            index = int(self.parents[t][index])
        return index

    def _release(self, unit: int, path: IntArray, coalition: Sequence[Party], number: int) -> Release:
        """The finest sum with the unit's message that is seen at a step, or exposed by flow."""
        facts = self.steps[number]
        leaf = path[-1]
        own, std = float(facts.bound[leaf]), float(facts.device_std[leaf])
        deepest = self._deepest_on_path(path, coalition, facts)
        if deepest == self.depth - 1:
            return Release(facts.name, "the device's own message", own, 0.0, std**2, False, self.rounds)
        tier = facts.tier if deepest is None else deepest + 1
        total = self._variance(path, number, tier, tier)
        variance = total - self._known_noise(path, coalition, number, tier)
        if variance < 1e-12 * total:  # what is left is rounding
            variance = 0.0
        node = self.party_name(Party("node", tier, int(path[tier])))
        view = "the global average" if tier == 0 else f"the average of {node}"
        own *= self._unit_weight(path, tier)
        return Release(facts.name, view, own, 0.0, variance, self._is_standing(path, number), self.rounds)

    def _is_standing(self, path: IntArray, number: int) -> bool:
        """Whether the noise counted at step ``number`` is the same whether the unit is drawn or not.

        A fixed number of devices of a leaf always adds as much. Under Poisson participation no other
        device's noise is counted (it is as good as revealed, and independent of the unit's draw), so only
        noise of the unit's own matters: it is there when the unit is.
        """
        return self.draw_kind != "poisson" or not self.steps[number].device_std[path[-1]] > 0

    def _known_noise(self, path: IntArray, coalition: Sequence[Party], number: int, tier: int) -> float:
        """Variance, within the average of ``path[tier]``, of the noise that members know."""
        facts = self.steps[number]
        members = [
            p
            for p in coalition
            if p.kind == "node" and p.tier > tier and self._ancestor(p, tier) == path[tier]
        ]
        members = [p for p in members if path[p.tier] != p.index]
        covered = {(p.tier, p.index) for p in members}
        known = 0.0
        for party in members:
            if any((t, self._ancestor(party, t)) in covered for t in range(tier + 1, party.tier)):
                continue  # an ancestor that is a member too knows all of it
            known += (
                float(self._average_noise(number)[party.tier][party.index])
                * self._node_weight(party, tier) ** 2
            )
        if self.draw_kind == "poisson":
            return known  # no noise but the unit's own was counted for devices
        devices = Counter(self.leaf_of(p.index) for p in coalition if p.kind == "device")
        for leaf, count in devices.items():
            line = self.paths[leaf]
            if line[tier] != path[tier] or any((t, line[t]) in covered for t in range(tier + 1, self.depth)):
                continue
            # as many as may be drawn together, beside the unit
            drawn = min(float(count), self.participants[leaf] - (leaf == path[-1]))
            known += drawn * float(facts.device_std[leaf] * self._unit_weight(line, tier)) ** 2
        return known

    def _node_weight(self, node: Party, to: int) -> float:
        weight, index = 1.0, node.index
        for t in range(node.tier, to, -1):
            index = int(self.parents[t][index])
            weight /= float(self.children[t - 1][index])
        return weight

    def _draw(self, leaf: int, coalition: Sequence[Party]) -> Draw:
        """The draw of the unit's leaf, as ``coalition`` meets it.

        Members know that they were not drawn (or were, which leaves even less room for the unit): among the
        others the unit is one of fewer.
        """
        if self.draw_kind != "fixed":
            return Draw(self.draw_kind, self.draw_rate)
        devices, sample = int(self.devices[leaf]), round(float(self.participants[leaf]))
        members = sum(p.kind == "device" and self.leaf_of(p.index) == leaf for p in coalition)
        return Draw("fixed", sample / devices, devices - members, min(sample, devices - members))

    def _blind(self, path: IntArray, coalition: Sequence[Party]) -> bool:
        return not any(
            p.kind == "node" and p.tier >= self.draw_seen_from and path[p.tier] == p.index for p in coalition
        )

    def _exposure(
        self,
        bound: Literal["flow", "cut"],
        path: IntArray,
        coalition: Sequence[Party],
        releases: list[Release],
    ) -> Exposure:
        draw = self._draw(int(path[-1]), coalition)
        return Exposure(bound, tuple(releases), draw, self._blind(path, coalition), self.rounds)

    def _flow(self, unit: int, path: IntArray, coalition: Sequence[Party]) -> Exposure:
        releases = [self._release(unit, path, coalition, number) for number in range(len(self.steps))]
        return self._exposure("flow", path, coalition, releases)

    def _cut(self, unit: int, path: IntArray, coalition: Sequence[Party]) -> Exposure:
        releases: list[Release] = []
        hidden: list[int] = []
        for number, facts in enumerate(self.steps):
            if not self._sees(path, coalition, facts):
                hidden.append(number)
                continue
            release = self._release(unit, path, coalition, number)
            releases.append(
                self._with_hidden(release, path, coalition, number, hidden) if hidden else release
            )
            hidden = []
        return self._exposure("cut", path, coalition, releases)

    def _with_hidden(
        self, seen: Release, path: IntArray, coalition: Sequence[Party], number: int, hidden: list[int]
    ) -> Release:
        """``seen`` together with the hidden aggregations that it sums up, behind its own noise alone.

        Noise of a hidden aggregation is in the inputs of whoever started from it, so it is no shield for what
        they did then: with the hidden noise given, the sum moves by at most ``own + others``.
        """
        facts, leaf = self.steps[number], int(path[-1])
        deepest = self._deepest_on_path(path, coalition, facts)
        to = facts.tier if deepest is None else deepest + 1
        weight = self._unit_weight(path, to)
        fresh = bool(facts.fresh[leaf])
        own, others = seen.own, 0.0
        widest = self.depth
        # with Poisson participation more devices than expected may take part
        crowd = 1.0 / self.draw_rate if self.draw_kind == "poisson" else 1.0
        for earlier in hidden:
            step = self.steps[earlier]
            if widest < self.depth:
                others += self._influenced(path, step, widest, to, crowd, weight)
            if not fresh:
                own += float(step.bound[leaf]) * weight
            widest = min(widest, step.tier)
        last = facts
        if fresh:
            # the resent sum moves by what everybody did since the first hidden average
            pieces = self.steps[hidden[0]]
            last = StepFacts(
                facts.name, facts.tier, pieces.bound, facts.device_std, facts.node_std, facts.fresh
            )
        others += self._influenced(path, last, widest, to, crowd, weight)
        if fresh:  # nor by more than their whole messages
            others = min(others, self._influenced(path, facts, widest, to, crowd, weight))
        name = f"{seen.name} (with {len(hidden)} hidden before it)"
        return replace(seen, name=name, own=own, others=others)

    def _influenced(
        self, path: IntArray, step: StepFacts, widest: int, to: int, crowd: float, weight: float
    ) -> float:
        """Replace sensitivity of the others under ``path[widest]``, in the average of ``path[to]``."""
        top = max(widest, to)
        mass = self._weight_below(path, top, to) * crowd
        under = self.paths[:, top] == path[top]
        bound = float(step.bound[under].max())
        return 2.0 * bound * max(0.0, mass - weight)

    # --- classes of pairs -----------------------------------------------------------------------

    @cached_property
    def _orbits(self) -> tuple[IntArray, ...]:
        """A number for every node, equal only where an automorphism of the tree maps one to the other."""
        below: list[list[Any]] = []
        facts = [
            (
                int(n),
                float(p),
                *((float(s.bound[i]), float(s.device_std[i]), bool(s.fresh[i])) for s in self.steps),
            )
            for i, (n, p) in enumerate(zip(self.devices, self.participants, strict=True))
        ]
        keys: dict[Any, int] = {}

        def number(key: Any) -> int:
            return keys.setdefault(key, len(keys))

        current = [
            number((fact, tuple(float(s.node_std[-1][i]) for s in self.steps)))
            for i, fact in enumerate(facts)
        ]
        below.append(current)
        for tier in range(self.depth - 2, -1, -1):
            groups: list[list[int]] = [[] for _ in self.parents[tier]]
            for child, parent in enumerate(self.parents[tier + 1]):
                groups[int(parent)].append(current[child])
            current = [
                number((tier, tuple(sorted(group)), tuple(float(s.node_std[tier][i]) for s in self.steps)))
                for i, group in enumerate(groups)
            ]
            below.append(current)
        subtree = below[::-1]
        paths: dict[Any, int] = {}
        orbits: list[IntArray] = []
        for tier, numbers in enumerate(subtree):
            above = orbits[-1][self.parents[tier]] if tier else np.zeros(1, dtype=np.int64)
            rows = [
                paths.setdefault((tier, int(a), n), len(paths)) for a, n in zip(above, numbers, strict=True)
            ]
            orbits.append(np.array(rows, dtype=np.int64))
        return tuple(orbits)

    def to_dict(self) -> dict[str, Any]:
        """The facts as JSON: enough to recompute every epsilon without this library (docs/accounting.md)."""
        return {
            "kind": "tiered",
            "rounds": self.rounds,
            "tiers": [
                {"name": name, "parents": parents.tolist()}
                for name, parents in zip(self.names, self.parents, strict=True)
            ],
            "devices_per_leaf": self.devices.tolist(),
            "participants_per_leaf": self.participants.tolist(),
            "draw": {
                "kind": self.draw_kind,
                "rate": self.draw_rate,
                "seen_by": f"{self.names[self.draw_seen_from]} of the device",
            },
            "steps": [
                {
                    "name": step.name,
                    "aggregating_tier": step.tier,
                    "message_bound_per_leaf": step.bound.tolist(),
                    "device_noise_std_per_leaf": step.device_std.tolist(),
                    "node_noise_std": [std.tolist() for std in step.node_std],
                    "repeats_hidden_steps_per_leaf": step.fresh.tolist(),
                }
                for step in self.steps
            ],
        }

    @property
    def leaf_orbits(self) -> IntArray:
        """A number for every leaf, equal only where their devices are interchangeable."""
        return self._orbits[-1]

    def after(self, rounds: int) -> TieredLedger:
        """The ledger of the first ``rounds`` rounds."""
        return replace(self, rounds=rounds)

    def pair_classes(self, unit: int | None = None) -> Iterator[PairClass]:
        """One representative of every class of equivalent ordered pairs; ``stands_for`` adds up to all pairs.

        Observers are every aggregator, the public and every other device. With ``unit``, only the pairs of
        that one device.
        """
        if unit is not None:
            yield from self._pairs_of(unit, units=1)
            return
        leaf_orbits = self.leaf_orbits
        _, firsts = np.unique(leaf_orbits, return_index=True)
        for leaf in np.sort(firsts):
            units = int(self.devices[leaf_orbits == leaf_orbits[leaf]].sum())
            yield from self._pairs_of(int(self.first_device[leaf]), units)

    def _pairs_of(self, unit: int, units: int) -> Iterator[PairClass]:
        leaf = self.leaf_of(unit)
        path = self.paths[leaf]
        yield PairClass(unit, Party("public"), "public", units)
        for tier in range(self.depth):
            relation = "cloud" if tier == 0 else f"own {self.names[tier]}"
            yield PairClass(unit, Party("node", tier, int(path[tier])), relation, units)
        if self.devices[leaf] > 1:
            first, peers = int(self.first_device[leaf]), int(self.devices[leaf] - 1)
            peer = first + 1 if unit == first else first
            yield PairClass(unit, Party("device", 0, peer), "peer", units * peers)
        for common in range(self.depth - 1):
            yield from self._elsewhere(unit, path, common, units)

    def _elsewhere(self, unit: int, path: IntArray, common: int, units: int) -> Iterator[PairClass]:
        """Observers whose lowest common ancestor with the unit is ``path[common]``."""
        place = (
            "elsewhere" if common == 0 else f"in another {self.names[common + 1]} of its {self.names[common]}"
        )
        for tier in range(common + 1, self.depth):
            ancestors = np.arange(len(self.parents[tier]))
            for t in range(tier, common + 1, -1):
                ancestors = self.parents[t][ancestors]
            siblings = self.parents[common + 1][ancestors] == path[common]
            nodes = np.flatnonzero(siblings & (ancestors != path[common + 1]))
            orbits = self._orbits[tier][nodes]
            for orbit in np.unique(orbits):
                alike = nodes[orbits == orbit]
                yield PairClass(
                    unit,
                    Party("node", tier, int(alike[0])),
                    f"{self.names[tier]} {place}",
                    units * len(alike),
                )
                if tier == self.depth - 1:
                    first = int(self.first_device[alike[0]])
                    count = int(self.devices[alike].sum())
                    yield PairClass(unit, Party("device", 0, first), f"device {place}", units * count)
