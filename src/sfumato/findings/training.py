"""Findings on how a model is trained: step sizes, transmit power, clipping, and sums that were not formed."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

from sfumato.data.builtin_datasets import BUILT_IN
from sfumato.errors import first_names
from sfumato.radio.channels import radio_of
from sfumato.rounding import number
from sfumato.schedule.base import Plan
from sfumato.schedule.local_steps import learning_rate
from sfumato.spec.radio import LinkRadio

LARGEST_RATE = 10.0
"""Gradient descent diverges above 2 / smoothness; with inputs of order 1 smoothness is far above 1/5."""
LEAST_PATH = 1e-3
"""Learning rate times local steps of the training; gradients are of order 1, weights of order 0.01 to 1."""
LEAST_POWER_DBM, MOST_POWER_DBM = -30.0, 60.0
"""1 µW and 1 kW: phones send with 10 to 33 dBm, base stations with up to about 50."""
LEAST_SNR_DB, MOST_SNR_DB = -50.0, 90.0
"""Receivers tell signal from noise over some 140 dB; beyond, the channel is silence or no channel at all."""
NEVER, ALWAYS = 1e-3, 0.99
_CLIPPED = {
    "update": (
        "message",
        "the messages",
        "nearly all have the same length then, and what is beyond it is lost; a larger privacy.clip.norm "
        "{now}keeps more, with noise in proportion to it",
    ),
    "step": (
        "gradient of a local step",
        "the gradients of local steps",
        "nearly all steps have the same length then, whatever the gradients, so that near the optimum they "
        "may overshoot; a smaller training.learning_rate makes them shorter, a larger privacy.clip.norm {now}"
        "keeps more of their differences, with noise in proportion to it",
    ),
    "example": ("gradient of an example", "the gradients of examples", ""),  # usual there: asks for nothing
}
"""What a clip of each kind bounds: one of it, all of it, and what to do where nearly all is clipped."""


def warn_of_odd_learning_rate(plan: Plan) -> str | None:
    """A warning about a learning rate that makes training diverge, or that moves no weight; or ``None``."""
    training = plan.spec.training
    rates = [learning_rate(training, round_number) for round_number in (0, training.rounds - 1)]
    if max(rates) > LARGEST_RATE:
        inputs = "unless all inputs are far below 1 (those of a file are used as they are)"
        if plan.spec.data.source in BUILT_IN:
            inputs = "for every model here (inputs are standardised)"
        return (
            f"training.learning_rate is up to {number(max(rates))}: above {LARGEST_RATE:g} steps of "
            f"gradient descent diverge {inputs}"
        )
    steps = training.rounds * (training.local_steps or training.local_epochs or 1)
    if max(rates) * steps < LEAST_PATH:
        return (
            f"training.learning_rate is at most {number(max(rates))} over {steps:,} local steps: together "
            "less than "
            f"{LEAST_PATH:g}, which moves no weight by more than that many gradients"
        )
    return None


def warn_of_odd_radio_power(plan: Plan) -> str | None:
    """A warning about a transmit power or signal-to-noise ratio that no radio has; ``None`` otherwise."""
    radio = radio_of(plan.spec)
    if isinstance(radio, LinkRadio):
        powers = {"radio.power_dbm": radio.power_dbm, "radio.broadcast_power_dbm": radio.broadcast_power_dbm}
        for key, power in powers.items():
            if not LEAST_POWER_DBM <= power <= MOST_POWER_DBM:
                return (
                    f"{key} is {power:g} dBm: radios send with {LEAST_POWER_DBM:g} dBm (1 µW) to "
                    f"{MOST_POWER_DBM:g} dBm (1 kW); energies and delays mean nothing"
                )
        return None
    low, high = radio.snr_db
    if low < LEAST_SNR_DB or high > MOST_SNR_DB:
        return (
            f"radio.snr_db is {low:g} to {high:g} dB: receivers work with {LEAST_SNR_DB:g} to "
            f"{MOST_SNR_DB:g} dB; "
            "energies and delays mean nothing"
        )
    return None


def warn_of_idle_clip(
    fractions: Sequence[float], kind: str = "update", norm: object = None, *, learned: bool = True
) -> str | None:
    """A warning about a clip that changed nothing in the run, or nearly everything; ``None`` otherwise.

    Args:
        fractions: share of what was clipped, for each round; NaN where nothing is clipped.
        kind: ``privacy.clip.kind``, which says what is clipped.
        norm: ``privacy.clip.norm``, which the sentence states where it is one number.
        learned: whether the model is better than guessing; where it is not, it is not near the optimum, which
            the sentence on clipped local steps is about.
    """
    measured = [fraction for fraction in fractions if not math.isnan(fraction)]
    if not measured:
        return None
    one, many, advice = _CLIPPED[kind]
    known = f" = {number(float(norm))}" if isinstance(norm, int | float) else ""
    if max(measured) <= NEVER:
        return (
            f"the clip never acted: no {one} was as long as privacy.clip.norm{known}, and the noise is in "
            "proportion to that norm; a smaller one gives the same ε with less noise"
        )
    if min(measured) >= ALWAYS and advice and (learned or kind != "step"):
        always = len(measured) == len(fractions)
        when = "in every round the clip" if always else "in every round that uses the clip it"
        now = f"than{known.removeprefix(' =')} " if known else ""
        return f"{when} acted on at least 99 % of {many}: {advice.format(now=now)}"
    return None


def warn_of_empty_sums(lost: Mapping[str, Any] | None) -> str | None:
    """A warning about sums that were not formed (``realised.lost_sums`` of a ledger); or ``None``."""
    if lost is None:
        return None
    by = sorted(lost["by"].items(), key=lambda one: -one[1])
    named = [f"{name} ({count:,} {'time' if count == 1 else 'times'})" for name, count in by]
    return (
        f"{sum(lost['by'].values()):,} of {lost['of']:,} sums of devices' messages were not formed, because "
        f"too few devices were left or the supernode failed: {first_names(named)}; "
        "nothing was sent on for them"
    )
