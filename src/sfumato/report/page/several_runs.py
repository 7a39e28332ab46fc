"""The first screen of a report of several runs: what changes, what it brings, what noise costs, a table."""

from __future__ import annotations

from collections.abc import Sequence

from sfumato.findings.large_epsilons import LARGE_EPSILON, WHAT_LARGE_MEANS, without_meaning
from sfumato.report.page.comparison import best_runs, comparison, largest_epsilons_in_words
from sfumato.report.page.differences import differences_in_words, differences_table
from sfumato.report.page.html import under_name_of_run
from sfumato.report.page.lead import (
    WHAT_NOISE_COSTS,
    commands_html,
    findings_html,
    lead_html,
    notice_html,
    paragraphs_html,
)
from sfumato.report.page.not_accounted import seed_sentence
from sfumato.report.results.comparability import warnings_of_series
from sfumato.report.results.cost_of_privacy import (
    CostOfNoise,
    can_have_twin,
    command_without_noise,
    several_costs_in_words,
)
from sfumato.report.results.effect_of_control import effects_among
from sfumato.report.results.matrix import Matrix
from sfumato.report.results.protection_words import warnings_of_run
from sfumato.report.results.score_by_epsilon import score_by_epsilon
from sfumato.report.results.series import Series
from sfumato.report.results.summary import Summary

_NO_BASELINE = (
    "What the noise costs in all is not known: no run without it is among these or lies beside them."
)


_MOST_LOOKED_FOR = 4  # runs, beside each of which folders are looked into


def several_runs_html(
    series: Sequence[Series],
    summaries: Sequence[Summary],
    matrices: Sequence[Matrix],
    pictures: str,
    costs: Sequence[CostOfNoise],
    guarantees: Sequence[str],
) -> str:
    """HTML of the first screen of several runs: what cannot be compared, answers in words, a table, pictures.

    Args:
        series: the runs.
        summaries: one for each series.
        matrices: one for each series.
        pictures: HTML of figures that compare the runs.
        costs: what the noise costs those of which that is known.
        guarantees: HTML of what each run guarantees, in words.
    """
    warned = " ".join(warnings_of_series(series))
    differ, steps = differences_in_words(series), score_by_epsilon(series, summaries)
    noisy = [one for one in series if can_have_twin(one)] if steps or len(series) <= _MOST_LOOKED_FOR else []
    unknown = [_NO_BASELINE] if noisy and not costs else []
    best = steps or best_runs(series, summaries)
    told = [*effects_among(series), *best, *several_costs_in_words(costs), *unknown]
    return "".join([
        notice_html(warned) if warned else "",
        lead_html([*([differ] if differ else []), *told]),
        _command_html(noisy[0]) if unknown else "",
        paragraphs_html(seed_sentence(series)),
        "" if steps else paragraphs_html(largest_epsilons_in_words(series)),
        comparison(series, summaries, costs),
        differences_table(series),
        _findings_of_runs(series, matrices),
        pictures,
        _guarantees_of_runs(series, guarantees),
    ])  # fmt: skip


def _findings_of_runs(series: Sequence[Series], matrices: Sequence[Matrix]) -> str:
    """HTML of the findings of all runs, each once, with the names of the runs that have it, unless all have.

    What a large ε means is said once, after those that it is about.
    """
    found: dict[str, list[str]] = {}
    for one, matrix in zip(series, matrices, strict=True):
        for said in warnings_of_run(one, matrix):
            found.setdefault(said, []).append(one.name)
    large = {said: who for said, who in found.items() if said != without_meaning(said)}
    if len(large) > 1:
        short = {without_meaning(said): who for said, who in large.items()}
        rest = {said: who for said, who in found.items() if said not in large}
        found = short | {f"ε above {LARGE_EPSILON:g}: {WHAT_LARGE_MEANS}": []} | rest
    return findings_html({said: who if len(who) < len(series) else [] for said, who in found.items()})


def _guarantees_of_runs(series: Sequence[Series], guarantees: Sequence[str]) -> str:
    """HTML of what each run guarantees, in words, folded, below the names of the runs."""
    told = (under_name_of_run(one, series, said) for one, said in zip(series, guarantees, strict=True))
    return f"<details><summary>What each run guarantees, in words</summary>{''.join(told)}</details>"


def _command_html(one: Series) -> str:
    """HTML of the folded command that trains one of several runs without noise."""
    how = (
        f"This command, in the folder that holds the run, trains {one.name} without noise; then write this "
        "page anew:"
    )
    command = command_without_noise(one, one.folder)
    return commands_html(WHAT_NOISE_COSTS, how, command)
