"""Where a party's secret choices come from: noise, rounding, mini-batches, and whether it takes part.

In the field the keys of noise come from the operating system, drawn anew when they are needed and told to
nobody. Each is hashed with what it is for (session, party, position, question) and with the party's signature
of that, which is told to nobody. So where the generators of copied machines repeat each other, another party
and another question still get other noise, and who knows the generator does not know the noise.

Mini-batches follow from the party's signing key and the round alone, through a signature that is told to
nobody: a device that starts again in the middle of a round goes on with the batches of before. Drawn anew, a
record might be in more steps of the round than the account counts. Whether a device takes part in a round is
a coin of the operating system's, which the device's memory keeps (`memory`).
`Randomness` is the seam at which a test injects what `run` draws; no setting and no command leads to it.
"""

from __future__ import annotations

import math
import os
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, Protocol, cast

import numpy as np
import numpy.typing as npt

from sfumato.deployment.messages import RoundPosition
from sfumato.families import TREE, family_of
from sfumato.schedule.groups import GroupPlan
from sfumato.schedule.tree import TreePlan
from sfumato.wire.key_stream import KeyStream
from sfumato.wire.keys import KEY_BYTES, Identity, digest

if TYPE_CHECKING:
    from sfumato.learning.batches import BatchPlan


class Randomness(Protocol):
    """A party's secret choices."""

    @property
    def source(self) -> str:
        """Where they come from, for the run folder."""

    def noise_key(self, position: RoundPosition, context: bytes) -> bytes:
        """A key of 32 bytes, for the rounding and the noise of one answer and for nothing else.

        ``context`` is of `answer_context`.
        """

    def batches(
        self, plan: TreePlan | GroupPlan, number: int, size: int, times: int, context: bytes
    ) -> BatchPlan:
        """The mini-batches of a device for all that it trains in round ``number``, of rows from 0.

        Args:
            plan: of the run.
            number: of the round.
            size: so many examples the device holds.
            times: how often it trains, each time with mini-batches of its own: for every group that it is in.
            context: of `round_context`; the same one always has the same batches.
        """

    def takes_part(self, plan: TreePlan, number: int, context: bytes) -> bool:
        """A new coin of a device, for round ``number`` of a plan with Poisson participation: its memory keeps
        the first one. ``context`` is of `round_context`.
        """


def answer_context(
    identity: Identity, session: bytes, party: int, position: RoundPosition, question: bytes
) -> bytes:
    """What a party's noise is for: a hash that only the party itself can make; ``question`` is a hash."""
    return identity.secret(b"answer", session, *_as_bytes(party, *position), question)


def round_context(identity: Identity, session: bytes, party: int, number: int) -> bytes:
    """What a party's batches, or its coin, of round ``number`` are for: a hash that only it can make."""
    return identity.secret(b"round", session, *_as_bytes(party, number))


def _as_bytes(*numbers: int) -> Iterator[bytes]:
    return (one.to_bytes(8, "big") for one in numbers)


class SystemRandomness:
    """Secret choices from the operating system's generator."""

    source = "operating system"

    def noise_key(self, position: RoundPosition, context: bytes) -> bytes:
        """A fresh key; see `Randomness`."""
        return digest(b"answer", os.urandom(KEY_BYTES), context)

    def batches(
        self, plan: TreePlan | GroupPlan, number: int, size: int, times: int, context: bytes
    ) -> BatchPlan:
        """Mini-batches that follow from ``context``; see `Randomness`."""
        from sfumato.protocols.tree.local_work import plan_batches  # PyTorch: aggregators need none

        draws = SecretDraws(digest(b"batches", context))
        steps, passes = _work_of(plan)
        return plan_batches(
            plan.spec.training,
            [np.arange(size)] * times,
            steps=steps,
            passes=passes,
            draws=draws,
            draws_of_each=[draws] * times,
        )

    def takes_part(self, plan: TreePlan, number: int, context: bytes) -> bool:
        """A fresh coin; see `Randomness`."""
        key = digest(b"takes part", os.urandom(KEY_BYTES), context)
        return secret_coin(key, plan.participants.rate)


def secret_coin(key: bytes, rate: float) -> bool:
    """A coin of a secret key of 32 bytes, used for nothing else: true with probability ``rate``, exactly.

    A float is a whole number over a power of two, 2^b: b bits of the key's stream are compared with it.
    """
    below, of = rate.as_integer_ratio()
    bits = of.bit_length() - 1
    size = (bits + 7) // 8
    return int.from_bytes(KeyStream(key).take(size), "big") >> (8 * size - bits) < below


def _work_of(plan: TreePlan | GroupPlan) -> tuple[int, int]:
    """Local steps that a device trains at a time, where they are counted, and for how many rounds."""
    if family_of(plan.spec) is TREE:
        return cast(TreePlan, plan).aggregations[-1].step, 1
    plan = cast(GroupPlan, plan)
    rounds = plan.merge_every if plan.by_interval else 1
    return (plan.spec.training.local_steps or 1) * rounds, rounds


class SecretDraws:
    """The draws that mini-batches need, from the stream of a secret key; see `learning.batches.BatchDraws`.

    Args:
        key: 32 bytes, used for nothing else.
    """

    def __init__(self, key: bytes) -> None:
        self._stream = KeyStream(key)

    def permuted(self, x: npt.NDArray[Any], *, axis: int) -> npt.NDArray[Any]:
        """``x`` with the entries of every line along ``axis`` in an order of its own, all orders alike.

        Two of n words of 64 bits are equal with probability below n² 2^-65: then these two keep their order.
        """
        words = self._stream.words(x.size).reshape(x.shape)
        shuffled: npt.NDArray[Any] = np.take_along_axis(x, np.argsort(words, axis=axis), axis)
        return shuffled

    def geometric(self, p: float, *, size: int) -> npt.NDArray[np.int64]:
        """So many numbers of trials up to the first success, each of probability ``p``."""
        if p >= 1:
            return np.ones(size, np.int64)
        failures = np.log(1 - self._stream.units(size)) / math.log1p(-p)
        return np.floor(failures).astype(np.int64) + 1

    def integers(self, low: npt.NDArray[Any], high: npt.NDArray[Any]) -> npt.NDArray[np.int64]:
        """Whole numbers from ``low`` to below ``high``, entry by entry, all alike."""
        return np.asarray(low + np.floor(self._stream.units(len(low)) * (high - low)), np.int64)
