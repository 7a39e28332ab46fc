"""What terms of a deployment have in common, whatever the topology: who there is, on what all agree.

Whoever has other terms (another spec, version, purpose, list of keys, or of those that whoever deployed made)
is in another session: its frames are refused (`wire.frames`).
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping
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
    """Refuse a purpose with signs that change how it is shown; the message names ``place``.

    Raises:
        SpecError: it has some.
    """
    if not purpose.isprintable():
        raise SpecError(place, purpose, "must be printable: it is read before consent")


@dataclass(frozen=True, eq=False)
class CommonTerms(ABC):
    """The terms of one run. Parties are numbered: devices first, then whoever adds up.

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
        """The terms of ``spec``; see the attributes. Every party makes them for itself.

        Raises:
            SpecError: the spec cannot be deployed, there is not one key for every party, or the purpose would
                not be shown as it is.
        """
        require_shown_as_is(purpose, "purpose")
        plan = cls.deployable(resolve(spec), parameters)
        parties = plan.parties.device_count + cls.aggregators_of(plan)
        if len(keys) != parties or len(set(keys)) != parties:
            raise SpecError("keys", len(set(keys)), f"must be {parties} different keys, one for every party")
        fingerprint = FrozenSpec.of(plan.spec, {}, versions()).fingerprint
        facts = dataset_facts(plan.spec.data, plan.parties.device_count)
        examples = known_examples(plan.spec, plan.places)
        assert examples is not None  # what is refused sees to it
        return cls(plan, fingerprint, parameters, purpose, label, facts, examples, keys, made_keys)

    @staticmethod
    @abstractmethod
    def deployable(plan: Plan, parameters: int) -> Plan:
        """``plan``, if its parties can be real.

        Raises:
            SpecError: it cannot be deployed; the message names the key.
        """

    @staticmethod
    @abstractmethod
    def aggregators_of(plan: Plan) -> int:
        """How many parties besides devices there are."""

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
        resolved = (b"" if fact is None else np.asarray(fact, "<f8").tobytes() for fact in self._resolved())
        return digest(b"deployment", *(text.encode() for text in texts), *resolved, *self.keys)

    @abstractmethod
    def _resolved(self) -> Iterator[npt.NDArray[Any] | None]:
        """The figures that the plan was resolved to; always equally many pieces."""

    @property
    def device_count(self) -> int:
        """How many devices there are: their numbers are below it."""
        return self.plan.parties.device_count

    def name(self, party: int) -> str:
        """``device:3``, ``cloud`` and the like, by the name that the topology gives."""
        return self.plan.parties.titled(self.plain_name(party))

    def plain_name(self, party: int) -> str:
        """``device:3``, ``edge:1`` and the like, by kind and number, as rows of `account` name a party."""
        return f"device:{party}" if party < self.device_count else self._aggregator_name(party)

    @abstractmethod
    def _aggregator_name(self, node: int) -> str:
        """The name of an aggregator by its kind and number."""

    @abstractmethod
    def number_of(self, party: Party) -> int:
        """The number of an observer that is a device or an aggregator."""

    @property
    @abstractmethod
    def heads(self) -> tuple[int, ...]:
        """The aggregators that nobody asks: the cloud, or the masters of groups."""

    @abstractmethod
    def parents(self, party: int) -> tuple[int, ...]:
        """Whom a device, or an edge, answers to."""

    @abstractmethod
    def children(self, node: int) -> Mapping[int, bytes]:
        """Whom an aggregator asks, and their keys."""

    def largest_answer(self, node: int) -> int:
        """More bytes than any frame between an aggregator and a child has, up or down."""
        return largest_answer(self.parameters, len(self.children(node)))

    @abstractmethod
    def is_masked(self, node: int) -> bool:
        """Whether an aggregator learns no more than the sum of its children."""

    @abstractmethod
    def may_lose_children(self, node: int) -> bool:
        """Whether an aggregator goes on without a child that does not answer."""

    @abstractmethod
    def asked_in(self, number: int, node: int) -> RoundPosition:
        """The aggregation by which round ``number`` ends for an aggregator that nobody asks."""

    @abstractmethod
    def round_after(self, last: RoundPosition | None) -> int:
        """The round that comes after an aggregation of another one; ``None``: the first."""

    @abstractmethod
    def grid(self, position: RoundPosition) -> IntegerGrid:
        """The grid of an aggregation."""

    @abstractmethod
    def encoding(self, device: int, position: RoundPosition) -> tuple[float, QuantisationPlan] | None:
        """What a message of ``device`` is multiplied by, and how it is rounded and noised; ``None``: it has
        no weight, and nothing is sent.
        """

    @abstractmethod
    def noise_steps(self, node: int, position: RoundPosition) -> float:
        """The std of the noise that an aggregator adds to its sum, in steps of the grid; 0 for none."""

    @abstractmethod
    def noisy(self) -> npt.NDArray[np.bool_]:
        """Whether each party adds noise in any round, ``[parties]``."""
