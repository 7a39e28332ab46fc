"""What all parties of a deployment know and agree on before the first message.

Whoever has other terms (another spec, version, purpose, list of keys, or of those that whoever deployed made)
is in another session: its frames are refused (`wire.frames`).
"""

from __future__ import annotations

import secrets
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt

from sfumato.data.builtin_datasets import DatasetFacts
from sfumato.data.dataset_sizes import dataset_facts, known_examples
from sfumato.deployment.messages import RoundPosition, largest_answer
from sfumato.deployment.refusals import require_deployable
from sfumato.errors import SpecError
from sfumato.schedule.integer_grid import IntArray, IntegerGrid, integer_grid_of, message_lengths
from sfumato.schedule.participation import threshold_of
from sfumato.schedule.resolve import resolve
from sfumato.schedule.tree import TreePlan
from sfumato.spec.document import Spec
from sfumato.spec.frozen import FrozenSpec, versions
from sfumato.wire.errors import OutOfOrderMessageError
from sfumato.wire.keys import digest

KEY_DIGITS = 32
"""So many digits of a key, or of a session, are compared by people: 128 bits."""


def require_shown_as_is(purpose: str, place: str) -> None:
    """Refuse a purpose with signs that change how it is shown; the message names ``place``.

    Raises:
        SpecError: it has some.
    """
    if not purpose.isprintable():
        raise SpecError(place, purpose, "must be printable: it is read before consent")


def new_label(name: str) -> str:
    """A label for a run of the spec of that name, which no other run has."""
    return f"{name}/{secrets.token_hex(16)}"


@dataclass(frozen=True, eq=False)
class DeploymentTerms:
    """The terms of one run. Parties are numbered: devices first, then the cloud, then the edges.

    Attributes:
        plan: resolved, and one that can be deployed.
        fingerprint: of the resolved spec.
        parameters: M, length of the model's flat vector.
        purpose: what the data are used for.
        label: of this run; no two runs have the same.
        facts: the sizes of the spec's data set.
        examples: what these come to for every device, ``[devices]``.
        keys: public key of every party, by number.
        made_keys: whose secret keys whoever deployed made, as it says itself, by number; ``None``: not said.
    """

    plan: TreePlan
    fingerprint: str
    parameters: int
    purpose: str
    label: str
    facts: DatasetFacts
    examples: IntArray
    keys: tuple[bytes, ...]
    made_keys: tuple[int, ...] | None = None

    @classmethod
    def of(
        cls,
        spec: Spec,
        *,
        parameters: int,
        purpose: str,
        label: str,
        keys: tuple[bytes, ...],
        made_keys: tuple[int, ...] | None = None,
    ) -> DeploymentTerms:
        """The terms of ``spec``; see the attributes. Every party makes them for itself.

        Raises:
            SpecError: the spec cannot be deployed, there is not one key for every party, or the purpose would
                not be shown as it is.
        """
        require_shown_as_is(purpose, "purpose")
        plan = require_deployable(resolve(spec), parameters)
        parties = plan.tree.device_count + sum(tier.size for tier in plan.tree.tiers)
        if len(keys) != parties or len(set(keys)) != parties:
            raise SpecError("keys", len(set(keys)), f"must be {parties} different keys, one for every party")
        fingerprint = FrozenSpec.of(plan.spec, {}, versions()).fingerprint
        facts = dataset_facts(plan.spec.data, plan.tree.device_count)
        examples = known_examples(plan.spec, plan.tree.devices)
        assert examples is not None  # what is refused sees to it
        return cls(plan, fingerprint, parameters, purpose, label, facts, examples, keys, made_keys)

    @cached_property
    def session(self) -> bytes:
        """What all frames of the run name, 32 bytes: a hash of the terms and of the version of Sfumato.

        It commits to what the spec was resolved to as well: sizes of data that stand in a file beside it, and
        the noise, bounds and rates of the releases that are accounted.
        """
        made = "not said" if self.made_keys is None else ",".join(map(str, sorted(set(self.made_keys))))
        texts = (
            versions()["sfumato"],
            self.fingerprint,
            str(self.parameters),
            self.purpose,
            self.label,
            made,
        )
        return digest(b"deployment", *(text.encode() for text in texts), *self._resolved(), *self.keys)

    def _resolved(self) -> Iterator[bytes]:
        """The figures that the plan was resolved to, as bytes; always equally many pieces."""
        plan, everybody = self.plan, np.arange(self.plan.tree.device_count, dtype=np.int64)
        facts: list[npt.NDArray[Any] | None] = [self.examples, plan.tree.devices, plan.weights_of(everybody)]
        facts.append(plan.releases.batches.rates)
        for index, step in enumerate(plan.releases.steps):
            lengths = message_lengths(plan, index, everybody, self.parameters)
            facts += [lengths, plan.device_stds_of(index, everybody), *step.node_std]
        for fact in facts:
            yield b"" if fact is None else np.asarray(fact, "<f8").tobytes()

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

    def name(self, party: int) -> str:
        """``device:3``, ``edge:0`` or ``cloud``, by the name that the topology gives."""
        tree = self.plan.tree
        is_device = party < tree.device_count
        return tree.titled(f"device:{party}" if is_device else tree.node_name(*self.place(party)))

    def parent(self, party: int) -> int:
        """Whom a device or an edge answers to."""
        tree = self.plan.tree
        if party >= tree.device_count or tree.depth == 1:
            return self.cloud
        return self.edge(tree.leaf_of(party))

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

    def largest_answer(self, node: int) -> int:
        """More bytes than any frame between an aggregator and a child has, up or down."""
        return largest_answer(self.parameters, len(self.children(node)))

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
