"""Per-worker privacy over rounds: ε towards the worst observer, and its spread over workers."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Literal, NamedTuple

import numpy as np

from sfumato.privacy.groups.per_worker import PerWorker, per_worker
from sfumato.report import formatting as text
from sfumato.report.figures.figure import (
    LEGEND,
    MARGIN,
    BoundingLine,
    Figure,
    Json,
    colour,
    log_axis,
    needs_log_axis,
    transparent,
)
from sfumato.report.results.grouped_run import GroupedRun

_MOST_ROUNDS = 12
_MODELS: tuple[tuple[Literal[1, 2], str], ...] = (
    (1, "all other workers observe"),
    (2, "workers of other groups observe"),
)


class _RoundSpread(NamedTuple):
    """ε over workers after one round, under one threat model; `_spread` says when it is ∞ or NaN."""

    round_number: int  # from 1
    least: float  # ε of the best protected worker; see `_spread`
    median: float  # of workers that have a guarantee
    largest: float  # of them
    unprotected: int  # workers without a guarantee

    @property
    def values(self) -> tuple[float, float, float]:
        """The least, the median and the largest ε over workers in this round."""
        return self.least, self.median, self.largest


def per_worker_privacy_figure(run: GroupedRun) -> Figure | None:
    """Least, median and largest ε over workers by round, for both threat models; ``None`` without rounds."""
    at_rounds = _rounds_shown(run)
    if not at_rounds:
        return None
    spreads = [(name, _spreads(run, at_rounds, model)) for model, name in _MODELS]
    data, notes, finite = list[Json](), list[str](), list[float]()
    for number, (name, spread) in enumerate(spreads):
        last = spread[-1]
        drawn = [one for one in spread if math.isfinite(one.least)]
        finite += [value for one in drawn for value in one.values if math.isfinite(value)]
        if math.isnan(last.least):
            notes.append(text.sentence(f"{name}: there is no such observer"))
        elif last.unprotected:
            notes.append(text.sentence(f"{name}: ∞ for {text.whole(last.unprotected)} workers"))
        if drawn:
            data += _epsilon_band(drawn, name, colour(number))
    rows = [
        (name, text.whole(one.round_number), *map(text.epsilon, one.values), text.whole(one.unprotected))
        for name, spread in spreads
        for one in spread
    ]
    described = [
        f"{name}: at most {text.epsilon(spread[-1].largest)} in the end." for name, spread in spreads
    ]
    return Figure(
        title="Per-worker privacy over rounds",
        caption=(
            f"ε (δ = {text.number(run.delta)}) of all data of a worker towards the single worker that learns "
            "the most about it: per-worker privacy (PwP) of the DP-OGL paper, equation (15), as the "
            "smallest ε that Sfumato proves. If all other workers observe, that is its Threat model 1; if "
            "those of other groups do, Threat model 2. Line: the worst worker; dashed: the median; band: "
            "from the best protected worker to the worst, of those that have a guarantee."
            f"{_note_on_rounds(at_rounds)} " + " ".join(notes)
        ).strip(),
        description="Per-worker privacy over rounds. " + " ".join(described),
        data=data,
        layout=_layout(at_rounds[-1], finite, "" if data else " ".join(notes)),
        table=text.html_table(
            ["observers", "round", "least ε", "median", "largest", "workers without"],
            rows,
            caption="ε of a worker towards its worst observer: spread over workers",
            numeric=(1, 2, 3, 4, 5),
        ),
        kind="pwp",
    )


def _note_on_rounds(at_rounds: Sequence[int]) -> str:
    """A sentence, after a space, on rounds that are left out; "" where none is."""
    if len(at_rounds) == at_rounds[-1]:
        return ""
    marked = text.join_names(list(map(text.whole, at_rounds)), len(at_rounds))
    return (
        f" Computed after rounds {marked}. Between two of them a curve shows the value of the later "
        "one, an upper bound."
    )


def _layout(last_round: int, finite: Sequence[float], message: str) -> Json:
    """Plotly's layout over rounds and ε; with a ``message`` an empty plot that shows it.

    ``finite``: ε that the axis contains.
    """
    layout: Json = {
        "height": 380,
        "margin": MARGIN,
        "legend": LEGEND | {"y": -0.2},
        "hovermode": "x unified",
        "xaxis": {"title": {"text": "round"}, "tickformat": "d", "range": [0, last_round * 1.02]},
        "yaxis": {"title": {"text": "ε, worst observer"}, "rangemode": "tozero"},
    }
    if needs_log_axis(finite) and max(finite) > 1000:
        layout["yaxis"] |= log_axis(finite)
    if message:
        place = {"x": 0.5, "y": 0.5, "xref": "paper", "yref": "paper"}
        layout |= {"height": 120, "annotations": [{"text": message, "showarrow": False} | place]}
        layout["xaxis"] |= {"visible": False}
        layout["yaxis"] |= {"visible": False}
    return layout


def _rounds_shown(run: GroupedRun) -> list[int]:
    """Rounds (from 1) with the last one: at most twelve, and the rounds before and after merging.

    Fewer with sampling, where ε takes long to compute; there and where groups merge often, some of these. []
    without rounds.
    """
    rounds, every = run.releases.rounds, run.releases.merge_every
    if run.plan.is_sampled:
        pairs = len(run.rows)
        most = 5 if pairs <= 16 else 3 if pairs <= 60 else 2
    else:
        most = _MOST_ROUNDS
    if not rounds:
        return []
    if rounds <= most:
        return list(range(1, rounds + 1))
    spread = {max(1, round(rounds * i / most)) for i in range(1, most + 1)}
    # what a merge passes on arrives in the round after it, where ε jumps
    jumps = {number + after for number in range(every, rounds, every) for after in (0, 1)}
    return sorted(spread | jumps if len(jumps) <= most else spread)


def _spreads(run: GroupedRun, at_rounds: Sequence[int], model: Literal[1, 2]) -> list[_RoundSpread]:
    """The spread over workers at each of ``at_rounds``, under threat model ``model``."""
    neighbours = run.plan.spec.privacy.neighbours
    found = per_worker(run.releases, at_rounds, threat_model=model, delta=run.delta, neighbours=neighbours)
    return [_spread(found, at, round_number) for at, round_number in enumerate(at_rounds)]


def _spread(found: Sequence[PerWorker], at: int, round_number: int) -> _RoundSpread:
    """Least, median and largest ε over workers after one round, and how many have no guarantee.

    Args:
        found: ε over rounds of every kind of worker.
        at: the place of the round in these.
        round_number: of the round, from 1.

    The three are of workers that have a guarantee, and infinite where none has one. They are NaN where
    there is no observer.
    """
    weighed = [(one.epsilon[at], one.stands_for) for one in found if not math.isnan(one.epsilon[at])]
    if not weighed:
        return _RoundSpread(round_number, math.nan, math.nan, math.nan, 0)
    values = np.repeat([v for v, _ in weighed], [n for _, n in weighed])
    finite = np.sort(values[np.isfinite(values)])
    unprotected = len(values) - len(finite)
    if not len(finite):
        return _RoundSpread(round_number, math.inf, math.inf, math.inf, unprotected)
    middle = float(finite[(len(finite) - 1) // 2])
    return _RoundSpread(round_number, float(finite[0]), middle, float(finite[-1]), unprotected)


def _epsilon_band(drawn: Sequence[_RoundSpread], name: str, hue: str) -> list[Json]:
    """Traces of one threat model: a band from the least to the largest ε of workers, and the median."""
    low, middle, high = ([one.values[i] for one in drawn] for i in range(3))
    rounds = [one.round_number for one in drawn]
    common: Json = {"type": "scatter", "legendgroup": name, "mode": "lines", "hovertemplate": "%{text}"}

    def line(what: str, values: list[float], look: Json) -> Json:
        """The trace of ``values`` by round; ``look``: further properties."""
        path = BoundingLine.of(rounds, values)
        points = {"x": path.rounds, "y": path.values, "text": list(map(text.epsilon, path.values))}
        marker = {"marker": {"color": hue, "size": 6, "opacity": path.opacity}}
        styled = look | {"line": look["line"] | {"shape": path.shape}}
        return common | {"name": f"{name}, {what}"} | points | marker | styled

    worst: Json = {"mode": "lines+markers", "fill": "tonexty", "fillcolor": transparent(hue, 0.16)}
    worst |= {"line": {"color": hue, "width": 2}}
    return [
        line("least", low, {"line": {"width": 0.5, "color": hue}, "showlegend": False}),
        line("worst worker", high, worst),
        line("median", middle, {"line": {"color": hue, "width": 1.5, "dash": "dash"}}),
    ]
