"""The final score of several runs against their ε towards the cloud, the public, or other workers."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

from sfumato.report import formatting as text
from sfumato.report.figures.curves import RunCurve, score_axis
from sfumato.report.figures.figure import Figure, Json, colour, epsilon_axis, over_legend
from sfumato.report.results.comparability import by_score_and_data, have_comparable_epsilons
from sfumato.report.results.series import Series
from sfumato.report.results.summary import Summary, score_text
from sfumato.run_folder.headline import Headline

_TOWARDS: tuple[tuple[str, Callable[[Summary], float]], ...] = (
    ("the cloud", lambda one: one.epsilon_cloud),
    ("the public", lambda one: one.epsilon_public),
    ("other workers", lambda one: one.epsilon_peers),
)


def score_against_epsilon_figures(series: Sequence[Series], summaries: Sequence[Summary]) -> list[Figure]:
    """A figure for each kind of observer towards whom at least two runs have different, finite ε.

    Empty where runs are judged by different scores or on different data, or have ε that cannot be compared.
    ``series``: the runs of the page; ``summaries``: one for each of them.
    """
    scores = set(by_score_and_data(series))
    if len(scores) > 1 or not have_comparable_epsilons(series):
        return []
    ((score, _),), drawn, seen = scores, list[Figure](), set[tuple[str, ...]]()
    for whom, of in _TOWARDS:
        shown = [
            (number, one, summary, of(summary))
            for number, (one, summary) in enumerate(zip(series, summaries, strict=True))
            if math.isfinite(of(summary)) and math.isfinite(summary.final_score)
        ]
        written = tuple(text.epsilon(epsilon) for *_, epsilon in shown)
        if len(set(written)) > 1 and written not in seen:
            seen.add(written)
            drawn.append(_figure(score, whom, shown, left=len(series) - len(shown)))
    return drawn


def _figure(
    score: Headline, whom: str, shown: Sequence[tuple[int, Series, Summary, float]], *, left: int
) -> Figure:
    """The figure of a score against ε towards ``whom``, a mark for each run.

    ``shown``: number, runs, summary and ε; ``left``: how many runs have no finite ε and no mark.
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
    seeds = "Bars: 95 % interval over seeds." if any(len(one.runs) > 1 for _, one, *_ in shown) else ""
    single = "" if seeds else "One seed each: small differences may be chance."
    missing = f"{text.how_many(left, 'run')} without a finite ε or score has no mark." if left else ""
    way = "up" if score.higher_is_better else "down"
    rows = [(one.name, text.epsilon(epsilon), score_text(score, one)) for _, one, _, epsilon in shown]
    said = " ".join(f"{name}: {value} at ε {epsilon}." for name, epsilon, value in rows)
    layout = over_legend(360, data) | {
        "showlegend": True,
        "hovermode": "closest",
        "xaxis": epsilon_axis(epsilons, f"ε towards {whom}{delta}"),
        "yaxis": score_axis(score, curves),
    }
    return Figure(
        title=f"{text.title(score.name)} against ε towards {whom}",
        caption=" ".join(
            filter(
                None, [f"Further {way} and to the left is better: less is learned.", seeds, single, missing]
            )
        ),
        description=f"{text.title(score.name)} against ε towards {whom}. {said}",
        data=data,
        layout=layout,
        table=text.html_table(
            ["run", "ε", score.name], rows, caption=f"Final {score.name} and ε towards {whom}", numeric=(1, 2)
        ),
        kind="score-against-epsilon",
    )
