"""What more ε brings: by how much the score changes between runs that differ in their noise only."""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import pairwise

from sfumato.report.formatting import epsilon, number, points_between
from sfumato.report.results.chance import note_on_difference, tested_examples
from sfumato.report.results.comparability import by_score_and_data, have_comparable_epsilons
from sfumato.report.results.epsilon_words import several_in_words
from sfumato.report.results.series import Series
from sfumato.report.results.summary import Summary, guessing_beside, unit_of_run
from sfumato.run_folder.headline import ACCURACY, Headline
from sfumato.spec.without_noise import trains_alike_but_for_noise

_MOST_STEPS = 5
_Point = tuple[Series, Summary]


def score_by_epsilon(series: Sequence[Series], summaries: Sequence[Summary]) -> list[str]:
    """A list of sentences on how the score changes with each step of ε towards the cloud.

    They say where that may be chance, and what these ε mean. Empty for runs that differ in more than noise,
    that are judged by different scores or on different data, whose ε cannot be compared, or of which fewer
    than two or more than six have a finite ε of their own.

    Args:
        series: the runs of the page.
        summaries: one for each of them.
    """
    scores = set(by_score_and_data(series))
    if len(scores) > 1 or not have_comparable_epsilons(series) or not _differ_in_noise_only(series):
        return []
    ((score, _),) = scores
    points = sorted(zip(series, summaries, strict=True), key=lambda point: point[1].epsilon_cloud)
    points = [one for one in points if math.isfinite(one[1].epsilon_cloud + one[1].final_score)]
    values = {epsilon(one.epsilon_cloud) for _, one in points}
    if not 2 <= len(points) == len(values) <= _MOST_STEPS + 1:
        return []
    steps = [_step_in_words(score, *pair) for pair in pairwise(points)]
    guessing = guessing_beside(score, [points[0][0]])
    return [
        f"What more ε towards the cloud brings in {score.name}: {'; '.join(steps)}.{guessing}",
        *_least_within_chance(score, points),
        several_in_words(f"a {unit_of_run(points[0][0].first)}'s", [one.epsilon_cloud for _, one in points]),
    ]


def _least_within_chance(score: Headline, points: Sequence[_Point]) -> list[str]:
    """A list with a sentence on the least ε whose score may be as good as the best by chance.

    [] where it is not known how much may be chance. ``points``: by rising ε.
    """
    better = max if score.higher_is_better else min
    best = better(points, key=lambda point: point[1].final_score)
    near = [point for point in points if point is best or note_on_difference(score, point[0], best[0])]
    if not _is_chance_known(score, best):
        return []
    (one, summary), most = near[0], score.text(best[1].final_score)
    if near[0] is best:
        return [f"With every smaller ε {score.name} is worse than {most} by more than chance may make it."]
    least = f"{epsilon(summary.epsilon_cloud)} ({score.text(summary.final_score)}, {one.name})"
    return [
        f"The smallest ε whose {score.name} is not worse than the best ({most}, {best[0].name}) by more than "
        f"chance may make it: {least}."
    ]


def _is_chance_known(score: Headline, point: _Point) -> bool:
    """Whether it is known by how much a score may differ by chance: by seeds, or by test examples."""
    return not math.isnan(point[1].final_score_half_width) or tested_examples(point[0], score) > 0


def _differ_in_noise_only(series: Sequence[Series]) -> bool:
    """Whether all runs have as many rounds, and specs that are the same but for noise."""
    first = series[0]
    return all(
        one.rounds_played == first.rounds_played
        and trains_alike_but_for_noise(first.first.spec_dict, one.first.spec_dict)
        for one in series[1:]
    )


def _step_in_words(score: Headline, less: _Point, more: _Point) -> str:
    """How the score changes from the run with ``less`` ε to that with ``more``, with a note on chance.

    ``from ε = 1 to 2 +3.1 points``.
    """
    before, after = less[1].final_score, more[1].final_score
    ends = f"from ε = {epsilon(less[1].epsilon_cloud)} to {epsilon(more[1].epsilon_cloud)}"
    if score is ACCURACY:
        change = f"{points_between(after, before):+.1f} points".replace("-", "−")
    else:
        change = f"{'+' if after >= before else '−'}{number(abs(after - before))}"
    return f"{ends} {change}{note_on_difference(score, less[0], more[0])}"
