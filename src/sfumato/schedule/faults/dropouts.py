"""Dropouts, and elections of supernodes, some of whom fail: who was there in a round.

What an accountant may count on before training is in `schedule.participation`. In a round, `turnout_of` draws
who is left and who serves as supernode. The draw follows from the seed, never from data: whoever asks draws
the same, and nothing has to be written down. `Attendance` is the outcome over the rounds of a run.

*Below the threshold* a session of secure aggregation ends without a sum: the leaf has nothing, sends nothing
and adds no noise, and its average counts as no change; all denominators stay what they are. *A supernode that
fails* has met the sum. With ``repeat`` the same noised messages of the same survivors go to the next in the
succession, under fresh masks: no new noise, so nothing more is known of any device than that one more party
knows the sum. A device that fell silent once its message was in the sum cannot send it again, and without it
two supernodes would know it as a difference: then, and with ``skip``, the zone sits the aggregation out; what
the failed supernode met stays met.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from sfumato.election.lottery import beacon, draw_nonces, succession
from sfumato.network.tree import Tree
from sfumato.radio.costs import Attempts
from sfumato.random import Stream, generator
from sfumato.schedule.participation import draw_participants, threshold_of
from sfumato.secure_aggregation.fast_path import survivors_of
from sfumato.secure_aggregation.server import Phase
from sfumato.spec.faults import Faults
from sfumato.wire.errors import BelowThresholdError
from sfumato.wire.keys import digest

if TYPE_CHECKING:
    from sfumato.schedule.tree import TreePlan

FloatArray = npt.NDArray[np.float64]
IntArray = npt.NDArray[np.int64]
BoolArray = npt.NDArray[np.bool_]

PHASES = (Phase.ADVERTISE, Phase.SHARE, Phase.MASK, Phase.CONSENT, Phase.UNMASK)
DROPOUTS, _FAILURES = 0, 1  # addresses within Stream.FAULTS; part of the file format


@dataclass(frozen=True, eq=False)
class Dropouts:
    """What became of the participants of an aggregation.

    Attributes:
        dropout_phase: the phase from which each says no more, ``[P]``; ``Phase.DONE`` for who stays.
        received: whose message somebody learnt, alone or in a sum, ``[P]``.
        formed: which leaves have an average to send on, ``[leaves]``.
        terms: for each leaf, which of its devices served as supernode, in order; empty without elections.
    """

    dropout_phase: IntArray
    received: BoolArray
    formed: BoolArray
    terms: tuple[tuple[int, ...], ...]

    @property
    def sends(self) -> BoolArray:
        """Which participants stay long enough to send their message, ``[P]``."""
        return self.dropout_phase > Phase.MASK

    def attempts(self, leaves: IntArray) -> Attempts:
        """Which participants send over the devices' hop, and how often each message goes out, ``[P]`` both.

        Once for each supernode that serves the device's leaf; once without elections.

        Args:
            leaves: of every participant ``[P]``.
        """
        again = np.array([len(served) for served in self.terms] or [1] * len(self.formed), dtype=np.int64)
        return Attempts(self.sends, again[leaves])


def turnout_of(plan: TreePlan, number: int, index: int, devices: IntArray) -> Dropouts:
    """Draw what becomes of the messages of ``devices`` in aggregation ``index`` of round ``number`` (from 0).

    Args:
        plan: of that round; its seed decides.
        number: of the round.
        index: of the aggregation.
        devices: who takes part, ascending ``[P]``.

    Returns:
        When each device falls silent, whose messages are received, which sums are formed, and who served as
        supernode of each leaf.
    """
    spec, tree = plan.spec, plan.tree
    dropout_phase = _draw_dropout_phases(spec.faults, spec.seed, number, index, devices, tree.device_count)
    leaves = tree.leaves_of(devices)
    heard, formed = dropout_phase > Phase.MASK, plan.sends(index).copy()
    if plan.hops and plan.hops[-1] == "secure-aggregation" and spec.faults is not None:
        for leaf in range(tree.leaf_count):
            here = slice(*np.searchsorted(leaves, [leaf, leaf + 1]).tolist())
            parties = here.stop - here.start
            if parties > 1 and not session_has_sum(dropout_phase[here], threshold_of(spec.faults, parties)):
                formed[leaf], heard[here] = False, False
    terms, failed = _draw_supernode_terms(plan, number, index)
    if failed.any():
        assert spec.faults is not None
        gone = np.bincount(leaves[heard & (dropout_phase < Phase.DONE)], minlength=tree.leaf_count) > 0
        once = gone | (spec.faults.when_supernode_fails == "skip")
        terms = tuple(served[:1] if only else served for served, only in zip(terms, once, strict=True))
        formed &= (failed == 0) | (~once & (failed < tree.devices))
    return Dropouts(dropout_phase, heard, formed, terms)


def session_has_sum(dropout_phase: IntArray, threshold: int) -> bool:
    """Whether enough parties stay for a session of secure aggregation to have a sum.

    ``dropout_phase``: the phase from which each party is silent, ``[parties]``; ``threshold``: the fewest
    survivors.
    """
    drop = {phase: np.flatnonzero(dropout_phase == phase).tolist() for phase in PHASES}
    try:
        survivors_of(len(dropout_phase), threshold, drop)
    except BelowThresholdError:
        return False
    return True


def _draw_dropout_phases(
    faults: Faults | None, seed: int, number: int, index: int, devices: IntArray, count: int
) -> IntArray:
    """Draw the phase of a session from which each of ``devices`` is silent, ``[P]``; ``DONE`` for who stays.

    Args:
        faults: dropout rates; ``None``: nobody drops out.
        seed: of the draw.
        number: of the round.
        index: of the aggregation.
        devices: numbers of devices ``[P]``.
        count: number of all devices.
    """
    if faults is None or not any(faults.drop_rates):
        return np.full(len(devices), int(Phase.DONE), dtype=np.int64)
    draws = generator(seed, Stream.FAULTS, DROPOUTS, number, index).random((count, len(PHASES)))[devices]
    return dropout_phases(faults, draws)


def dropout_phases(faults: Faults, draws: FloatArray) -> IntArray:
    """The first phase in which each party drops out, ``[P]``, or ``Phase.DONE`` if in none.

    It drops out in a phase if its draw is below the rate that ``faults`` has for the phase. ``draws``:
    uniform numbers in [0, 1), ``[P, phases]``.
    """
    dropout_phase = np.full(len(draws), int(Phase.DONE), dtype=np.int64)
    for column, (phase, rate) in reversed(list(enumerate(zip(PHASES, faults.drop_rates, strict=True)))):
        dropout_phase[draws[:, column] < rate] = int(phase)
    return dropout_phase


def _draw_supernode_terms(
    plan: TreePlan, number: int, index: int
) -> tuple[tuple[tuple[int, ...], ...], IntArray]:
    """Draw the supernodes of each leaf in aggregation ``index`` of round ``number``.

    Returns:
        For each leaf the devices that serve, in order (empty without elections); and how many of them failed,
        all but the last, or all, ``[leaves]``.
    """
    tree, spec = plan.tree, plan.spec
    failed = np.zeros(tree.leaf_count, dtype=np.int64)
    if not plan.releases.elections:
        return (), failed
    rate = 0.0 if spec.faults is None else spec.faults.supernode_failure_rate
    found = []
    for leaf in range(tree.leaf_count):
        order = succession_of(spec.seed, number, tree, leaf)
        if rate:
            draws = generator(spec.seed, Stream.FAULTS, _FAILURES, number, index, leaf).random(len(order))
            failed[leaf] = len(order) if (draws < rate).all() else int(np.argmin(draws < rate))
        found.append(order[: int(failed[leaf]) + 1])
    return tuple(found), failed


@dataclass(frozen=True, eq=False)
class Attendance:
    """Realised facts of a run.

    Attributes:
        leaf_name: of a leaf, by its number.
        drawn: devices that were to send a message, ``[rounds, aggregations, leaves]``.
        received: messages that somebody learnt, alone or in a sum, ``[rounds, aggregations, leaves]``.
        formed: which leaves had an average to send on, ``[rounds, aggregations, leaves]``.
        supernodes: devices that served every leaf as supernode, in order, by round and aggregation; no leaves
            without elections.
    """

    leaf_name: Callable[[int], str]
    drawn: npt.NDArray[np.int64]
    received: npt.NDArray[np.int64]
    formed: npt.NDArray[np.bool_]
    supernodes: tuple[tuple[tuple[tuple[int, ...], ...], ...], ...]

    @classmethod
    def of(cls, plan: TreePlan, rounds: int) -> Attendance | None:
        """The attendance of the first ``rounds`` rounds; ``None`` with neither ``faults`` nor elections."""
        return cls.of_rounds(plan, [plan] * rounds)

    @classmethod
    def of_rounds(cls, plan: TreePlan, played: Sequence[TreePlan]) -> Attendance | None:
        """Draw the attendance of rounds with a plan each; ``None`` with neither ``faults`` nor elections.

        Args:
            plan: of the whole: the same tree, faults and number of aggregations.
            played: the plan of every round, in order.
        """
        if plan.spec.faults is None and not plan.releases.elections:
            return None
        shape = (len(played), len(plan.aggregations), plan.tree.leaf_count)
        drawn, heard = np.zeros(shape, dtype=np.int64), np.zeros(shape, dtype=np.int64)
        formed = np.zeros(shape, dtype=np.bool_)
        supernodes = []
        for number, plan in enumerate(played):
            chosen = draw_participants(plan, number)
            leaves = plan.tree.leaves_of(chosen)
            found = []
            for index in range(len(plan.aggregations)):
                here = plan.sends(index)[leaves]
                turnout = turnout_of(plan, number, index, chosen[here])
                found.append(turnout)
                drawn[number, index] = np.bincount(leaves[here], minlength=plan.tree.leaf_count)
                came = leaves[here][turnout.received]
                heard[number, index] = np.bincount(came, minlength=plan.tree.leaf_count)
                formed[number, index] = turnout.formed
            supernodes.append(tuple(turnout.terms for turnout in found))
        return cls(partial(plan.tree.node_name, plan.tree.depth - 1), drawn, heard, formed, tuple(supernodes))

    @property
    def survivors(self) -> npt.NDArray[np.int64]:
        """Messages in every leaf's average, 0 where none was formed, ``[rounds, aggregations, leaves]``."""
        return np.where(self.formed, self.received, 0)

    def terms(self, devices: int) -> npt.NDArray[np.int64]:
        """The number of rounds in which each device was supernode, also if it failed, ``[devices]``.

        Supernodes serve for a whole round, so the first aggregation of each is counted.
        """
        served = [device for number in self.supernodes for zone in number[0] for device in zone]
        return np.bincount(np.array(served, dtype=np.int64), minlength=devices).astype(np.int64)

    def to_dict(self) -> dict[str, Any]:
        """The facts as a JSON object for the run folder.

        ``survivors`` as lists ``[rounds][aggregations][leaves]``, ``lost_sums`` if any is lost, and
        ``supernodes`` if any is elected.
        """
        kept: dict[str, Any] = {"survivors": self.survivors.tolist()}
        kept |= lost_sums(self.drawn, self.survivors, self.leaf_name)
        if any(zones for number in self.supernodes for zones in number):
            kept["supernodes"] = self.supernodes
        return kept


