"""What all parties of deployed groups know and agree on before the first message.

Aggregation m of a round is the release of group m. A worker answers all of its masters in a round, or none.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, cast

import numpy as np
import numpy.typing as npt

from sfumato.deployment.common_terms import CommonTerms
from sfumato.deployment.group_refusals import require_deployable_groups
from sfumato.deployment.messages import RoundPosition
from sfumato.privacy.observers import Party
from sfumato.schedule.base import Plan
from sfumato.schedule.groups import GroupPlan
from sfumato.schedule.integer_grid import IntegerGrid, group_integer_grid
from sfumato.secure_aggregation.quantisation import QuantisationPlan
from sfumato.wire.errors import OutOfOrderMessageError


@dataclass(frozen=True, eq=False)
class GroupTerms(CommonTerms):
    """The terms of one run of groups. Parties are numbered: workers first, then the masters of the groups.

    The attributes are those of `CommonTerms`.
    """

    plan: GroupPlan

    @staticmethod
    def deployable(plan: Plan, parameters: int) -> GroupPlan:
        """``plan`` itself, after a check that it can be deployed; ``parameters``: P of each model.

        Raises:
            SpecError: it cannot be deployed; the message names the key.
            DataError: the data set is neither tabulated nor on this machine.
        """
        return require_deployable_groups(plan, parameters)

    @staticmethod
    def aggregators_of(plan: Plan) -> int:
        """The number of masters in ``plan``."""
        return cast(GroupPlan, plan).groups.count

    def _resolved(self) -> Iterator[npt.NDArray[Any] | None]:
        """Yield the arrays of figures that the plan was resolved to; see `CommonTerms`."""
        plan = self.plan
        yield from (self.examples, plan.groups.members, plan.groups.offsets)
        yield from (
            plan.bounds,
            plan.noise_std(0),
            plan.trusted,
            plan.denominators,
            plan.releases.batches.rates,
        )

    def master(self, group: int) -> int:
        """The number in the terms of the master of ``group``."""
        return self.device_count + group

    def group(self, master: int) -> int:
        """The index of the group of the master with this number."""
        return master - self.device_count

    def _aggregator_name(self, node: int) -> str:
        """The name, such as ``master:0``, of the master with party number ``node``."""
        return f"master:{self.group(node)}"

    def number_of(self, party: Party) -> int:
        """The number of an observer that is a worker or a master."""
        return party.index if party.kind == "device" else self.master(party.index)

    @property
    def heads(self) -> tuple[int, ...]:
        """Party numbers of the masters of all groups, which have no parent."""
        return tuple(map(self.master, range(self.plan.groups.count)))

    def parents(self, party: int) -> tuple[int, ...]:
        """Party numbers of the masters of the groups of worker ``party``."""
        return tuple(self.master(group) for group in self.plan.groups.groups_of(party).tolist())

    def children(self, node: int) -> Mapping[int, bytes]:
        """The public keys of the workers of a group, by number; ``node``: party number of its master."""
        return {
            worker: self.keys[worker] for worker in self.plan.groups.members_of(self.group(node)).tolist()
        }

    def is_masked(self, node: int) -> bool:
        """Always false, whatever ``node``: secure aggregation in groups cannot be deployed."""
        return False

    def may_lose_children(self, node: int) -> bool:
        """Always false, whatever ``node``: every worker takes part in every round."""
        return False

    def merges_in(self, number: int) -> bool:
        """Whether workers start round ``number`` from the mean of their groups' models, or from each one."""
        return self.plan.by_interval or number % self.plan.merge_every == 0

    def asked_in(self, number: int, node: int) -> RoundPosition:
        """The position of the release of a master's group in round ``number`` (from 0): aggregation = group.

        ``node``: the master's party number in the terms, as of `master`. Whether anything is sent in that
        round is not checked.
        """
        return RoundPosition(number, self.group(node))

    def round_after(self, last: RoundPosition | None) -> int:
        """The next round in which messages are sent; rounds of local training alone are skipped."""
        number = 0 if last is None else last.round + 1
        while not self.plan.sends_in(number):
            number += 1
        return number

    def require_turn(self, position: RoundPosition, last: RoundPosition | None) -> None:
        """Check that a question to a worker is about the round that comes after ``last``.

        ``last``: the last one in which it answered all of its masters; ``None`` before the first.

        Raises:
            OutOfOrderMessageError: another round is next, or the run is over.
        """
        number = self.round_after(last)
        if number >= self.plan.rounds:
            raise OutOfOrderMessageError(f"{position}: nothing is sent in the rounds that are left")
        if position.round != number:
            raise OutOfOrderMessageError(f"{position}: comes too early; round {number + 1} is next")

    def grid(self, position: RoundPosition) -> IntegerGrid:
        """The grid of the release of a group.

        Raises:
            SpecError: no grid is fine enough for the sums of this group.
        """
        return group_integer_grid(self.plan, position.round, position.aggregation, self.parameters)

    def encoding(self, device: int, position: RoundPosition) -> tuple[float, QuantisationPlan] | None:
        """The factor that worker ``device`` multiplies a message by, and how it is rounded and noised.

        The same for all workers of the group ``position.aggregation``, without noise if its master is
        trusted; never ``None``.
        """
        plan, group, grid = self.plan, position.aggregation, self.grid(position)
        std = 0.0 if plan.trusted[group] else float(plan.noise_std(position.round)[group])
        return float(grid.shares[0]), grid.device_rounding(0, float(plan.bounds[group]), std)

    def noise_steps(self, node: int, position: RoundPosition) -> float:
        """The std of the noise that master ``node`` (a party number) adds to its sum, in steps of the grid.

        0 if it is not trusted: then workers add the noise.
        """
        plan, group = self.plan, self.group(node)
        if not plan.trusted[group]:
            return 0.0
        of_average = float(plan.noise_std(position.round)[group] / plan.denominators[group])
        return self.grid(position).node_steps(0, 0, of_average)

    def noisy(self) -> npt.NDArray[np.bool_]:
        """Whether each party adds noise, ``[parties]``."""
        loud = self.plan.noise_std(0) > 0
        workers = np.zeros(self.device_count, np.bool_)
        for group in np.flatnonzero(loud & ~self.plan.trusted).tolist():
            workers[self.plan.groups.members_of(group)] = True
        return np.concatenate([workers, loud & self.plan.trusted])
