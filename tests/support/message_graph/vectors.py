"""The vectors that travel in a protocol, each once: a graph of messages.

Devices that send alike are one `SenderClass`, so that a graph is as large as the number of classes. At every
step the members of a class each send one `Message` (a clipped contribution and noise of their own), and
aggregators form `Sum` vectors of messages and of other sums of the step, to which they or a channel add
noise. A sum that senders start from later is a model. Vectors are listed in the order of time.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Literal, TypeAlias

from sfumato.privacy.observers import Party
from sfumato.privacy.received import Hop

Key: TypeAlias = Hashable


@dataclass(frozen=True)
class SenderClass:
    """Devices that send alike: same aggregator, bound and noise.

    Attributes:
        key: its name.
        count: number of devices.
        weight: what a member's message counts, relative to the others of its draw.
    """

    key: Key
    count: int
    weight: float = 1.0


@dataclass(frozen=True)
class Cohort:
    """The senders whose messages meet in one sum, and the draw that decides who takes part.

    Attributes:
        classes: of those drawn from.
        occasion: names the draw: cohorts of one occasion are drawn together, others independently.
        kind: of the draw.
        rate: expected share of occasions that a device takes part in.
        drawn: devices drawn, or expected.
        seen_by: parties that draw, or receive the list.
        hop: how the messages reach their aggregator.
        guaranteed: devices sure to be in a sum that is released, the unit included.
        may_lose_members: whether who takes part may be missing in some of the occasion's sums.
        is_always_sent: whether the sum is sent whoever takes part.
        divides_by_drawn: whether what the sum is divided by depends on who is drawn.
    """

    classes: tuple[Key, ...]
    occasion: Key
    kind: Literal["all", "poisson", "fixed"]
    rate: float
    drawn: float
    seen_by: frozenset[Party]
    hop: Hop
    guaranteed: int
    may_lose_members: bool = False
    is_always_sent: bool = True
    divides_by_drawn: bool = False


@dataclass(frozen=True)
class Delivery:
    """The way to the one aggregator that a vector is sent to.

    Attributes:
        to: the aggregator.
        hop: how vectors travel there.
        threshold: how many senders, with the aggregator, take masks off; ``None``: none do.
        classes: sender classes of the session.
        nodes: aggregators of the session.
    """

    to: Party
    hop: Hop
    threshold: int | None
    classes: frozenset[Key] = frozenset()
    nodes: frozenset[Party] = frozenset()


@dataclass(frozen=True)
class Message:
    """What each member of a class sends at one step.

    Attributes:
        key: its name.
        step: when.
        sender: the class.
        cohort: under whose draw.
        norm: l2 bound of what is new in it.
        variance: of the noise that each sender adds, a coordinate.
        inputs: models that what is new in it was computed from.
        delivery: where it goes.
        repeats: earlier messages of the sender whose contributions it holds again.
        whole_norm: l2 bound of all that it holds.
        rounded: whether it is rounded after the noise: then the noise is no Gaussian that sums could use.
    """

    key: Key
    step: int
    sender: Key
    cohort: Key
    norm: float
    variance: float
    inputs: frozenset[Key]
    delivery: Delivery
    repeats: tuple[Key, ...] = ()
    whole_norm: float | None = None
    rounded: bool = False


@dataclass(frozen=True)
class WeightedVector:
    """A vector within a sum of the same step.

    Attributes:
        key: of the vector (every member's message, where it is a `Message`).
        weight: its weight, at most.
        least_weight: at least, where what the sum is divided by depends on who is drawn.
    """

    key: Key
    weight: float
    least_weight: float


@dataclass(frozen=True)
class Noise:
    """Independent Gaussian noise.

    Attributes:
        owner: who adds it and so knows it; ``None``: a channel, whose noise nobody knows.
        variance: a coordinate.
    """

    owner: Party | None
    variance: float


@dataclass(frozen=True)
class Sum:
    """A weighted sum of vectors of its step.

    Attributes:
        key: its name.
        step: when.
        terms: vectors of the step.
        carries: earlier models that it holds as well: a leaf's model goes on from where it was.
        noise: new in it.
        audience: parties and sender classes that receive it.
        delivery: where it is sent on; ``None``: nowhere.
        is_always_sent: whether it is formed at every step; if not, others cannot count on the noise in it.
        needs_senders: where it is not always sent, whether it is missing as soon as too few of its senders
            are left.
        reveals_draw: whether more than messages depends on who is drawn.
        given_away: whether a bound may expose it to those who do not receive it; an un-noised model is not.
        name: when it happens, for people.
        vector: what it is, for people.
    """

    key: Key
    step: int
    terms: tuple[WeightedVector, ...]
    carries: tuple[Key, ...] = ()
    noise: tuple[Noise, ...] = ()
    audience: frozenset[Party | Key] = frozenset()
    delivery: Delivery | None = None
    is_always_sent: bool = True
    needs_senders: bool = False
    reveals_draw: bool = False
    given_away: bool = True
    name: str = ""
    vector: str = ""


@dataclass(frozen=True, eq=False)
class MessageGraph:
    """All vectors of a stretch of training that happens ``repeats`` times, alike and independently drawn.

    Each stretch starts from vectors that everybody has.

    Attributes:
        vectors: messages and sums, in the order of time.
        classes: of senders.
        cohorts: of senders, by name.
        class_of: the class of a device.
        repeats: how often.
        groups_draw_separately: whether cohorts are drawn independently of each other.
        replaced_amplify: whether a hidden draw is known to amplify what others pass on within one occasion.
    """

    vectors: tuple[Message | Sum, ...]
    classes: Mapping[Key, SenderClass]
    cohorts: Mapping[Key, Cohort]
    class_of: Callable[[int], Key]
    repeats: int
    groups_draw_separately: bool = False
    replaced_amplify: bool = False

    @cached_property
    def messages(self) -> Mapping[Key, Message]:
        """By name."""
        return {vector.key: vector for vector in self.vectors if isinstance(vector, Message)}

    @cached_property
    def sums(self) -> Mapping[Key, Sum]:
        """By name."""
        return {vector.key: vector for vector in self.vectors if isinstance(vector, Sum)}

    @cached_property
    def steps(self) -> Mapping[int, tuple[Message | Sum, ...]]:
        """The vectors of every step, in the order of time."""
        found: dict[int, list[Message | Sum]] = {}
        for vector in self.vectors:
            found.setdefault(vector.step, []).append(vector)
        return {step: tuple(vectors) for step, vectors in sorted(found.items())}

    @cached_property
    def messages_in(self) -> Mapping[Key, tuple[Message, ...]]:
        """The messages of its own step that each sum is made of."""
        found: dict[Key, tuple[Message, ...]] = {}
        for vector in self.vectors:
            if isinstance(vector, Message):
                found[vector.key] = (vector,)
            else:
                found[vector.key] = tuple(m for term in vector.terms for m in found[term.key])
        return found

    def cohort_of(self, message: Message) -> Cohort:
        """Under whose draw a message is sent."""
        return self.cohorts[message.cohort]
