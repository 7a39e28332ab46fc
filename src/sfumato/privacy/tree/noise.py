"""How much noise there is in a sum of a tree that a coalition does not know.

Noise that a member of the coalition added, or that entered a sum the member saw, protects nobody: it is taken
off. Of devices' noise only as much is counted as is there whoever takes part.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import numpy.typing as npt

from sfumato.privacy.observers import Party
from sfumato.privacy.tree.facts import TreeFacts

FloatArray = npt.NDArray[np.float64]
IntArray = npt.NDArray[np.int64]


@dataclass(frozen=True)
class TreeNoise:
    """Least variances, a coordinate.

    Attributes:
        facts: of the tree.
    """

    facts: TreeFacts

    @cached_property
    def sent(self) -> tuple[tuple[FloatArray, ...], ...]:
        """In what each node sends on, its own included: for each step and tier."""
        return tuple(self._sent(number) for number in range(len(self.facts.steps)))

    def _sent(self, number: int) -> tuple[FloatArray, ...]:
        facts, step = self.facts, self.facts.steps[number]
        devices = (
            facts.classes.least_noise(step.device_std, facts.min_contributors) / facts.largest_denominators**2
        )
        out = [devices + step.channel(facts.depth - 1) + step.node_std[-1] ** 2]
        for tier in range(facts.depth - 2, -1, -1):
            share = np.bincount(facts.parents[tier + 1], weights=out[-1], minlength=len(facts.parents[tier]))
            received = share / facts.children[tier] ** 2 + step.channel(tier)
            out.append(received + step.node_std[tier] ** 2)
        return tuple(out[::-1])

    def variance_unknown_to(
        self,
        unit: int,
        coalition: Sequence[Party],
        number: int,
        tier: int,
        sent: bool,
        present: bool = True,
    ) -> float:
        """Variance, in the average of the node of ``tier`` above ``unit``, of the noise that no member knows.

        All noise in what a member off the path sends is known, as is what member devices add.

        Args:
            unit: the device.
            coalition: who pools knowledge.
            number: of the aggregation.
            tier: whose average.
            sent: with the node's own noise, or as it is received.
            present: whether the unit sends at this aggregation. If not, its own noise is missing, and all
                noise of its leaf where leaves may send nothing.
        """
        facts, step, out = self.facts, self.facts.steps[number], self.sent[number]
        path = facts.paths[facts.leaf_of(unit)]
        silent = not present and not facts.all_nodes_always_send
        alone = float(facts.class_variance[number][facts.class_of(unit)]) if present else 0.0
        if facts.rounds_after_noise and alone > 0:
            return alone * facts.unit_weight(path, tier) ** 2
        senders = facts.known_senders(coalition, step)
        known = {(t, i) for t, i in senders if t > tier and path[t] != i}
        members = Counter(facts.class_of(p.index) for p in coalition if p.kind == "device")
        leaves = {int(facts.classes.leaf[number]) for number in members} | {int(path[-1])}
        changed: dict[int, float] = {}  # what the nodes of the tier at hand send, where members know of it
        for t in range(facts.depth - 1, tier - 1, -1):
            received: dict[int, float] = {}
            if t == facts.depth - 1:
                for leaf in leaves:
                    mine = facts.class_of(unit) if leaf == path[-1] else None
                    received[leaf] = self._of_devices(number, leaf, mine, members, present=present)
            else:
                for parent in {int(facts.parents[t + 1][child]) for child in changed}:
                    first, last = facts.first_child[t][parent : parent + 2].tolist()
                    always = float(facts.all_nodes_always_send)  # else others may have nothing
                    values = out[t + 1][first:last] * always
                    for child, value in changed.items():
                        if first <= child < last and (facts.all_nodes_always_send or child == path[t + 1]):
                            values[child - first] = value
                    received[parent] = float(values.sum()) / (last - first) ** 2
            if t == tier and not sent:
                return received[int(path[t])] + step.channel_of(t, int(path[t]))
            changed = {
                i: value + step.channel_of(t, i) + float(step.node_std[t][i]) ** 2
                for i, value in received.items()
            }
            changed |= {i: 0.0 for level, i in known if level == t}
            if silent and t == facts.depth - 1:
                changed[int(path[-1])] = 0.0
        return changed[int(path[tier])]

    def variance_if_drawn(
        self, path: IntArray, coalition: Sequence[Party], number: int, tier: int
    ) -> FloatArray:
        """Variance that a drawn device of each class adds to the average of ``path[tier]``, ``[C]``.

        Nothing where a member off the path sends it on; nor in the unit's leaf, if its aggregator is a member
        and has members among the senders: few of them take the masks off in a small session.

        Args:
            path: of the unit's leaf.
            coalition: who pools knowledge.
            number: of the aggregation.
            tier: whose average.
        """
        facts, last, mine = self.facts, self.facts.depth - 1, int(path[-1])
        weight = np.where(
            np.arange(len(facts.paths)) == mine, facts.leaf_weight, 1 / facts.largest_denominators
        )
        for t in range(tier, last):
            weight = weight / facts.children[t][facts.paths[:, t]]
        counts = facts.paths[:, tier] == path[tier]
        for t, i in facts.known_senders(coalition, facts.steps[number]):
            if t > tier and path[t] != i:
                counts &= facts.paths[:, t] != i
        inside = any(p.kind == "device" and facts.leaf_of(p.index) == mine for p in coalition)
        if inside and Party("node", last, mine) in coalition:
            counts[mine] = False
        leaf = facts.classes.leaf
        added: FloatArray = facts.class_variance[number] * (weight**2 * counts)[leaf]
        return added

    def _of_devices(
        self, number: int, leaf: int, unit: int | None, members: Counter[int], *, present: bool
    ) -> float:
        """Least variance of devices' noise in the average of ``leaf`` that nobody in the coalition knows.

        Members fill the cohort first, then the quietest others; a unit that takes part adds its own noise.
        Where denominators depend on who is drawn, another leaf divides its devices' noise by the largest. The
        unit's own leaf divides the unit's message by the same, so there the smallest is the worst.

        Args:
            number: of the aggregation.
            leaf: whose average.
            unit: class of the unit, where it is under this leaf.
            members: devices of each class that belong to the coalition.
            present: whether the unit sends; if not, its noise is not there either.
        """
        classes, variance = self.facts.classes, self.facts.class_variance[number]
        alike = classes.of_leaf(leaf)
        left, total = int(self.facts.min_contributors[leaf]), 0.0
        sends = unit is not None and present
        if unit is not None and sends:
            left, total = left - 1, float(variance[unit])
        left -= sum(members[c] for c in alike)
        for c in sorted(alike, key=lambda c: float(variance[c])):
            if left <= 0:
                break
            taken = min(left, int(classes.count[c]) - members[c] - (c == unit))
            left, total = left - taken, total + taken * float(variance[c])
        denominators = 1.0 / self.facts.leaf_weight if sends else self.facts.largest_denominators
        return total / float(denominators[leaf]) ** 2
