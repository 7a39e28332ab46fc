"""Figures of what adaptive control chose in each round, and why a run ended."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from sfumato.report import formatting as text
from sfumato.report.figures.curves import RunCurve, curve_figure
from sfumato.report.figures.figure import DASHES, Figure
from sfumato.report.results.series import Series
from sfumato.report.results.watched_epsilons import budgets
from sfumato.run_folder.reader import RunFolder
from sfumato.schedule.control.adaptive import ALL_STEPS_DONE


class _ControlVariable(NamedTuple):
    """A quantity that control chooses.

    Attributes:
        name: of its figure.
        columns: columns of the metrics, each with its name in the legend.
        title: of the figure.
        axis: title of the y axis.
        first: what round 1 has, where control does not choose it (docs/control.md); "" where it does.
    """

    name: str
    columns: tuple[tuple[str, str], ...]
    title: str
    axis: str
    first: str = ""


_CONTROL_VARIABLES = (
    _ControlVariable("interval", (("interval", ""),), "Local steps a round", "local steps", "drawn by lot"),
    _ControlVariable(
        "participation",
        (("participants_trusted", "trusted edges"), ("participants_untrusted", "other edges")),
        "Devices of an edge that take part",
        "devices",
        "as many as may take part",
    ),
    _ControlVariable("noise", (("noise_factor", ""),), "Noise, as a multiple of the spec's noise", "factor"),
)


def control_figures(series: Sequence[Series]) -> list[Figure]:
    """A list with a figure over rounds for each variable that control changed after its first choice.

    [] without adaptive control, or if it changed none. ``series``: the runs of the page, each of one or more
    seeds.
    """
    return [figure for kind in _CONTROL_VARIABLES if (figure := _control_figure(series, kind)) is not None]


def stop_reasons(one: Series) -> list[str]:
    """A list with a sentence for each finished seed of a series on why adaptive control ended its run.

    [] where it ended none.
    """
    said = []
    for run in one.runs:
        ended = run.ledger.get("realised", {}).get("ended") if run.finished else None
        if ended:
            seed = f" (seed {run.spec_dict.get('seed', 0)})" if len(one.runs) > 1 else ""
            said.append(f"{_rounds_sentence(run, ended)}{seed}")
    return said


def budget_sentence(series: Series) -> list[str]:
    """A list with one text: that all ε of a run with adaptive control are budgets.

    [] without such control, or without noise. The text goes on with how much ε towards the cloud the rounds
    spent, where the budget is finite and that is less.
    """
    if not series.first.spec_dict.get("control") or not series.network.has_noise:
        return []
    said = "Every ε here is a budget, kept whatever adaptive control chooses"
    budget = budgets(series).get("cloud")
    if budget is None or math.isinf(budget.given) or text.epsilon(budget.spent) == text.epsilon(budget.given):
        return [f"{said}."]
    spent, given = text.epsilon(budget.spent), text.epsilon(budget.given)
    return [f"{said}. Towards the cloud the rounds spent {spent} of {given}."]


def looked_at(one: Series) -> list[str]:
    """A list with sentences on the inputs by which adaptive control makes its choices; [] without control.

    They say, too, whether every ε still holds.
    """
    control = one.first.spec_dict.get("control")
    if not control:
        return []
    if not one.network.has_noise:
        return ["Adaptive control chooses by global models that have no noise."]
    sees = (
        "Adaptive control chooses by the global models that everybody receives, noise included, by costs and "
        "by the budget left"
    )
    if control.get("estimates", "released") == "released":
        return [f"{sees}: by nothing else of the data. So every ε holds though the choices are known."]
    return [
        f"{sees}, and by how curved devices' losses are, which each measures and sends with noise "
        "(control.estimates). Every ε counts that too."
    ]


def _rounds_sentence(run: RunFolder, ended: str) -> str:
    """A sentence on the local steps of the spec, the rounds that control made of them, and why it ended.

    ``ended``: the reason, as the ledger has it.
    """
    training, rounds = run.spec_dict["training"], text.how_many(len(run.metrics), "round")
    steps = training.get("local_steps")
    if not steps:
        return f"Adaptive control ended after {rounds}: {ended}."
    total, each = text.whole(training["rounds"] * steps), text.whole(steps)
    as_set = f"({text.how_many(training['rounds'], 'round')} of {each})"
    planned = f"{total} local steps of the spec {as_set}"
    done = int(run.metrics["interval"].sum())
    if ended == ALL_STEPS_DONE and done < training["rounds"] * steps:
        left = text.whole(training["rounds"] * steps - done)
        return (
            f"Adaptive control made {rounds}, together {text.whole(done)} of the {planned}; the {left} left "
            "are fewer than a round needs."
        )
    if ended == ALL_STEPS_DONE:
        return f"Adaptive control made {rounds}, together all {planned}."
    return f"The spec sets {total} local steps {as_set}; adaptive control ended after {rounds}: {ended}."


def kept_choices(series: Sequence[Series]) -> list[str]:
    """A sentence on each variable that adaptive control chose once and never changed, with its value.

    Such a variable has no figure. ``series``: the runs of the page. [] without adaptive control.
    """
    said = []
    for kind in _CONTROL_VARIABLES:
        found = _curves_of_choice(series, kind)
        if found and not _varies(found, later=bool(kind.first)):
            values = {one.name: _kept_in_words(one) for one in found}
            alike = len(set(values.values())) == 1
            each = next(iter(values.values())) if alike else "; ".join(f"{n}: {v}" for n, v in values.items())
            chosen = f"; in round 1 {kind.first}, later as" if kind.first else ", as"
            said.append(
                f"{kind.title}: {each}{chosen} adaptive control chose.{_at_an_end(series, kind, found)}"
            )
    return said


def _kept_in_words(one: RunCurve) -> str:
    """The value of a curve that is the same in every round, or in every round but the first, as text."""
    first, last = (text.number(float(value)) for value in one.curve.mean[[0, -1]])
    return f"{last} in every round" if first == last else f"{first} in round 1, then {last} in every round"


def _at_an_end(series: Sequence[Series], kind: _ControlVariable, found: Sequence[RunCurve]) -> str:
    """A sentence, after a space, that the chosen local steps are the fewest or the most of a round; else "".

    "" of other variables than the local steps, and of several runs. ``found``: the curves of the variable.
    """
    if kind.name != "interval" or len(series) > 1:
        return ""
    spec = series[0].first.spec_dict
    training, most = spec["training"], spec["control"].get("max_steps")
    period = training.get("edge_every")
    steps = training.get("local_steps")
    if steps and isinstance(period, int) and found[0].last == (fewest := -(-steps // period)):
        edge = text.how_many(fewest - 1, "edge aggregation")
        return f" It is the fewest that a round may have: {edge} and the global one, a step each."
    return " It is the most that a round may have (control.max_steps)." if found[0].last == most else ""


def noise_factor_sentence(one: Series) -> list[str]:
    """A list with a sentence on the factors by which adaptive control multiplied the noise of a run.

    [] where it did not multiply it.
    """
    factors = noise_factors(one)
    return [f"In this run adaptive control multiplied this noise by {factors}."] if factors else []


def noise_factors(one: Series) -> str:
    """The least and the largest factor by which adaptive control multiplied the noise of a run, as text.

    ``1 to 1.3``; one number where both are written alike, and "" where it did not multiply it.
    """
    factors = one.curve("noise_factor").mean
    if not len(factors) or set(factors) == {1.0}:
        return ""
    least, most = text.number(float(factors.min())), text.number(float(factors.max()))
    return least if least == most else f"{least} to {most}"


def _varies(found: Sequence[RunCurve], *, later: bool) -> bool:
    """Whether any of the curves changes over the rounds; ``later``: over those after the first."""
    curves = [one.curve.mean for one in found]
    return any(float(np.ptp(each[1:] if later and len(each) > 1 else each)) > 0 for each in curves)


def _curves_of_choice(series: Sequence[Series], kind: _ControlVariable) -> list[RunCurve]:
    """The curves over rounds of one control variable in all runs that have it."""
    found: list[RunCurve] = []
    for i, one in enumerate(series):
        for part_number, (column, part) in enumerate(kind.columns):
            curve = one.curve(column)
            if len(curve.rounds):
                name = " → ".join(filter(None, [one.name if len(series) > 1 else "", part]))
                dash = DASHES[part_number if len(series) > 1 else 0]
                found.append(RunCurve(i if len(series) > 1 else len(found), name, curve, dash))
    return found


def _control_figure(series: Sequence[Series], kind: _ControlVariable) -> Figure | None:
    """Curves over rounds of one control variable; ``None`` where no run has it or it never changes."""
    found = _curves_of_choice(series, kind)
    if not found or not _varies(found, later=bool(kind.first)):
        return None
    spans = "; ".join(f"{one.name} {_span(one, later=bool(kind.first))}".strip() for one in found)
    said = f"Chosen by adaptive control before each round: {spans}.{_why_of_noise(series, kind)}"
    if kind.first:
        said = f"In round 1 {kind.first}; chosen by adaptive control before every later round: {spans}."
    return curve_figure(
        found,
        title=kind.title,
        caption=said,
        description=f"{kind.title} over rounds. {said}",
        y_axis={"title": {"text": kind.axis}, "rangemode": "tozero"},
        height=300,
        legend_at=-0.28,
        kind=f"control-{kind.name}",
    )


def _span(one: RunCurve, *, later: bool) -> str:
    """The least and the largest value of a curve as text; one number where they are written alike.

    ``later``: those after the first round, which is told apart.
    """
    values = one.curve.mean[1:] if later and len(one.curve.mean) > 1 else one.curve.mean
    least, most = (text.number(float(value)) for value in (values.min(), values.max()))
    span = least if least == most else f"{least} to {most}"
    first = text.number(float(one.curve.mean[0]))
    return f"{first} in round 1, then {span}" if len(values) < len(one.curve.mean) else span


def _why_of_noise(series: Sequence[Series], kind: _ControlVariable) -> str:
    """A sentence, after a space, on why control multiplies the noise.

    "" of other variables, and where control only stops when the budget is spent.
    """
    policies = {one.first.spec_dict.get("control", {}).get("budget_policy", "spread") for one in series}
    if kind.name != "noise" or policies != {"spread"}:
        return ""
    return (
        " With it the budget lasts for the rounds that are left. Shorter rounds than the spec's mean more "
        "rounds, so each gets more noise; longer rounds mean fewer, so each gets less."
    )
