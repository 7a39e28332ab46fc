"""What an ε means, in words: how sure an observer may become, what it rests on, and what a run adds."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

from sfumato.findings.large_epsilons import LARGE_EPSILON
from sfumato.privacy.guarantee import Guarantee
from sfumato.report.formatting import epsilon, how_many, join_names
from sfumato.report.results.spec_sections import clip_kind_of, row_in_words, section_of, steps_of_everybody
from sfumato.rounding import certainty, number
from sfumato.run_folder.recorded_privacy import RecordedPrivacy

FROM_EVEN_ODDS = "observer that starts at 50 : 50"
"""Every sentence on what an ε means contains this."""
_ALMOST_CERTAIN = "almost certain"
_REASONABLE = "Ponomareva et al. 2023 call ε ≤ 10 reasonable"
_YARDSTICK = "Ponomareva et al. 2023 call ε ≤ 1 strong, ε ≤ 10 reasonable"
"""How to DP-fy ML, section 5, for all data of a person (docs/epsilon.md)."""
_WEAK = 5.0  # of ε: even odds become 148 to 1


def epsilon_in_words(kind: str, value: float) -> str:
    """A sentence on what an ε of ``value`` means for one unit of ``kind`` (device, record or person).

    ``value``: finite.
    """
    sure = sure_in_words(value, 0.5)
    most = sure if sure == _ALMOST_CERTAIN else f"at most {sure} sure, leaving δ aside"
    if sure == _ALMOST_CERTAIN or value <= 1:
        weak = ""
    else:
        weak = f": little protection, though {_REASONABLE}" if value > _WEAK else f" ({_YARDSTICK})"
    return (
        f"At ε = {epsilon(value)} an {FROM_EVEN_ODDS} on whether a {kind}'s data were "
        f"used can become {most}{weak}."
    )


def several_in_words(whose: str, values: Sequence[float]) -> str:
    """A sentence on what several ε, ``values``, mean for one unit; "" without any.

    ``whose`` data: ``a device's``. The ε at which an observer becomes almost certain come last, together.
    """
    sure = {value: sure_in_words(value, 0.5) for value in values}
    limited = [f"{told} sure at ε = {epsilon(value)}" for value, told in sure.items() if told[0].isdigit()]
    certain = [f"ε = {epsilon(value)}" for value, told in sure.items() if told == _ALMOST_CERTAIN]
    said = [f"at most {join_names(limited)}, leaving δ aside"] if limited else []
    said += [f"{_ALMOST_CERTAIN} at {join_names(certain)}"] if certain else []
    if not said:
        return ""
    return f"An {FROM_EVEN_ODDS} on whether {whose} data were used can become {', and '.join(said)}."


def draw_sentence(training: Mapping[str, Any], rates: Sequence[float], kind: str) -> list[str]:
    """A list with a sentence on the probability that a record or person is drawn for a local step.

    [] without such draws.

    Args:
        training: section of the resolved spec; where all devices take part in every round with a fixed number
            of local steps, the sentence has their number.
        rates: each device's probability to draw one of its records or persons; empty: not drawn one by one.
        kind: record or person.
    """
    drawn = [rate for rate in rates if 0 < rate < 1]
    if not drawn:
        return []
    ends = " to ".join(dict.fromkeys(map(number, (min(drawn), max(drawn)))))
    steps = steps_of_everybody(training)
    which = f"each of the {how_many(steps, 'local step')}" if steps > 1 else "a local step"
    return [
        f"For {which} a {kind} is drawn with probability {ends}; these ε hold while nobody sees the draw."
    ]


def unit_sentences(spec: Mapping[str, Any], kind: str, place: str, held: str = "") -> list[str]:
    """Two sentences: what a ``record`` or ``person`` is, and what has less protection, or none.

    A person with several records has less. A whole device is not protected (docs/records.md).

    Args:
        spec: resolved.
        kind: of the unit.
        place: what a device is called.
        held: how many each device has, such as "287 or 288"; "" where not known.
    """
    column, row = section_of(spec, "data").get("person_column"), row_in_words(spec)
    whole = "has no finite ε" if clip_kind_of(spec) == "example" else "is not accounted for"
    if kind == "record":
        many = f" A {place} has {held} records." if held else ""
        what = f"A record is one {f'row ({row})' if row else 'example'}, which its own {place} has.{many}"
        less = "Somebody with several records is protected less, and"
    else:
        rows = f"all rows{f' ({row} each)' if row else ''} with one value of {column or 'a column'}"
        what = f"A person is {rows}; at most one of them is in a local step."
        less = f"Their own {place} sees these rows, and"
    return [what, f"{less} a {place} as a whole, with all its data, {whole}."]


def sure_in_words(value: float, before: float) -> str:
    """How sure an observer may become at ε = ``value``, as text; ``before``: how sure it was, in (0, 1).

    "no limit" at ∞; "–" at NaN. Beyond what `LARGE_EPSILON` makes of even odds digits would mean nothing.
    """
    if math.isnan(value):
        return "–"
    if value == math.inf:
        return "no limit"
    odds = math.log(before / (1 - before)) + value
    return _ALMOST_CERTAIN if odds > LARGE_EPSILON else certainty(value, before)


def after_run_sentence(privacy: RecordedPrivacy) -> list[str]:
    """A list with a sentence on the largest ε after the run that exceeds the one guaranteed before it.

    [] where none does, as it is written.
    """
    larger = [
        (after, privacy.guarantees[place])
        for place, after in privacy.after_run.items()
        if after.epsilon > privacy.guarantees[place].epsilon
        and epsilon(after.epsilon) != epsilon(privacy.guarantees[place].epsilon)
    ]
    if not larger:
        return []
    after, row = max(larger, key=lambda pair: pair[0].epsilon)
    rounds = how_many(after.participations, "round")
    return [
        "This ε counts the chance of being drawn. After this run the largest ε is "
        f"{epsilon(after.epsilon)}, of a {row.unit_kind} that took part in {rounds}, towards "
        f"{_with_article(row)}, which knows who was drawn."
    ]


def _with_article(row: Guarantee) -> str:
    """The observer of a row in a sentence: "the cloud", "the public", or its name."""
    return f"the {row.observer}" if row.observer in ("cloud", "public") else row.observer
