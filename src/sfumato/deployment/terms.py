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
from sfumato.schedule.integer_grid import IntegerGrid, integer_grid_of
from sfumato.schedule.message_grid import message_lengths
from sfumato.schedule.participation import threshold_of
from sfumato.schedule.tree import TreePlan
from sfumato.secure_aggregation.quantisation import QuantisationPlan
from sfumato.wire.errors import OutOfOrderMessageError

KEY_DIGITS = 32
"""So many digits of a key, or of a session, are compared by people: 128 bits."""


def new_label(name: str) -> str:
    """A new label for a run of the spec called ``name``; no other run has the same."""
    return f"{name}/{secrets.token_hex(16)}"


@dataclass(frozen=True, eq=False)
class DeploymentTerms(CommonTerms):
    """The terms of one run of a tree. Parties are numbered: devices first, then the cloud, then the edges.

    The attributes are those of `CommonTerms`.
    """

    plan: TreePlan

    @staticmethod
    def deployable(plan: Plan, parameters: int) -> TreePlan:
        """``plan`` itself, after a check that it can be deployed; ``parameters``: M of its model.

        Raises:
            SpecError: it cannot be deployed; the message names the key.
            DataError: the data set is neither tabulated nor on this machine.
        """
        return require_deployable(plan, parameters)

    @staticmethod
    def aggregators_of(plan: Plan) -> int:
        """The number of aggregators in ``plan``, the cloud included."""
        return sum(tier.size for tier in cast(TreePlan, plan).tree.tiers)

    def _resolved(self) -> Iterator[npt.NDArray[Any] | None]:
        """Yield the arrays of figures that the plan was resolved to; see `CommonTerms`."""
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
        """The number in the terms of the edge with this index."""
        return self.cloud + 1 + index

    def place(self, node: int) -> tuple[int, int]:
        """The tier, and the index in it, of the aggregator with party number ``node``."""
        return (0, 0) if node == self.cloud else (1, node - self.cloud - 1)

    def _aggregator_name(self, node: int) -> str:
        """The name, such as ``edge:0`` or ``cloud``, of the aggregator with party number ``node``."""
        return self.plan.tree.node_name(*self.place(node))

    def number_of(self, party: Party) -> int:
        """The number of an observer that is a device, an edge or the cloud."""
        if party.kind == "device":
            return party.index
        return self.cloud if party.tier == 0 else self.edge(party.index)

    def parent(self, party: int) -> int:
        """The number of the aggregator that hears the answers of ``party``, a device or an edge by number."""
        tree = self.plan.tree
        if party >= tree.device_count or tree.depth == 1:
            return self.cloud
        return self.edge(tree.leaf_of(party))

    @property
    def heads(self) -> tuple[int, ...]:
        """The number of the cloud, as the only entry."""
        return (self.cloud,)

    def parents(self, party: int) -> tuple[int, ...]:
        """The number of the parent of ``party`` (number of a device or an edge), as the only entry."""
        return (self.parent(party),)

    def children(self, node: int) -> Mapping[int, bytes]:
        """The public keys, by number, of the parties that aggregator ``node`` asks."""
        tree = self.plan.tree
        if node == self.cloud and tree.depth > 1:
            numbers = [self.edge(index) for index in range(tree.leaf_count)]
        else:
            numbers = tree.devices_under(self.place(node)[1]).tolist()
        return {number: self.keys[number] for number in numbers}

    def is_masked(self, node: int) -> bool:
        """Whether aggregator ``node`` learns only the sum of its children's messages, by secure aggregation.

        False for a single child, whose message is the sum; `account` counts it so.
        """
        tier, _ = self.place(node)
        hops = self.plan.hops
        return bool(hops) and hops[tier] == "secure-aggregation" and len(self.children(node)) > 1

    @property
    def devices_may_be_lost(self) -> bool:
        """Whether the spec lets devices drop out; only then does the account not count on their noise."""
        faults = self.plan.spec.faults
        return faults is not None and any(faults.drop_rates)

    def may_lose_children(self, node: int) -> bool:
        """Whether aggregator ``node`` goes on without a device that does not answer.

        So it is where the spec declares that devices drop out, and only right above devices.
        """
        return self.devices_may_be_lost and self.place(node)[0] == self.plan.tree.depth - 1

    @property
    def devices_draw(self) -> bool:
        """Whether each device draws for itself whether it takes part in a round."""
        return self.plan.participants.kind == "poisson"

    def drawn_below(self, node: int) -> int | None:
        """The number of devices that aggregator ``node`` draws for a round; ``None`` where all take part."""
        tier, index = self.place(node)
        participants, tree = self.plan.participants, self.plan.tree
        if participants.kind != "fixed" or tier != tree.depth - 1:
            return None
        count = int(participants.drawn[index])
        return count if count < tree.devices[index] else None

    def fewest(self, node: int) -> int:
        """The least number of children in a masked sum of aggregator ``node``, as `account` has it.

        All of them, where none may be lost.
        """
        children = len(self.children(node))
        return threshold_of(self.plan.spec.faults, children) if self.may_lose_children(node) else children

    def colluders(self, node: int) -> int:
        """The most children that may collude with aggregator ``node`` while masks still hide all but one sum.

        c = min(2t − n − 1, t − 2), with t = `fewest` of n children; at least 0 where the hop `is_masked`; see
        `masked_hops`.
        """
        fewest = self.fewest(node)
        return min(2 * fewest - len(self.children(node)) - 1, fewest - 2)

    @property
    def last(self) -> int:
        """The index of the last aggregation of a round, which is the global one."""
        return len(self.plan.aggregations) - 1

    def at(self, number: int) -> RoundPosition:
        """The position of the global aggregation of round ``number``."""
        return RoundPosition(number, self.last)

    def asked_in(self, number: int, node: int) -> RoundPosition:
        """The position of the global aggregation of round ``number``; ``node`` makes no difference."""
        return self.at(number)

    def round_after(self, last: RoundPosition | None) -> int:
        """The number of the round after that of ``last``; ``None``: the first."""
        return 0 if last is None else last.round + 1

    def require_turn(
        self, position: RoundPosition, last: RoundPosition | None, *, skips: bool = False
    ) -> None:
        """Check that ``position`` comes right after ``last``.

        Args:
            position: of the aggregation.
            last: that was answered; ``None`` before the first.
            skips: whether any later one is allowed: the party was lost meanwhile, and not asked for those
                between.

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
        """The grid of an aggregation.

        Raises:
            SpecError: no grid is fine enough for the sums of this aggregation.
        """
        everybody = np.arange(self.plan.tree.device_count, dtype=np.int64)
        return integer_grid_of(self.plan, position.round, position.aggregation, everybody, self.parameters)

    def encoding(self, device: int, position: RoundPosition) -> tuple[float, QuantisationPlan] | None:
        """The factor that ``device`` multiplies a message by, and how it is rounded and noised.

        ``None``: its weight is 0, and it sends nothing, as in `run`.
        """
        grid, plan, leaf = self.grid(position), self.plan, self.plan.tree.leaf_of(device)
        own = np.array([device], dtype=np.int64)
        bound = float(message_lengths(plan, position.aggregation, own, self.parameters)[0])
        if bound == 0:
            return None
        std = float(plan.device_stds_of(position.aggregation, own)[0])
        return float(grid.shares[leaf]), grid.device_rounding(leaf, bound, std)

    def noise_steps(self, node: int, position: RoundPosition) -> float:
        """The std of the noise that aggregator ``node`` adds to its sum, in steps of the grid; 0 for none."""
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
