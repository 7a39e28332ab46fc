"""Computes a measure: of a point's folder, or of its spec alone."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from sfumato.spec.document import Spec
from sfumato.studies.measures import accounts, finished_run, formulas, timings, workers
from sfumato.studies.measures.base import Measurements, PointFolder

FromFolder = Callable[[PointFolder, str], Measurements]
"""From the folder of a point and seed, and the measure's argument."""


def _of_column(read: FromFolder, column: str) -> FromFolder:
    """A measure that ``read`` takes from one ``column`` of a run's metrics; it ignores its argument."""
    return lambda folder, _: read(folder, column)


def _with_argument(read: Callable[[PointFolder, str, str], Measurements], column: str) -> FromFolder:
    """A measure that ``read`` takes from one ``column`` of a run's metrics and from its argument."""
    return lambda folder, argument: read(folder, column, argument)


FROM_FOLDER: Mapping[str, FromFolder] = {
    "accuracy": _of_column(finished_run.last_percent, "accuracy"),
    "best_accuracy": _of_column(finished_run.best_percent, "accuracy"),
    "loss": _of_column(finished_run.last_value, "loss"),
    "accuracy_by_round": _of_column(finished_run.percent_by_round, "accuracy"),
    "loss_by_round": _of_column(finished_run.by_round, "loss"),
    "train_loss": _of_column(finished_run.last_value, "train_loss"),
    "train_loss_by_round": _of_column(finished_run.by_round, "train_loss"),
    "personal_accuracy": _of_column(finished_run.last_percent, "personal_accuracy"),
    "worst_decile": _of_column(finished_run.last_percent, "accuracy_worst_decile"),
    "spread": _of_column(finished_run.last_percent, "accuracy_spread"),
    "energy": _of_column(finished_run.total, "energy_j"),
    "delay": _of_column(finished_run.total, "delay_s"),
    "energy_to": _with_argument(finished_run.total_until, "energy_j"),
    "delay_to": _with_argument(finished_run.total_until, "delay_s"),
    "rounds_to": finished_run.rounds_until,
    "channel_uses": _of_column(finished_run.total, "channel_uses"),
    "clip_fraction": _of_column(finished_run.mean_percent, "clip_fraction"),
    "interval_by_round": _of_column(finished_run.by_round, "interval"),
    "interval_above": _with_argument(finished_run.percent_above, "interval"),
    "noise_factor_by_round": _of_column(finished_run.by_round, "noise_factor"),
    "mean_interval": _of_column(finished_run.mean_value, "interval"),
    "mean_trusted": _of_column(finished_run.mean_value, "participants_trusted"),
    "mean_untrusted": _of_column(finished_run.mean_value, "participants_untrusted"),
    "mean_participants": finished_run.mean_participants,
    "last_step_size": _of_column(finished_run.last_value, "step_size"),
    "last_smoothness": _of_column(finished_run.last_value, "smoothness"),
    "smoothness_above": _with_argument(finished_run.percent_above, "smoothness"),
    "volatility": _with_argument(finished_run.volatility, "accuracy"),
    "epsilon": accounts.epsilon_towards,
    "claimed": accounts.claimed_epsilon,
    "rigorous": accounts.epsilon_of_claim,
    "claim_and_rigorous": accounts.claim_and_rigorous,
}
"""Measures of runs and of accounts."""

FROM_SPEC: Mapping[str, Callable[[Spec, str], Measurements]] = {
    "pairs": workers.pairs_of_workers,
    "pwp": workers.per_worker_over_epochs,
    "theorem_4_3": formulas.convergence_bound,
    "energy_at_clip": formulas.energy_at_clip,
    "privacy_binds": formulas.privacy_binds,
    "table_3_rule": formulas.rule_of_table_three,
    "aggregation_seconds": timings.aggregation_seconds,
    "aggregation_megabytes": timings.aggregation_megabytes,
    "aggregation_overhead_megabytes": timings.aggregation_overhead_megabytes,
    "election_seconds": timings.election_seconds,
}
"""Formulas, and times of sessions that a spec describes."""


def measure_folder(name: str, folder: PointFolder) -> Measurements:
    """Compute the measure ``name`` from the run, or the accounts, in a folder.

    ``name``: ``KEY`` or ``KEY:ARGUMENT``, with a key of `FROM_FOLDER`, as `measure_named` has checked it.

    Raises:
        KeyError: there is no such key, or it is one of `FROM_SPEC`.
        SpecError: the folder has no run.
        RunError: its files are missing or damaged.
    """
    key, _, argument = name.partition(":")
    return FROM_FOLDER[key](folder, argument)


def measure_spec(name: str, spec: Spec) -> Measurements:
    """Compute the measure ``name``, a formula or a time, from a spec, without a run.

    ``name``: ``KEY`` or ``KEY:ARGUMENT``, with a key of `FROM_SPEC`, as `measure_named` has checked it.

    Raises:
        KeyError: there is no such key, or it is one of `FROM_FOLDER`.
        SpecError: the spec is not one that the measure is about.
    """
    key, _, argument = name.partition(":")
    return FROM_SPEC[key](spec, argument)
