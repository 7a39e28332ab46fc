"""What all parties of a deployed tree know and agree on before the first message.

What terms of other topologies have too is in `common_terms`.
"""

from __future__ import annotations

import secrets
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, cast

import numpy as np
import numpy.typing as npt

from sfumato.deployment.common_terms import CommonTerms
from sfumato.deployment.messages import RoundPosition
from sfumato.deployment.refusals import require_deployable
from sfumato.privacy.observers import Party
from sfumato.schedule.base import Plan
from sfumato.schedule.integer_grid import IntegerGrid, integer_grid_of, message_lengths
from sfumato.schedule.participation import threshold_of
from sfumato.schedule.tree import TreePlan
from sfumato.secure_aggregation.quantisation import QuantisationPlan
from sfumato.wire.errors import OutOfOrderMessageError

KEY_DIGITS = 32
"""So many digits of a key, or of a session, are compared by people: 128 bits."""


def new_label(name: str) -> str:
    """A label for a run of the spec of that name, which no other run has."""
    return f"{name}/{secrets.token_hex(16)}"


@dataclass(frozen=True, eq=False)
class DeploymentTerms(CommonTerms):
    """The terms of one run of a tree. Parties are numbered: devices first, then the cloud, then the edges.

    The attributes are those of `CommonTerms`.
    """

    plan: TreePlan

    @staticmethod
    def deployable(plan: Plan, parameters: int) -> TreePlan:
        """``plan``, if its parties can be real; see `require_deployable`."""
        return require_deployable(plan, parameters)

    @staticmethod
    def aggregators_of(plan: Plan) -> int:
        """How many aggregators there are."""
        return sum(tier.size for tier in cast(TreePlan, plan).tree.tiers)

    def _resolved(self) -> Iterator[npt.NDArray[Any] | None]:
        """See `CommonTerms`."""
        plan, everybody = self.plan, np.arange(self.plan.tree.device_count, dtype=np.int64)
        yield from (self.examples, plan.tree.devices, plan.weights_of(everybody), plan.releases.batches.rates)
        for index, step in enumerate(plan.releases.steps):
            lengths = message_lengths(plan, index, everybody, self.parameters)
            yield from (lengths, plan.device_stds_of(index, everybody), *step.node_std)

    @property
    def cloud(self) -> int:
        """The number of the cloud."""
        return self.plan.tree.device_count

    def edge(self, index: int) -> int:
        """The number of an edge, where there are any."""
        return self.cloud + 1 + index

    def place(self, node: int) -> tuple[int, int]:
        """The tier and the index of an aggregator."""
        return (0, 0) if node == self.cloud else (1, node - self.cloud - 1)

    def _aggregator_name(self, node: int) -> str:
        """``edge:0``, ``cloud``."""
        return self.plan.tree.node_name(*self.place(node))

    def number_of(self, party: Party) -> int:
        """The number of an observer that is a device, an edge or the cloud."""
        if party.kind == "device":
            return party.index
        return self.cloud if party.tier == 0 else self.edge(party.index)

    def parent(self, party: int) -> int:
        """Whom a device or an edge answers to."""
        tree = self.plan.tree
        if party >= tree.device_count or tree.depth == 1:
            return self.cloud
        return self.edge(tree.leaf_of(party))

    @property
    def heads(self) -> tuple[int, ...]:
        """The cloud."""
        return (self.cloud,)

    def parents(self, party: int) -> tuple[int, ...]:
        """Whom a device or an edge answers to."""
        return (self.parent(party),)

    def children(self, node: int) -> Mapping[int, bytes]:
        """Whom an aggregator asks, and their keys."""
        tree = self.plan.tree
        if node == self.cloud and tree.depth > 1:
            numbers = [self.edge(index) for index in range(tree.leaf_count)]
        else:
            numbers = tree.devices_under(self.place(node)[1]).tolist()
        return {number: self.keys[number] for number in numbers}

    def is_masked(self, node: int) -> bool:
        """Whether an aggregator learns no more than the sum of its children.

        One child alone has nobody to hide among: it answers plainly, as `account` has it.
        """
        tier, _ = self.place(node)
        hops = self.plan.hops
        return bool(hops) and hops[tier] == "secure-aggregation" and len(self.children(node)) > 1

    @property
    def devices_may_be_lost(self) -> bool:
        """Whether the spec declares that devices drop out: only then the account does without their noise."""
        faults = self.plan.spec.faults
        return faults is not None and any(faults.drop_rates)

    def may_lose_children(self, node: int) -> bool:
        """Whether an aggregator goes on without a child that does not answer: a device that may be lost."""
        return self.devices_may_be_lost and self.place(node)[0] == self.plan.tree.depth - 1

    def fewest(self, node: int) -> int:
        """How many children of an aggregator must be in a sum under masks, at least: what `account` has.

        All, where none may be lost.
        """
        children = len(self.children(node))
        return threshold_of(self.plan.spec.faults, children) if self.may_lose_children(node) else children

    def colluders(self, node: int) -> int:
        """How many children may do anything together with an aggregator, so that masks still hide all but
        one sum: c = min(2t − n − 1, t − 2), with t = `fewest` of n; see `masked_hops`."""
        fewest = self.fewest(node)
        return min(2 * fewest - len(self.children(node)) - 1, fewest - 2)

    @property
    def last(self) -> int:
        """The index of the last aggregation of a round, which is the global one."""
        return len(self.plan.aggregations) - 1

    def at(self, number: int) -> RoundPosition:
        """The global aggregation of round ``number``."""
        return RoundPosition(number, self.last)

    def asked_in(self, number: int, node: int) -> RoundPosition:
        """The global aggregation of round ``number``: the cloud's."""
        return self.at(number)

    def round_after(self, last: RoundPosition | None) -> int:
        """The round that comes after another one; ``None``: the first."""
        return 0 if last is None else last.round + 1

    def require_turn(
        self, position: RoundPosition, last: RoundPosition | None, *, skips: bool = False
    ) -> None:
        """Refuse an aggregation that does not come right after ``last``; ``None`` is before the first.

        Args:
            position: of the aggregation.
            last: that was answered.
            skips: whether any later one will do: the party was lost meanwhile, and none was asked of it.

        Raises:
            OutOfOrderMessageError: another one is next, or the run is over.
        """
        expected = RoundPosition(0, 0)
        if last is not None:
            ends = last.aggregation == self.last
            expected = RoundPosition(last.round + ends, 0 if ends else last.aggregation + 1)
        rounds = self.plan.spec.training.rounds
        if expected.round >= rounds:
            raise OutOfOrderMessageError(f"{position}: the run has {expected.round:,} rounds, all answered")
        exists = position.round < rounds and position.aggregation <= self.last
        if position != expected and not (skips and exists and position > expected):
            raise OutOfOrderMessageError(f"{position}: comes too early; {expected} is next")

    def grid(self, position: RoundPosition) -> IntegerGrid:
        """The grid of an aggregation."""
        everybody = np.arange(self.plan.tree.device_count, dtype=np.int64)
        return integer_grid_of(self.plan, position.round, position.aggregation, everybody, self.parameters)

    def encoding(self, device: int, position: RoundPosition) -> tuple[float, QuantisationPlan] | None:
        """What a message of ``device`` is multiplied by, and how it is rounded and noised; ``None``: it has
        weight 0, and sends nothing, as `run` has it.
        """
        grid, plan, leaf = self.grid(position), self.plan, self.plan.tree.leaf_of(device)
        own = np.array([device], dtype=np.int64)
        bound = float(message_lengths(plan, position.aggregation, own, self.parameters)[0])
        if bound == 0:
            return None
        std = float(plan.device_stds_of(position.aggregation, own)[0])
        return float(grid.shares[leaf]), grid.device(leaf, bound, std)

    def noise_steps(self, node: int, position: RoundPosition) -> float:
        """The std of the noise that an aggregator adds to its sum, in steps of the grid; 0 for none."""
        tier, index = self.place(node)
        std = float(self.plan.releases.steps[position.aggregation].node_std[tier][index])
        grid = self.grid(position)
        return grid.node_steps(tier, index, std * grid.unit) if std else 0.0

    def noisy(self) -> npt.NDArray[np.bool_]:
        """Whether each party adds noise in any round, ``[parties]``."""
        plan, everybody = self.plan, np.arange(self.cloud, dtype=np.int64)
        steps = plan.releases.steps
        of_devices = [plan.device_stds_of(index, everybody) > 0 for index in range(len(steps))]
        of_nodes = [np.concatenate(step.node_std) > 0 for step in steps]
        return np.concatenate([np.any(of_devices, axis=0), np.any(of_nodes, axis=0)])
