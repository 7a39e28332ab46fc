"""What a report says of ε in words, and what privacy costs in accuracy."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

from sfumato.report.formatting import epsilon as text_epsilon
from sfumato.report.formatting import percent
from sfumato.report.results.comparability import sends_over_the_air
from sfumato.report.results.series import Series
from sfumato.rounding import certainty
from sfumato.spec.used_keys import WITHOUT_NOISE

_SAME = ("data", "model", "topology", "training", "compression", "faults")
_CERTAIN = 16.0  # one in ten million is left


def in_words(kind: str, epsilon: float) -> str:
    """What ``epsilon`` means for one unit."""
    sure = "almost certain" if epsilon > _CERTAIN else f"at most {certainty(epsilon)} sure"
    return (
        f"At ε = {text_epsilon(epsilon)} an observer that starts at 50 : 50 on whether a {kind}'s data were "
        f"used can become {sure}."
    )


def cost_of_privacy(series: Sequence[Series]) -> list[str]:
    """Accuracy that each run with noise ends below one without any that is otherwise the same."""
    silent = [one for one in series if not has_noise(one)]
    said = []
    for one in series:
        reached = one.final("accuracy").value
        beside = [other for other in silent if _same(one, other)] if has_noise(one) else []
        finals = [(other.final("accuracy").value, other) for other in beside]
        measured = [(value, other) for value, other in finals if not math.isnan(value)]
        if math.isnan(reached) or not measured:
            continue
        best, other = max(measured, key=lambda pair: pair[0])
        points = 100 * (best - reached)
        on_air = sends_over_the_air(one.first.spec_dict)
        what = "noise, the receiver's included," if on_air else "privacy"
        cost = (
            f"{what[0].upper()}{what[1:]} costs {points:.1f} points of accuracy"
            if points >= 0.05
            else f"No cost of {what} is seen"
        )
        seeds = " (one seed each)" if len(one.runs) == len(other.runs) == 1 else ""
        said.append(
            f"{cost}: {one.name} ends at {percent(reached)}, and {other.name}, which has no noise, at "
            f"{percent(best)}{seeds}."
        )
    return said


def adds_noise(one: Series) -> bool:
    """Whether anybody adds noise in a run."""
    spec = one.first.spec_dict
    noise = spec.get("privacy", {}).get("noise") or {}
    kind = noise.get("kind") if isinstance(noise, Mapping) else noise
    return spec["protocol"] not in WITHOUT_NOISE and kind not in (None, "none")


def has_noise(one: Series) -> bool:
    """Whether there is any noise in what is averaged: over the air the receiver's is, whatever is added."""
    return adds_noise(one) or sends_over_the_air(one.first.spec_dict)


def _same(one: Series, other: Series) -> bool:
    """Whether two runs differ in privacy only, as far as accuracy goes."""
    if one.rounds_played != other.rounds_played:
        return False
    return all(_agree(one.first.spec_dict.get(name), other.first.spec_dict.get(name)) for name in _SAME)


def _agree(one: Any, other: Any) -> bool:
    """Whether two sections say the same, as far as both say anything: earlier versions knew fewer keys."""
    if isinstance(one, Mapping) and isinstance(other, Mapping):
        return all(_agree(one[key], other[key]) for key in one.keys() & other.keys())
    return bool(one == other)