def lost_sums(drawn: IntArray, counts: IntArray, name: Callable[[int], str]) -> dict[str, Any]:
    """Count the sums that hold no message though some were to be sent, as an entry of the run folder.

    Args:
        drawn: number of messages that were to be sent, by place in the last axis.
        counts: number of messages in the sum, of the same shape.
        name: gives the name of a place by its index.

    Returns:
        ``{"lost_sums": {"of": sums that were to be formed, "by": lost ones by name of the place}}``; {} if
        none is lost.
    """
    lost = (drawn > 0) & (counts == 0)
    by_place = lost.reshape(-1, lost.shape[-1]).sum(axis=0)
    if not lost.any():
        return {}
    by = {name(int(place)): int(by_place[place]) for place in np.flatnonzero(by_place)}
    return {"lost_sums": {"of": int((drawn > 0).sum()), "by": by}}


def succession_of(seed: int, number: int, tree: Tree, zone: int) -> tuple[int, ...]:
    """All devices of ``zone`` in the order in which they would serve as supernode in round ``number``.

    Every device commits to a nonce of its own; in a simulation all come from the stream ELECTION of ``seed``.
    """
    first, last = int(tree.first_device[zone]), int(tree.first_device[zone + 1])
    nonces = draw_nonces(last - first, generator(seed, Stream.ELECTION, number, zone).bytes)
    session = digest(b"election", *(_as_bytes(value) for value in (seed, number, zone)))
    return tuple(first + place for place in succession(beacon(session, nonces), nonces))


def _as_bytes(value: int) -> bytes:
    """``value`` as eight bytes, or as many as it takes: an audit's own seeds have 128 bits."""
    return value.to_bytes(max(8, -(-value.bit_length() // 8)), "big")
