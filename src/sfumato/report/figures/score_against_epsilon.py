"""The final score of several runs against their ε towards the cloud, the public, or other workers."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

from sfumato.report import formatting as text
from sfumato.report.figures.curves import RunCurve, score_axis
from sfumato.report.figures.figure import NEUTRAL, Figure, Json, colour, epsilon_point_axis, over_legend
from sfumato.report.results.comparability import by_score_and_data, have_comparable_epsilons
from sfumato.report.results.cost_of_privacy import CostOfNoise
from sfumato.report.results.series import Series
from sfumato.report.results.summary import Summary, score_text
from sfumato.run_folder.headline import Headline

_TOWARDS: tuple[tuple[str, Callable[[Summary], float]], ...] = (
    ("the cloud", lambda one: one.epsilon_cloud),
    ("the public", lambda one: one.epsilon_public),
    ("another edge", lambda one: one.epsilon_other_edge),
    ("its own edge (if not trusted)", lambda one: one.epsilon_own_edge),
    ("other workers", lambda one: one.epsilon_peers),
)


def score_against_epsilon_figures(
    series: Sequence[Series], summaries: Sequence[Summary], costs: Sequence[CostOfNoise] = ()
) -> list[Figure]:
    """A figure for each kind of observer towards whom at least two runs have different, finite ε.

    [] where runs are judged by different scores or on different data, or have ε that cannot be compared.

    Args:
        series: the runs.
        summaries: one for each series.
        costs: what the noise costs the runs of which that is known; a line is drawn where all are compared
            with one run.
    """
    scores = set(by_score_and_data(series))
    if len(scores) > 1 or not have_comparable_epsilons(series):
        return []
    ((score, _),), drawn, seen = scores, list[Figure](), set[tuple[str, ...]]()
    silent = {cost.other.name: cost.other for cost in costs}
    twin = next(iter(silent.values())) if len(silent) == 1 else None
    for whom, of in _TOWARDS:
        shown = [
            (number, one, summary, of(summary))
            for number, (one, summary) in enumerate(zip(series, summaries, strict=True))
            if math.isfinite(of(summary)) and math.isfinite(summary.final_score)
        ]
        written = tuple(text.epsilon(epsilon) for *_, epsilon in shown)
        if len(set(written)) > 1 and written not in seen:
            seen.add(written)
            drawn.append(_figure(score, whom, shown, twin, left=len(series) - len(shown)))
    return drawn


def _figure(
    score: Headline,
    whom: str,
    shown: Sequence[tuple[int, Series, Summary, float]],
    twin: Series | None,
    *,
    left: int,
) -> Figure:
    """The figure of a score against ε towards ``whom``, a mark for each run.

    Args:
        score: of all runs.
        whom: kind of observer, in words.
        shown: number, runs, summary and ε of those with a mark.
        twin: the run without noise of all of them, at whose score a line is drawn; ``None``: no line.
        left: how many runs have no finite ε and no mark.
    """
    data: list[Json] = []
    for number, one, summary, epsilon in shown:
        mark: Json = {"type": "scatter", "mode": "markers", "name": text.plotly_label(one.name)}
        mark |= {"x": [epsilon], "y": [summary.final_score], "marker": {"size": 12, "color": colour(number)}}
        if math.isfinite(summary.final_score_half_width):
            mark["error_y"] = {"type": "data", "array": [summary.final_score_half_width], "thickness": 1}
        said = f"ε = {text.epsilon(epsilon)}, {score_text(score, one)}"
        data.append(
            mark | {"hovertemplate": f"{text.plotly_label(said)}<extra>{text.plotly_label(one.name)}</extra>"}
        )
    epsilons = [epsilon for *_, epsilon in shown]
    delta = text.at_delta(shown[0][2].delta)
    curves = [RunCurve(number, one.name, one.curve(score.column)) for number, one, *_ in shown]
    curves += [] if twin is None else [RunCurve(len(shown), twin.name, twin.curve(score.column))]
    seeds = "Bars: 95 % interval over seeds." if any(len(one.runs) > 1 for _, one, *_ in shown) else ""
    missing = f"{text.how_many(left, 'run')} without a finite ε or score has no mark." if left else ""
    way = "up" if score.higher_is_better else "down"
    level = math.nan if twin is None else twin.final(score.column).value
    silent = "" if math.isnan(level) else f"Dotted: without noise, {score.text(level)}."
    data += [_dotted_line(level, epsilons)] if silent else []
    rows = [(one.name, text.epsilon(epsilon), score_text(score, one)) for _, one, _, epsilon in shown]
    said = " ".join(f"{name}: {value} at ε {epsilon}." for name, epsilon, value in rows)
    layout = over_legend(360, data) | {
        "showlegend": True,
        "hovermode": "closest",
        "xaxis": epsilon_point_axis(epsilons, f"ε towards {whom}{delta}"),
        "yaxis": score_axis(score, curves),
    }
    better = f"Better is further {way}, and further to the left: there the observer learns less."
    return Figure(
        title=f"{text.title(score.name)} against ε towards {whom}",
        caption=" ".join(filter(None, [better, silent, seeds, missing])),
        description=f"{text.title(score.name)} against ε towards {whom}. {said}",
        data=data,
        layout=layout,
        table=text.html_table(
            ["run", "ε", score.name], rows, caption=f"Final {score.name} and ε towards {whom}", numeric=(1, 2)
        ),
        kind="score-against-epsilon",
    )


def _dotted_line(level: float, epsilons: Sequence[float]) -> Json:
    """The Plotly trace of a dotted line at a score, from the least to the largest of ``epsilons``."""
    return {
        "type": "scatter",
        "mode": "lines",
        "name": "without noise",
        "x": [min(epsilons), max(epsilons)],
        "y": [level, level],
        "line": {"color": NEUTRAL, "dash": "dot"},
        "hoverinfo": "skip",
    }
