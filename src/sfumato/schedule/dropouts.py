"""Who is left in an aggregation, and who serves as supernode in it: drawn alike by whoever asks.

*Below the threshold* a session of secure aggregation ends without a sum: the leaf has nothing, sends nothing
and adds no noise, and its average counts as no change; all denominators stay what they are. *A supernode that
fails* has met the sum. With ``repeat`` the same noised messages of the same survivors go to the next in the
succession, under fresh masks: no new noise, so nothing more is known of any device than that one more party
knows the sum. A device that fell silent once its message was in the sum cannot send it again, and without it
two supernodes would know it as a difference: then, and with ``skip``, the zone sits the aggregation out; what
the failed supernode met stays met.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from sfumato.random import Stream, generator
from sfumato.schedule.elections import succession_of
from sfumato.schedule.guaranteed_survivors import threshold_of
from sfumato.schedule.tree import TreePlan
from sfumato.secure_aggregation.fast_path import survivors_of
from sfumato.secure_aggregation.server import Phase
from sfumato.spec.faults import Faults
from sfumato.wire.errors import BelowThresholdError

IntArray = npt.NDArray[np.int64]
BoolArray = npt.NDArray[np.bool_]

PHASES = (Phase.ADVERTISE, Phase.SHARE, Phase.MASK, Phase.CONSENT, Phase.UNMASK)
_DROPOUTS, _FAILURES = 0, 1  # addresses within Stream.FAULTS; part of the file format


@dataclass(frozen=True, eq=False)
class Dropouts:
    """What became of the participants of an aggregation.

    Attributes:
        silent_from: the phase from which each says no more, ``[P]``; ``Phase.DONE`` for who stays.
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
        """Who sends its message, ``[P]``."""
        return self.dropout_phase > Phase.MASK


def turnout_of(plan: TreePlan, number: int, index: int, devices: IntArray) -> Dropouts:
    """Who of ``devices`` (ascending) is left in aggregation ``index`` of round ``number``."""
    spec, tree = plan.spec, plan.tree
    dropout_phase = _dropouts(spec.faults, spec.seed, number, index, devices, tree.device_count)
    leaves = tree.leaves_of(devices)
    heard, formed = dropout_phase > Phase.MASK, np.ones(tree.leaf_count, dtype=np.bool_)
    if plan.hops and plan.hops[-1] == "secure-aggregation" and spec.faults is not None:
        for leaf in range(tree.leaf_count):
            here = slice(*np.searchsorted(leaves, [leaf, leaf + 1]).tolist())
            parties = here.stop - here.start
            if parties > 1 and not _has_sum(dropout_phase[here], threshold_of(spec.faults, parties)):
                formed[leaf], heard[here] = False, False
    terms, failed = _terms(plan, number, index)
    if failed.any():
        assert spec.faults is not None
        gone = np.bincount(leaves[heard & (dropout_phase < Phase.DONE)], minlength=tree.leaf_count) > 0
        once = gone | (spec.faults.when_supernode_fails == "skip")
        terms = tuple(served[:1] if only else served for served, only in zip(terms, once, strict=True))
        formed &= (failed == 0) | (~once & (failed < tree.devices))
    return Dropouts(dropout_phase, heard, formed, terms)


def _has_sum(dropout_phase: IntArray, threshold: int) -> bool:
    drop = {phase: np.flatnonzero(dropout_phase == phase).tolist() for phase in PHASES}
    try:
        survivors_of(len(dropout_phase), threshold, drop)
    except BelowThresholdError:
        return False
    return True


def _dropouts(
    faults: Faults | None, seed: int, number: int, index: int, devices: IntArray, count: int
) -> IntArray:
    dropout_phase = np.full(len(devices), int(Phase.DONE), dtype=np.int64)
    if faults is None or not any(faults.drop_rates):
        return dropout_phase
    draws = generator(seed, Stream.FAULTS, _DROPOUTS, number, index).random((count, len(PHASES)))[devices]
    for column, (phase, rate) in reversed(list(enumerate(zip(PHASES, faults.drop_rates, strict=True)))):
        dropout_phase[draws[:, column] < rate] = int(phase)
    return dropout_phase


def _terms(plan: TreePlan, number: int, index: int) -> tuple[tuple[tuple[int, ...], ...], IntArray]:
    """The supernodes of each leaf in order, and how many of them failed: all but the last, or all."""
    tree, spec = plan.tree, plan.spec
    failed = np.zeros(tree.leaf_count, dtype=np.int64)
    if not plan.ledger.elections:
        return (), failed
    rate = 0.0 if spec.faults is None else spec.faults.supernodes
    found = []
    for leaf in range(tree.leaf_count):
        order = succession_of(spec.seed, number, tree, leaf)
        if rate:
            draws = generator(spec.seed, Stream.FAULTS, _FAILURES, number, index, leaf).random(len(order))
            failed[leaf] = len(order) if (draws < rate).all() else int(np.argmin(draws < rate))
        found.append(order[: int(failed[leaf]) + 1])
    return tuple(found), failed
