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
_ULP = 2.0**-23


def keep_within_(
    plan: TreePlan,
    messages: Tensor,
    bounds: npt.NDArray[np.float64],
    models: Tensor,
    number: int,
    index: int,
) -> None:
    """Refuse to send what the accountant was not told about; take float32 rounding off, in place.

    Clipped steps add up to a message that may exceed the bound of their sum, as every step rounds the
    model it moves. That much is scaled away, so that the bound holds of what is sent; more than that is
    no rounding.

    Args:
        plan: resolved and calibrated.
        messages: float32 ``[p, M]``.
        bounds: what the schedule declared, ``[p]``.
        models: that the steps started from, ``[leaves, M]``.
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
    rounding = _ROUNDING * allowed
    if clip.kind == "step":
        steps = plan.aggregations[index].step + 1
        rounding = rounding + _ULP * steps * torch.linalg.vector_norm(models, dim=1).max()
    if not bool((norms <= allowed + rounding).all()):
        worst = int((norms / allowed).nan_to_num(nan=math.inf).argmax())
        raise EnvelopeError(
            f"round {number + 1}, {plan.ledger.steps[index].name}: a message has norm "
            f"{float(norms[worst]):.6g}, but the schedule declared at most {float(allowed[worst]):.6g}; "
            "nothing of this round was sent"
        )
    messages.mul_(scale_factors(norms / allowed, 1.0)[:, None])
