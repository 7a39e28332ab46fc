"""The check that no message is longer than what the schedule declared to the accountant."""

from __future__ import annotations

import math

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from sfumato.errors import EnvelopeError
from sfumato.learning.norms import row_norms, scale_factors
from sfumato.schedule.tree import TreePlan

_ROUNDING = 1e-5


def keep_within_(
    plan: TreePlan,
    messages: Tensor,
    bounds: npt.NDArray[np.float64],
    number: int,
    index: int,
) -> None:
    """Refuse to send what the accountant was not told about; take float32 rounding off, in place.

    What is longer than its bound by no more than rounding is scaled down, so that the bound holds of what is
    sent.

    Args:
        plan: resolved and calibrated.
        messages: float32 ``[p, M]``.
        bounds: what the schedule declared, ``[p]``.
        number: of the round.
        index: of the aggregation.

    Raises:
        EnvelopeError: a message is longer than declared, or not finite.
    """
    clip = plan.spec.privacy.clip
    if clip is None or not len(messages):
        return
    norms = row_norms(messages)
    allowed = torch.as_tensor(bounds, dtype=torch.float32, device=messages.device)
    if bool((norms <= allowed).all()):
        return
    if not bool((norms <= allowed * (1 + _ROUNDING)).all()):
        worst = int((norms / allowed).nan_to_num(nan=math.inf).argmax())
        raise EnvelopeError(
            f"round {number + 1}, {plan.ledger.steps[index].name}: a message has norm "
            f"{float(norms[worst]):.6g}, but the schedule declared at most {float(allowed[worst]):.6g}; "
            "nothing of this round was sent"
        )
    messages.mul_(scale_factors(norms / allowed, 1.0)[:, None])
