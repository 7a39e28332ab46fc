"""Whether a difference between the scores of two runs may be chance."""

from __future__ import annotations

import math
from collections.abc import Sequence

from sfumato.report.formatting import whole
from sfumato.report.results.series import Series
from sfumato.run_folder.headline import ACCURACY, Headline

MAY_BE_CHANCE = "may be chance"


def by_chance(accuracies: Sequence[float], count: int) -> float:
    """By how much two ``accuracies`` on ``count`` test examples may differ by the draw of the examples alone.

    As a share. It is 1.96 standard errors of the difference of two shares, as if each had test examples of
    its own. On the same examples models tend to err alike, so this bound is rather too large. Of a single
    share, by how much one that is expected may be missed.

    Args:
        accuracies: one or two, from 0 to 1.
        count: above 0.
    """
    return 1.96 * math.sqrt(sum(share * (1 - share) for share in accuracies) / count)


def tested_examples(one: Series, score: Headline) -> int:
    """How many test examples an accuracy is of; 0 for another score, and where that is not known."""
    return sum((one.test_labels or {}).values()) if score is ACCURACY else 0


def within_chance(one: Series, score: Headline, values: Sequence[float]) -> bool:
    """Whether two ``values`` of a score on the test examples of ``one`` differ by at most `by_chance`.

    False where their number is not known, and of other scores than accuracy.
    """
    count = tested_examples(one, score)
    return bool(count) and abs(values[0] - values[1]) <= by_chance(values, count)


def note_on_chance(runs: Sequence[Series], score: Headline, values: Sequence[float]) -> str:
    """The note that two runs have one seed each, and that what is seen may be chance; "" with several seeds.

    Chance is told of accuracies within `by_chance` of each other.

    Args:
        runs: both.
        score: by which they are compared.
        values: of the score, one a run.
    """
    if any(len(one.runs) > 1 for one in runs):
        return ""
    if not within_chance(runs[0], score, values):
        return "one seed each"
    return f"one seed each, {whole(tested_examples(runs[0], score))} test examples: {MAY_BE_CHANCE}"


def note_on_difference(score: Headline, one: Series, other: Series) -> str:
    """A note, after a space, that the difference between two runs' final scores may be chance, and why.

    "" where it is larger than that, or where chance is not known.
    """
    ends = [each.final(score.column) for each in (one, other)]
    values, widths = [end.value for end in ends], [end.half_width for end in ends]
    if not any(map(math.isnan, widths)):
        within = abs(values[0] - values[1]) <= math.hypot(*widths)
        return " (may be chance: less than the spread over seeds)" if within else ""
    counts = {tested_examples(each, score) for each in (one, other)}
    if len(counts) == 1 and within_chance(one, score, values):
        return f" (may be chance: {whole(counts.pop())} test examples)"
    return ""
