"""The noise in an average of a tree that a coalition does not know."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence

import numpy as np

from sfumato.verify import read
from sfumato.verify.comparison import ROUNDING
from sfumato.verify.draws import Draw
from sfumato.verify.parties import Party
from sfumato.verify.read import Array
from sfumato.verify.tree_structure import CheckedTreeStructure


class CheckedTreeNoise(CheckedTreeStructure):
    """A tree, and the noise in each of its averages that a coalition does not know."""

    def _variance_of_devices(
        self, step: int, leaf: int, unit: int | None, coalition: Sequence[Party]
    ) -> float:
        """Least variance of devices' noise in the average of a leaf that a coalition does not know.

        Args:
            step: index of the aggregation in the round.
            leaf: its index.
            unit: class of the unit if it sends in this leaf, else ``None``.
            coalition: whose members know their own noise.
        """
        variance = self.message_variance(step)
        members = Counter(self.class_of(i) for kind, _, i in coalition if kind == "device")
        alike = np.flatnonzero(self.class_leaf == leaf)
        left = int(self.sure[leaf]) - sum(members[int(c)] for c in alike) - (unit is not None)
        total = float(variance[unit]) if unit is not None else 0.0
        for c in sorted(alike, key=lambda c: float(variance[c])):
            taken = max(0, min(left, int(self.class_size[c]) - members[int(c)] - (c == unit)))
            left, total = left - taken, total + taken * float(variance[c])
        divisor = self.least_divisor if unit is not None else self.most_divisor
        return total / float(divisor[leaf]) ** 2

    def _variance_without_unit(self, step: int) -> Array:
        """`_variance_of_devices` of every leaf at ``step``, ``[leaves]``, with no unit and no coalition.

        Results are kept.
        """
        if step not in self._noise_cache:
            leaves = [self._variance_of_devices(step, leaf, None, ()) for leaf in range(len(self.devices))]
            self._noise_cache[step] = np.array(leaves)
        return self._noise_cache[step]

    def variance_unknown_to(
        self, step: int, unit: int, coalition: Sequence[Party], tier: int, sent: bool, present: bool = True
    ) -> Array:
        """Noise variance by owner (devices, aggregators, channel) that a coalition does not know, ``[3]``.

        It is that in the average of the unit's ancestor on ``tier``, at aggregation ``step``.

        Args:
            step: index of the aggregation in the round.
            unit: index of the device.
            coalition: who observes together.
            tier: of the ancestor.
            sent: whether to count the noise that this ancestor adds before it sends its average on.
            present: ``False`` to compute it as if the unit dropped out.
        """
        facts, path = self.steps[step], self.paths[self.leaf_of(unit)]
        alone = float(self.message_variance(step)[self.class_of(unit)]) if present else 0.0
        if self.ledger["rounded_after_noise"] and alone > 0:
            return np.array([alone * self.weight_in_average(self.leaf_of(unit), tier) ** 2, 0.0, 0.0])
        below = self._variance_in_leaf_averages(step, unit, coalition, present)
        for t in range(self.depth - 1, tier - 1, -1):
            if t < self.depth - 1:
                if not self.always_sent:
                    below *= (np.arange(len(below)) == path[t + 1])[:, None]
                sums = np.zeros((len(self.parents[t]), 3))
                np.add.at(sums, self.parents[t + 1], below)
                below = sums / (self.children[t] ** 2)[:, None]
            if facts["channel_noise_std"]:
                below[:, 2] += read.figures(facts["channel_noise_std"][t]) ** 2
            if t > tier or sent:
                below[:, 1] += np.array(facts["node_noise_std"][t]) ** 2
            if t == self.depth - 1 and not present and not self.always_sent:
                below[path[t]] = 0.0
            if t > tier:
                for level, index in self._nodes_with_known_average(step, coalition):
                    if level == t and path[t] != index:
                        below[index] = 0.0  # all that a member off the path sends is known
        return np.asarray(below[path[tier]])

    def _variance_in_leaf_averages(
        self, step: int, unit: int, coalition: Sequence[Party], present: bool
    ) -> Array:
        """Variance by owner in the average of every leaf at aggregation ``step``, ``[leaves, 3]``.

        Only what the coalition does not know counts; ``present``: the unit sends. Only devices' noise is in
        it yet.
        """
        mine = self.leaf_of(unit)
        below = np.zeros((len(self.devices), 3))
        below[:, 0] = self._variance_without_unit(step)
        for leaf in {mine, *(self.leaf_of(i) for kind, _, i in coalition if kind == "device")}:
            inside = self.class_of(unit) if leaf == mine and present else None
            below[leaf, 0] = self._variance_of_devices(step, leaf, inside, coalition)
        return below

    def noise_of_records(self, step: int, unit: int, coalition: Sequence[Party]) -> float:
        """Noise variance in what flow charges for a record of ``unit`` at aggregation ``step``.

        For clipped examples. Unlike for devices, noise counts here whatever its law is. ``coalition``: the
        observers.
        """
        tier, sent = self.finest_known_sum(step, unit, coalition)
        if tier == self.depth:
            return float(self.message_variance(step)[self.class_of(unit)])
        return float(self.variance_unknown_to(step, unit, coalition, tier, sent).sum())

    def _if_composed(self, noise: Array) -> Array:
        """``noise``, or zeros of its shape where the ledger says that its law cannot be composed."""
        return np.asarray(noise * ("noise_not_composed" not in self.ledger))

    def _draw_independent(self, step: int, leaf: int) -> bool:
        """Whether the noise counted in a leaf's average is the same whether or not the unit is drawn.

        ``step``: index of the aggregation in the round.
        """
        kind = self.ledger["draw"]["kind"]
        noises = self.message_variance(step)[self.class_leaf == leaf]
        if kind == "all" or self.steps[step]["tells_who_was_drawn"]:
            return bool(kind == "all")
        if kind == "poisson":
            return self.always_sent and int(self.sure[leaf]) == 0 and not noises.any()
        if not noises.any():
            return True
        constant = not self.ledger["denominator_depends_on_draw"] and bool((noises == noises[0]).all())
        return constant and int(self.sure[leaf]) == round(float(self.drawn[leaf]))

    def _variance_added_if_drawn(self, step: int, unit: int, coalition: Sequence[Party]) -> Array:
        """Variance, ``[classes]``, that a drawn device of each class adds to the charged sum of ``step``.

        0 for a class whose messages are not in that sum, or whose noise the coalition can take away.
        ``unit``: index of the device that the sum is charged for.
        """
        mine, (tier, _) = self.leaf_of(unit), self.finest_known_sum(step, unit, coalition)
        if tier == self.depth:
            return np.zeros(len(self.class_leaf))
        weight = 1 / self.most_divisor
        weight[mine] = 1 / self.least_divisor[mine]
        for t in range(tier, self.depth - 1):
            weight = weight / self.children[t][self.paths[:, t]]
        path = self.paths[mine]
        weight[self.paths[:, tier] != path[tier]] = 0.0
        for t, index in self._nodes_with_known_average(step, coalition):
            if t > tier and path[t] != index:
                weight[self.paths[:, t] == index] = 0.0  # all that a member off the path sends is known
        inside = any(kind == "device" and self.leaf_of(index) == mine for kind, _, index in coalition)
        if inside and ("node", self.depth - 1, int(path[-1])) in coalition:
            weight[mine] = 0.0  # few of them take the masks off
        return np.asarray(self.message_variance(step) * weight[self.class_leaf] ** 2)

    def _why_no_drawn_noise(self) -> str:
        """Why noise of others who may be drawn does not count, reasons with commas between; "" if it does."""
        ledger = self.ledger
        reasons = {
            "draws are not Poisson": ledger["draw"]["kind"] != "poisson" or ledger["draw"]["rate"] == 1,
            "devices may drop out": ledger["devices_may_drop_out"],
            "messages are rounded after their noise": ledger["rounded_after_noise"],
            "messages go over the air": ledger["hops"][self.depth - 1] == "air",
            "more than messages tells who was drawn": any(s["tells_who_was_drawn"] for s in self.steps),
            "the law of the noise is not composed": "noise_not_composed" in ledger,
        }
        return ", ".join(reason for reason, holds in reasons.items() if holds)

    def drawn_noise_problems(
        self, draw: Draw, steps: Sequence[int], unit: int, coalition: Sequence[Party]
    ) -> Iterator[str]:
        """Yield a line where a draw states more noise of others who may be drawn than the facts give.

        Args:
            draw: of a certificate.
            steps: the aggregations that its releases are of.
            unit: index of the device.
            coalition: the observers, whose own noise does not count.
        """
        if not draw.drawn_noise:
            return
        if why := self._why_no_drawn_noise():
            yield f"drawn noise: counts for nothing where {why}"
            return
        columns = [self._variance_added_if_drawn(step, unit, coalition) for step in steps]
        left = self.class_size.copy()
        left[self.class_of(unit)] -= 1
        for index in (index for kind, _, index in coalition if kind == "device"):
            left[self.class_of(index)] -= 1
        each = np.stack(columns, axis=1)
        for count, variances in draw.drawn_noise:
            alike = np.flatnonzero(np.isclose(each, variances, rtol=ROUNDING, atol=0.0).all(axis=1))
            there = left[alike]
            if count > there.sum():
                amounts = ", ".join(f"{v:.9g}" for v in variances)
                yield f"drawn noise: {count} others that add {amounts}; the facts give {there.sum()}"
            left[alike] -= np.clip(count - (np.cumsum(there) - there), 0, there)
