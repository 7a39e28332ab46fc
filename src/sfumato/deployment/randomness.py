"""Where a party's secret choices come from: noise, rounding, mini-batches, and whether it takes part.

In the field the keys of noise come from the operating system, drawn anew when they are needed and told to
nobody. Each is hashed with what it is for (session, party, position, question) and with the party's signature
of that, which is told to nobody. So where the generators of copied machines repeat each other, another party
and another question still get other noise, and who knows the generator does not know the noise.

Mini-batches follow from the party's signing key and the round alone, through a signature that is told to
nobody: a device that starts again in the middle of a round goes on with the batches of before. Drawn anew, a
record might be in more steps of the round than the account counts. Whether a device takes part in a round is
a coin of the operating system's, which the device's memory keeps (`memory`). So does that of a trusted
aggregator with its draw of a fixed number of devices.
`Randomness` is the seam at which a test injects what `run` draws; no setting and no command leads to it.
"""

from __future__ import annotations

import math
import os
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, Protocol, cast

import numpy as np
import numpy.typing as npt

from sfumato.deployment.messages import IntArray, RoundPosition
from sfumato.families import TREE, family_of
from sfumato.schedule.groups import GroupPlan
from sfumato.schedule.tree import TreePlan
from sfumato.wire.key_stream import KeyStream
from sfumato.wire.keys import KEY_BYTES, Identity, digest

if TYPE_CHECKING:
    from sfumato.learning.batches import BatchPlan


class Randomness(Protocol):
    """A party's secret random choices: keys of noise, mini-batches, and whether it takes part."""

    @property
    def source(self) -> str:
        """Where the choices come from, as the run folder names it."""

    def noise_key(self, position: RoundPosition, context: bytes) -> bytes:
        """A key of 32 bytes for the rounding and the noise of one answer, never used for anything else.

        ``context``: the hash from `answer_context` of that answer.
        """

    def batches(
        self,
        plan: TreePlan | GroupPlan,
        number: int,
        size: int,
        times: int,
        context: bytes,
        persons: IntArray | None = None,
    ) -> BatchPlan:
        """The mini-batches of a device for all of its training in round ``number``.

        Args:
            plan: of the run.
            number: of the round, from 0.
            size: number of examples that the device holds; batches name them 0 to ``size`` - 1.
            times: how often the device trains in the round: once for every group that it is in. Each time has
                mini-batches of its own.
            context: the hash from `round_context`; the same one always gives the same batches.
            persons: where the rows of each person begin, and where the last one's end, ``[persons + 1]``:
                persons are drawn, each of whom brings one row; ``None``: rows are.
        """

    def takes_part(self, plan: TreePlan, number: int, context: bytes) -> bool:
        """Whether a device takes part in round ``number`` (Poisson participation): a new draw at every call.

        The device's memory keeps the first one. ``context``: the hash from `round_context`.
        """

    def chosen(self, plan: TreePlan, node: int, number: int, count: int, context: bytes) -> IntArray:
        """The places of the children that an aggregator draws for round ``number``, ascending ``[count]``.

        A new draw at every call; the aggregator's memory keeps the first one.

        Args:
            plan: of the run.
            node: index of the aggregator among the leaves.
            number: of the round, from 0.
            count: how many are drawn.
            context: the hash from `round_context`.
        """


def answer_context(
    identity: Identity, session: bytes, party: int, position: RoundPosition, question: bytes
) -> bytes:
    """A hash for the noise of one answer, which only the party itself can compute: it signs with its key.

    Args:
        identity: the party's keys.
        session: of the run's terms.
        party: its number.
        position: round and place in it.
        question: hash of the question that is answered.
    """
    return identity.secret(b"answer", session, *_as_bytes(party, *position), question)


def round_context(identity: Identity, session: bytes, party: int, number: int) -> bytes:
    """A hash for a party's batches, or participation, in round ``number``, which only it can compute.

    Args:
        identity: the party's keys.
        session: of the run's terms.
        party: its number.
        number: of the round, from 0.
    """
    return identity.secret(b"round", session, *_as_bytes(party, number))


def _as_bytes(*numbers: int) -> Iterator[bytes]:
    return (one.to_bytes(8, "big") for one in numbers)


