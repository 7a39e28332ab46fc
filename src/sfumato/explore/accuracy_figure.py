"""The accuracy of finished runs of the same data, model and network against their ε, with the setting's ε."""

from __future__ import annotations

import math
from collections.abc import Sequence

from sfumato.explore.accounted_setting import AccountedSetting
from sfumato.explore.accuracy import FinishedRun, largest_epsilons, runs_of_same_data
from sfumato.report import formatting as text
from sfumato.report.figures.figure import NEUTRAL, PALETTE, Figure, Json, epsilon_axis

MEASURED = "accuracy-against-epsilon"
_KINDS = {"cloud": "the cloud", "public": "the public", "peer": "peers", "other-device": "other devices"}


def accuracy_against_epsilon(accounted: AccountedSetting, runs: Sequence[FinishedRun]) -> Figure | None:
    """The accuracy of finished runs against ε, a mark for each, with a line at the setting's ε.

    Runs of other data, models or networks, or with ε of another unit, under another relation or at another δ,
    are left out. ``None`` where no run has a finite ε towards an observer that the setting has one for.
    """
    own = largest_epsilons(accounted.report.guarantees)
    alike = [one.run for one in runs_of_same_data(accounted, runs) if _is_comparable(one.run, accounted)]
    for kind, whom in _KINDS.items():
        shown = [run for run in alike if kind in run.epsilons]
        if kind in own and shown:
            return _figure(shown, kind, whom, own[kind], accounted.report.delta)
    return None


def _is_comparable(run: FinishedRun, accounted: AccountedSetting) -> bool:
    """Whether the ε of a run are of the setting's unit, under its relation and at its δ."""
    theirs, own = run.spec.privacy, accounted.report.plan.spec.privacy
    alike = (theirs.unit, theirs.neighbours) == (own.unit, own.neighbours)
    return alike and math.isclose(run.delta, accounted.report.delta, rel_tol=1e-9)


def _figure(runs: Sequence[FinishedRun], kind: str, whom: str, own: float, delta: float) -> Figure:
    """The figure of accuracy against ε towards ``whom``.

    Args:
        runs: one point each, all with a guarantee towards this kind of observer.
        kind: of the observer.
        whom: the observer in words.
        own: ε of the setting, drawn as a line.
        delta: of every ε.
    """
    epsilons = [run.epsilons[kind] for run in runs]
    said = [
        f"{run.folder.name}: {text.percent(run.accuracy)} at ε = {text.epsilon(epsilon)}"
        for run, epsilon in zip(runs, epsilons, strict=True)
    ]
    marks: Json = {
        "type": "scatter", "mode": "markers", "x": epsilons, "y": [run.accuracy for run in runs],
        "hovertext": list(map(text.plotly_label, said)), "hoverinfo": "text",
        "marker": {"size": 11, "color": PALETTE[0]}, "showlegend": False,
    }  # fmt: skip
    axis = epsilon_axis([*epsilons, own], f"ε towards {whom}{text.at_delta(delta)}")
    line = {"color": NEUTRAL, "width": 1.5, "dash": "dash"}
    across = {"x0": own, "x1": own, "y0": 0, "y1": 1, "yref": "paper"}
    word = {"text": "this setting", "y": 1, "yref": "paper", "yanchor": "bottom", "showarrow": False}
    at = math.log10(own) if axis.get("type") == "log" else own
    layout: Json = {
        "height": 320,
        "margin": {"l": 64, "r": 16, "t": 30, "b": 56},
        "xaxis": axis,
        "yaxis": {"title": {"text": "accuracy"}, "tickformat": ".0%", "range": [0, 1.02]},
        "shapes": [{"type": "line", "line": line} | across],
        "annotations": [word | {"x": at}],
    }
    told = "Accuracy of finished runs of the same data, model and network against their ε"
    return Figure(
        title="Accuracy against ε",
        caption=f"{told}.",
        description=f"{told}. {'; '.join(said[:20])}. This setting has ε = {text.epsilon(own)}.",
        data=[marks],
        layout=layout,
        kind="accuracy-against-epsilon",
    )
