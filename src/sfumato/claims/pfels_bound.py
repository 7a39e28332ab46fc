"""What PFELS's convergence bound (23) says about k: compression error falls with it, privacy error grows.

The bound holds constants of the loss that nobody knows. Its own conditions bound them: gradients are at most
``C1``, so their variance ``zeta^2`` is at most ``C1^2``; step sizes are at most ``1/(24 tau L (lambda +
1))``, so ``eta tau L`` is taken as 1/48; data alike (``kappa = 0``, ``gamma = 1``). In units of ``C1^2`` and
with the alignment ``a = beta C / sigma0`` its two terms are

    compression   8 (eta tau L + 3/2) (1 - p) / r
    privacy       4 eta tau L k mean(1 / a^2) / r^3

As derived, without the slips of Lemma 3 (erratum P8), the first has no 1/r and the second r^2 in place of
r^3: both are r times as large, and their minimum is where it was.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from sfumato.schedule.air.power_control import AirPlan
from sfumato.schedule.participation import draw_participants
from sfumato.schedule.tree import TreePlan
from sfumato.spec.transport import Compression

_STEP = 1 / 48
_RATIOS = tuple(round(0.05 * i, 2) for i in range(1, 21))
_MOST_ROUNDS = 100


def bound_terms(
    ratio: float, parameters: int, participants: float, inverse_square: float
) -> tuple[float, float]:
    """The compression error and the privacy error of the bound (23) as printed, in units of ``C1^2``.

    Args:
        ratio: k/d, the share of coordinates that are sent.
        parameters: d.
        participants: r.
        inverse_square: mean of ``1 / a^2`` over the rounds.
    """
    compression = 8 * (_STEP + 1.5) * (1 - ratio) / participants
    privacy = 4 * _STEP * ratio * parameters * inverse_square / participants**3
    return compression, privacy


def advised_ratio(plan: TreePlan, parameters: int) -> float | None:
    """The ratio k/d, of 0.05, 0.1, …, 1, for which PFELS's bound (23) is least, with this plan's channels.

    Channels are those of up to 100 rounds. ``None`` where nothing is sent over the air, or power control is
    not by PFELS's (36).

    Args:
        plan: with the channels of all rounds.
        parameters: d, the number of the model's parameters.
    """
    air = plan.air
    if air is None or air.rule != "pfels":
        return None
    participants = float(air.participants.mean())

    def bound(ratio: float) -> float:
        """The sum of both errors of the bound at a ``ratio``."""
        return sum(
            bound_terms(ratio, parameters, participants, _inverse_square(plan, air, ratio, parameters))
        )

    return min(_RATIOS, key=bound)


def _inverse_square(plan: TreePlan, air: AirPlan, ratio: float, parameters: int) -> float:
    """Mean of ``1 / a^2`` over leaves and up to 100 rounds, if ``ratio`` of every update were sent.

    ``parameters``: d, of the model.
    """
    tried = replace(
        air, spec=plan.spec.model_copy(update={"compression": Compression(kind="rand-k", ratio=ratio)})
    )
    found = []
    for number in range(min(plan.spec.training.rounds, _MOST_ROUNDS)):
        devices = draw_participants(plan, number)
        found.append(tried.sending(number, 0, devices, np.zeros(len(devices)), parameters).alignment)
    alignment = np.concatenate(found)
    return float((1 / alignment[alignment > 0] ** 2).mean())
