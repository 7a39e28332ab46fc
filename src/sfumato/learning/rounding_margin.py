"""How far below its norm a gradient is clipped, so that a message moves by no more than is charged.

A message that is a sum of clipped gradients is charged by what a record moves it: one or two gradients, of
steps or of examples. It is added up in float32, as a drift from where training started, and that is off by a
share of its own length, which may be that of many gradients. Gradients are therefore clipped to a little less
than their norm: the least that keeps the moves of all records, with all rounding, within what is charged. The
derivation is in docs/accounting.md, *Rounding*. What a margin follows from is public: never who was drawn.
"""

from __future__ import annotations

import math
from dataclasses import replace

from torch import Tensor

from sfumato.errors import SpecError
from sfumato.learning.batches import BatchPlan
from sfumato.learning.example_clip import BLOCK
from sfumato.learning.local_training import LocalSGD
from sfumato.learning.norms import row_norms
from sfumato.schedule.local_steps import momentum_gain
from sfumato.schedule.message_grid import ROUNDINGS

_UNIT = 1.01 * 2.0**-24  # n roundings amount to less than n times this, for n up to 160,000
# Of norms in float32, blocks of 1,024 added up in any order, and of the factor; then of the grid of sums.
_OF_A_MOVE = 1056 + ROUNDINGS
_TAIL = 69.0  # more are drawn with probability below exp(-69), 1e-30
_MOST = 0.25


def with_margin(sgd: LocalSGD, batches: BatchPlan, start: Tensor, *, noisy: bool) -> LocalSGD:
    """``sgd`` with clip norms so much smaller that rounding cannot lengthen a message beyond its bound.

    The bound is the sensitivity that the accountant charges; messages are float32.

    Args:
        sgd: local SGD with the clip norms, of steps or of examples, that the accountant charges.
        batches: of any of the devices; only their public numbers (steps, width, divisor) are used.
        start: models that devices start from ``[G, M]``.
        noisy: whether the device adds noise at every step, so that what follows may be rounded freely.

    Raises:
        SpecError: float32 is too coarse: more than a quarter of a norm would be needed.
    """
    steps = batches.rows.shape[1]
    gain = momentum_gain(steps, sgd.momentum)
    if sgd.step_clip is not None:
        sgd = replace(sgd, step_clip=sgd.step_clip * (1 - _rounding_share(8 * gain)))
    if sgd.example_clip is None:
        return sgd
    divisor = batches.divisor or batches.width
    most = divisor if batches.divisor is None else largest_likely_batch(divisor)
    blocks = -(-most // BLOCK)
    roundings = 2.0 * most * (BLOCK + blocks + 4)
    if not noisy:
        decayed = 0.0
        if sgd.weight_decay and len(start):
            decayed = sgd.weight_decay * steps * float(row_norms(start).max()) * divisor / sgd.example_clip
        roundings += 2 * (most * gain + decayed) * (blocks + 6)
    return replace(sgd, example_clip=sgd.example_clip * (1 - _rounding_share(roundings)))


def largest_likely_batch(expected: int) -> int:
    """A number of examples that a Poisson batch of mean ``expected`` exceeds with probability below 1e-30.

    By Bernstein's inequality.
    """
    return math.ceil(expected + _TAIL / 3 + math.sqrt((_TAIL / 3) ** 2 + 2 * _TAIL * expected))


def _rounding_share(roundings: float) -> float:
    """Give the share of a norm, 0 to 0.25, that so many float32 ``roundings`` may add.

    Raises:
        SpecError: it is more than a quarter.
    """
    share = (roundings + _OF_A_MOVE) * _UNIT
    if not share <= _MOST:
        raise SpecError(
            "privacy.clip.kind",
            None,
            "needs fewer local steps, smaller batches or less weight decay where gradients are clipped: "
            f"rounding in single precision would need {share:.2g} of the norm as room",
        )
    return share