class SystemRandomness:
    """Secret choices whose keys come from the operating system's generator, or from the party's own key."""

    source = "operating system"

    def noise_key(self, position: RoundPosition, context: bytes) -> bytes:
        """A new key of 32 bytes, another one at every call; ``context``: as of `Randomness.noise_key`."""
        return digest(b"answer", os.urandom(KEY_BYTES), context)

    def batches(
        self,
        plan: TreePlan | GroupPlan,
        number: int,
        size: int,
        times: int,
        context: bytes,
        persons: IntArray | None = None,
    ) -> BatchPlan:
        """Mini-batches that follow from ``context`` alone; arguments as of `Randomness.batches`."""
        from sfumato.protocols.tree.local_work import plan_batches  # PyTorch: aggregators need none

        draws = SecretDraws(digest(b"batches", context))
        steps, passes = _work_of(plan)
        return plan_batches(
            plan.spec.training,
            [np.arange(size)] * times,
            persons=None if persons is None else [persons] * times,
            steps=steps,
            passes=passes,
            draws=draws,
            draws_of_each=[draws] * times,
        )

    def takes_part(self, plan: TreePlan, number: int, context: bytes) -> bool:
        """A new draw at every call; the arguments are those of `Randomness.takes_part`."""
        key = digest(b"takes part", os.urandom(KEY_BYTES), context)
        return secret_coin(key, plan.participants.rate)

    def chosen(self, plan: TreePlan, node: int, number: int, count: int, context: bytes) -> IntArray:
        """A new draw at every call; the arguments are those of `Randomness.chosen`."""
        key = digest(b"chosen", os.urandom(KEY_BYTES), context)
        return secret_choice(key, int(plan.tree.devices[node]), count)


def secret_coin(key: bytes, rate: float) -> bool:
    """Draw true with probability ``rate``, exactly, from a secret key of 32 bytes used for nothing else.

    A float is a whole number over a power of two, 2^b: b bits of the key's stream are compared with it.
    """
    below, of = rate.as_integer_ratio()
    bits = of.bit_length() - 1
    size = (bits + 7) // 8
    return int.from_bytes(KeyStream(key).take(size), "big") >> (8 * size - bits) < below


def secret_choice(key: bytes, size: int, count: int) -> IntArray:
    """Draw ``count`` of ``size`` places, ascending, every set equally likely, exactly.

    Args:
        key: 32 bytes, secret, used for nothing else.
        size: the number of places, from 0 to one less.
        count: how many are drawn, 0 to ``size``; the result is int64 ``[count]``.
    """
    stream, places = KeyStream(key), np.arange(size, dtype=np.int64)
    for place in range(count):  # the first steps of Fisher and Yates' shuffle
        other = place + _below(stream, size - place)
        places[[place, other]] = places[[other, place]]
    return np.sort(places[:count])


def _below(stream: KeyStream, bound: int) -> int:
    """A whole number from 0 to below ``bound``, each equally likely: larger words are left out."""
    bits = (bound - 1).bit_length()
    size = (bits + 7) // 8
    while (word := int.from_bytes(stream.take(size), "big") >> (8 * size - bits)) >= bound:
        pass
    return word


def _work_of(plan: TreePlan | GroupPlan) -> tuple[int, int]:
    """What a device trains before it sends an update: (local steps, times that the epochs are done).

    Only one of them counts, by how the spec measures a round. Over groups, a release of a whole interval has
    the work of all its rounds.
    """
    if family_of(plan.spec) is TREE:
        return cast(TreePlan, plan).aggregations[-1].step, 1
    plan = cast(GroupPlan, plan)
    rounds = plan.merge_every if plan.by_interval else 1
    return (plan.spec.training.local_steps or 1) * rounds, rounds


class SecretDraws:
    """The draws that mini-batches need (`learning.batches.BatchDraws`), from the stream of a secret key.

    Args:
        key: 32 bytes, used for nothing else.
    """

    def __init__(self, key: bytes) -> None:
        self._stream = KeyStream(key)

    def permuted(self, x: npt.NDArray[Any], *, axis: int) -> npt.NDArray[Any]:
        """A copy of ``x`` with each line along ``axis`` in an order of its own, every order equally likely.

        Two of n words of 64 bits are equal with probability below n² 2^-65: then these two keep their order.
        """
        words = self._stream.words(x.size).reshape(x.shape)
        shuffled: npt.NDArray[Any] = np.take_along_axis(x, np.argsort(words, axis=axis), axis)
        return shuffled

    def geometric(self, p: float, *, size: int) -> npt.NDArray[np.int64]:
        """``size`` independent numbers of trials up to the first success, int64; 1 and more.

        ``p``: probability of success in each trial, above 0; from 1 on every number is 1.
        """
        if p >= 1:
            return np.ones(size, np.int64)
        failures = np.log(1 - self._stream.units(size)) / math.log1p(-p)
        return np.floor(failures).astype(np.int64) + 1

    def integers(self, low: npt.NDArray[Any], high: npt.NDArray[Any]) -> npt.NDArray[np.int64]:
        """Whole numbers, entry by entry uniform from ``low`` to below ``high``, ``[n]`` each."""
        return np.asarray(low + np.floor(self._stream.units(len(low)) * (high - low)), np.int64)
