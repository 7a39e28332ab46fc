"""The measures by name, as a study's file gives them."""

from __future__ import annotations

from collections.abc import Callable

from sfumato.errors import SpecError
from sfumato.spec.base import closest
from sfumato.studies.measures import accounts, finished_run, formulas, workers
from sfumato.studies.measures.base import Measure, Measurements, PointFolder

PERCENTAGE_POINTS = "points"


def _of_column(
    title: str, read: Callable[[PointFolder, str], Measurements], column: str, points: str = ""
) -> Measure:
    """A measure of one column of a run's metrics; it takes no argument."""
    return Measure(title, "run", from_folder=lambda folder, _: read(folder, column), points=points)


def _until(title: str, column: str) -> Measure:
    """What a run has spent until it reaches an accuracy, which is the argument."""
    return Measure(
        title, "run", from_folder=lambda folder, level: finished_run.total_until(folder, column, level)
    )


def _epsilon(title: str, read: Callable[[PointFolder, str], Measurements]) -> Measure:
    """An ε of a point's accounts."""
    return Measure(title, "accounts", from_folder=read, is_epsilon=True)


MEASURES: dict[str, Measure] = {
    "accuracy": _of_column("test accuracy, %", finished_run.last_percent, "accuracy", PERCENTAGE_POINTS),
    "best_accuracy": _of_column(
        "best test accuracy, %", finished_run.best_percent, "accuracy", PERCENTAGE_POINTS
    ),
    "loss": _of_column("test loss", finished_run.last_value, "loss"),
    "accuracy_by_round": _of_column(
        "test accuracy, %", finished_run.percent_by_round, "accuracy", PERCENTAGE_POINTS
    ),
    "loss_by_round": _of_column("test loss", finished_run.by_round, "loss"),
    "energy": _of_column("energy, J", finished_run.total, "energy_j"),
    "delay": _of_column("delay, s", finished_run.total, "delay_s"),
    "energy_to": _until("energy until the accuracy, J", "energy_j"),
    "delay_to": _until("delay until the accuracy, s", "delay_s"),
    "channel_uses": _of_column("uses of the channel", finished_run.total, "channel_uses"),
    "mean_interval": _of_column("mean τ, local steps", finished_run.mean_value, "interval"),
    "mean_trusted": _of_column("mean s, trusted edges", finished_run.mean_value, "participants_trusted"),
    "mean_untrusted": _of_column(
        "mean s, untrusted edges", finished_run.mean_value, "participants_untrusted"
    ),
    "last_step_size": _of_column("last step size", finished_run.last_value, "step_size"),
    "last_smoothness": _of_column("last β", finished_run.last_value, "smoothness"),
    "epsilon": _epsilon("ε", accounts.epsilon_towards),
    "claimed": _epsilon("claimed ε", accounts.claimed_epsilon),
    "rigorous": _epsilon("rigorous ε", accounts.epsilon_of_claim),
    "pairs": Measure("ε", "formula", from_spec=workers.pairs_of_workers, is_epsilon=True),
    "pwp": Measure("mean PwP, ε", "formula", from_spec=workers.per_worker_over_epochs, is_epsilon=True),
    "theorem_4_3": Measure("value", "formula", from_spec=formulas.convergence_bound),
    "table_3_rule": Measure(
        "ε by its rule", "formula", from_spec=formulas.rule_of_table_three, is_epsilon=True
    ),
}
"""By the name before the colon; what stands behind it is the argument.

``epsilon:OBSERVER`` watches that kind of observer. ``claimed:TEXT@OBSERVER`` and ``rigorous:TEXT@OBSERVER``
are about the claims whose source contains the text. ``energy_to:0.75`` and ``delay_to:0.75``: until the first
evaluated round with that accuracy. ``pwp:1`` and ``pwp:2``: the threat model of the DP-OGL paper.
``theorem_4_3:TERM:BETA,SIGMA,ZETA,ZETA_C,G,GAP``: a term and the constants of the loss.
"""

_BOUND_TERMS = {
    "b1": "B₁²",
    "b2": "B₂²",
    "start": "start term",
    "drift": "drift term (a₂)",
    "noise": "noise term (b)",
}
_TITLES = {
    "epsilon": "ε {argument}",
    "claimed": "claimed ε ({argument})",
    "rigorous": "rigorous ε ({argument})",
}
_NEEDS_ARGUMENT = ("epsilon", "claimed", "rigorous", "energy_to", "delay_to", "theorem_4_3", "pwp")


def measure_named(name: str) -> tuple[Measure, str]:
    """The measure that ``name`` calls, and its argument.

    Raises:
        SpecError: there is none of that name, or its argument is missing or too much.
    """
    key, _, argument = name.partition(":")
    if key not in MEASURES:
        raise SpecError("measure", name, f"must be one of {', '.join(MEASURES)}{closest(key, MEASURES)}")
    needs = key in _NEEDS_ARGUMENT
    if needs != bool(argument):
        allowed = f"needs an argument: {key}:..." if needs else f"takes no argument: {key}"
        raise SpecError("measure", name, allowed)
    return MEASURES[key], argument


def title_of_measure(name: str) -> str:
    """What a measure is called on axes and in tables."""
    measure, argument = measure_named(name)
    key = name.partition(":")[0]
    if key == "theorem_4_3":
        return _BOUND_TERMS[argument.partition(":")[0]]
    return _TITLES.get(key, measure.title).format(argument=argument)


def watched_observer(name: str) -> str | None:
    """The kind of observer that the spec must watch for the measure ``name``."""
    key, _, argument = name.partition(":")
    return argument if key == "epsilon" else None
