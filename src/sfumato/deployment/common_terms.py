"""What the terms of a deployment have in common in any topology: its parties, and what all of them agree on.

A party with other terms (another spec, version, purpose, list of keys, or list of keys that the deployer
made) is in another session: its frames are refused (`wire.frames`).
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Self

import numpy as np
import numpy.typing as npt

from sfumato.data.builtin_datasets import DatasetFacts
from sfumato.data.dataset_sizes import dataset_facts, known_examples
from sfumato.deployment.messages import RoundPosition, largest_answer
from sfumato.errors import SpecError
from sfumato.privacy.observers import Party
from sfumato.schedule.base import Plan
from sfumato.schedule.integer_grid import IntArray, IntegerGrid
from sfumato.schedule.resolve import resolve
from sfumato.secure_aggregation.quantisation import QuantisationPlan
from sfumato.spec.document import Spec
from sfumato.spec.frozen import FrozenSpec, versions
from sfumato.wire.keys import digest


def require_shown_as_is(purpose: str, place: str) -> None:
    """Refuse a purpose with characters that are not shown as they are, such as control characters.

    Raises:
        SpecError: it has some; the message names ``place``.
    """
    if not purpose.isprintable():
        raise SpecError(place, purpose, "must be printable: it is read before consent")


@dataclass(frozen=True, eq=False)
class CommonTerms(ABC):
    """What all parties of a deployment know and agree on.

    Parties are numbered: devices first, then aggregators.

    Attributes:
        plan: resolved, and one that can be deployed.
        fingerprint: of the resolved spec.
        parameters: M, length of the model's flat vector.
        purpose: what the data are used for.
        label: of this run; no two runs have the same.
        facts: the sizes of the spec's data set; counted in persons where these are the unit, as how many rows
            a person has is told to nobody.
        examples: number of examples of every device, by these facts, ``[devices]``; likewise.
        keys: public key of every party, by number.
        made_keys: numbers of the parties whose secret keys the deployer made, as it declares; ``None``: not
            declared.
    """

    plan: Plan
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
    ) -> Self:
        """The terms of a run of ``spec``, which every party computes by itself.

        Args:
            spec: of the run.
            parameters: M, length of the model's flat vector.
            purpose: what the data are used for.
            label: of this run; no two runs have the same.
            keys: public key of every party, 32 bytes each, by number.
            made_keys: numbers of the parties whose secret keys the deployer made; ``None``: not declared.

        Raises:
            SpecError: the spec cannot be deployed, there is not one key for every party, or the purpose would
                not be shown as it is.
            DataError: the data set, from which the sizes follow, is neither tabulated nor on this machine.
        """
        require_shown_as_is(purpose, "purpose")
        plan = cls.deployable(resolve(spec), parameters)
        parties = plan.parties.device_count + cls.aggregators_of(plan)
        if len(keys) != parties or len(set(keys)) != parties:
            raise SpecError("keys", len(set(keys)), f"must be {parties} different keys, one for every party")
        fingerprint = FrozenSpec.of(plan.spec, {}, versions()).fingerprint
        facts = dataset_facts(plan.spec.data, plan.parties.device_count).counted_in_persons
        examples = known_examples(plan.spec, plan.devices_per_place)
        assert examples is not None  # what is refused sees to it
        return cls(plan, fingerprint, parameters, purpose, label, facts, examples, keys, made_keys)

    @staticmethod
    @abstractmethod
    def deployable(plan: Plan, parameters: int) -> Plan:
        """``plan`` itself, after a check that it can be deployed; ``parameters``: M of its model.

        Raises:
            SpecError: it cannot be deployed; the message names the key.
        """

    @staticmethod
    @abstractmethod
    def aggregators_of(plan: Plan) -> int:
        """The number of aggregators of ``plan``: parties that are no devices."""

    @cached_property
    def session(self) -> bytes:
        """The 32 bytes that every frame of the run carries: a hash of the terms and of Sfumato's version.

        Besides the public keys, the spec's fingerprint, the purpose and the label it commits to the resolved
        sizes of data, and to the noise, bounds and rates of the releases that are accounted for.
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
        resolved = (b"" if fact is None else np.asarray(fact, "<f8").tobytes() for fact in self._resolved())
        return digest(b"deployment", *(text.encode() for text in texts), *resolved, *self.keys)

    @abstractmethod
    def _resolved(self) -> Iterator[npt.NDArray[Any] | None]:
        """Yield the arrays of figures that the plan was resolved to, which enter the hash.

        Always equally many; ``None`` in the place of one that the plan has not.
        """

    @property
    def protects_persons(self) -> bool:
        """Whether persons are the unit: devices draw persons then, and `examples` counts them."""
        return self.plan.spec.privacy.unit == "person"

    @property
    def device_count(self) -> int:
        """The number of devices; their numbers are 0 to one less."""
        return self.plan.parties.device_count

    def name(self, party: int) -> str:
        """The name of the party of number ``party``, such as ``device:3``, or that given by the topology."""
        return self.plan.parties.titled(self.plain_name(party))

    def plain_name(self, party: int) -> str:
        """``device:3``, ``edge:1`` and the like, as rows of `account` name a party; titles are not used.

        ``party``: its number in the deployment; devices come first.
        """
        return f"device:{party}" if party < self.device_count else self._aggregator_name(party)

    @abstractmethod
    def _aggregator_name(self, node: int) -> str:
        """The name by kind and number, such as ``edge:1``, of the aggregator with party number ``node``."""

    @abstractmethod
    def number_of(self, party: Party) -> int:
        """The number in the terms of ``party``, a device or an aggregator."""

    @property
    @abstractmethod
    def heads(self) -> tuple[int, ...]:
        """Numbers of the aggregators without a parent: the cloud, or the masters of groups."""

    def digest_of_keys(self, parties: Iterable[int]) -> str:
        """A hash of the public keys of parties, in hexadecimal digits; by it a checkpoint knows its owners.

        ``parties``: their numbers.
        """
        return digest(b"keys of parties", *(self.keys[party] for party in parties)).hex()

    @abstractmethod
    def parents(self, party: int) -> tuple[int, ...]:
        """Numbers of the aggregators that the party of number ``party``, a device or an edge, answers to."""

    @abstractmethod
    def children(self, node: int) -> Mapping[int, bytes]:
        """The public keys, by number, of the parties that the aggregator of number ``node`` asks."""

    def largest_answer(self, node: int) -> int:
        """An upper bound on the bytes of a frame, either way, between aggregator ``node`` and a child."""
        return largest_answer(self.parameters, len(self.children(node)))

    @abstractmethod
    def is_masked(self, node: int) -> bool:
        """Whether secure aggregation shows aggregator ``node`` only the sum of its children's messages."""

    @abstractmethod
    def may_lose_children(self, node: int) -> bool:
        """Whether aggregator ``node`` goes on without a child that does not answer."""

    @abstractmethod
    def asked_in(self, number: int, node: int) -> RoundPosition:
        """The last aggregation of round ``number`` of ``node``, an aggregator without a parent."""

    @abstractmethod
    def round_after(self, last: RoundPosition | None) -> int:
        """The number (from 0) of the next round with an aggregation after ``last``; ``None``: the first such.

        It is the number of rounds or more where the run is over.
        """

    @abstractmethod
    def grid(self, position: RoundPosition) -> IntegerGrid:
        """The grid of an aggregation.

        Raises:
            SpecError: no grid is fine enough for its sums.
        """

    @abstractmethod
    def encoding(self, device: int, position: RoundPosition) -> tuple[float, QuantisationPlan] | None:
        """The factor that ``device`` multiplies a message by, and how it is rounded and noised.

        ``None``: its weight is 0, and it sends nothing.
        """

    def longest(self, child: int, position: RoundPosition) -> float:
        """The largest l2 norm of an answer that is not refused, in steps of the grid.

        0 for a device that sends nothing; infinite for one that adds noise, and for every aggregator.

        Args:
            child: its number.
            position: of the aggregation.
        """
        if child >= self.device_count:
            return math.inf
        encoding = self.encoding(child, position)
        if encoding is None:
            return 0.0
        return encoding[1].sensitivity if encoding[1].noise_std == 0 else math.inf

    @abstractmethod
    def noise_steps(self, node: int, position: RoundPosition) -> float:
        """The std of the noise that aggregator ``node`` adds to its sum, in steps of the grid; 0 for none."""

    @abstractmethod
    def noisy(self) -> npt.NDArray[np.bool_]:
        """Whether each party adds noise in any round, ``[parties]``."""
