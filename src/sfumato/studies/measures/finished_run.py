"""What the metrics of a finished run say: last values, totals, curves, and costs until an accuracy."""

from __future__ import annotations

import math

import numpy as np

from sfumato.report.results.series import metric_by_round, sum_of_measured
from sfumato.run_folder.metrics_table import last_measured
from sfumato.studies.measures.base import Measurement, Measurements, PointFolder

_KINDS_OF_EDGES = ("trusted", "untrusted")


def last_percent(folder: PointFolder, column: str) -> Measurements:
    """The last measured value of ``column`` of the metrics, a share, in percent; NaN if none was measured."""
    return _one(100 * last_measured(metric_by_round(folder.run, column)))


def last_value(folder: PointFolder, column: str) -> Measurements:
    """The last measured value of ``column`` of the metrics; NaN if none was measured."""
    return _one(last_measured(metric_by_round(folder.run, column)))


def best_percent(folder: PointFolder, column: str) -> Measurements:
    """The largest measured value of ``column`` of the metrics, a share, in percent; NaN without any."""
    return _one(100 * float(metric_by_round(folder.run, column).max()))


def mean_value(folder: PointFolder, column: str) -> Measurements:
    """The mean of ``column`` of the metrics over the rounds that measured it; NaN if none did."""
    return _one(float(metric_by_round(folder.run, column).mean()))


def mean_participants(folder: PointFolder, _: str) -> Measurements:
    """The mean participants of a trusted and of an untrusted edge over all rounds, each as a series.

    A kind of edge that no round measured is left out, so there is none without control.
    """
    means = {f"{kind} edges": mean_value(folder, f"participants_{kind}")[0].value for kind in _KINDS_OF_EDGES}
    return [Measurement(mean, series=kind) for kind, mean in means.items() if not math.isnan(mean)]


def mean_percent(folder: PointFolder, column: str) -> Measurements:
    """The mean of ``column`` of the metrics, a share, over the rounds that measured it, in percent.

    NaN if none did.
    """
    return _one(100 * float(metric_by_round(folder.run, column).mean()))


def total(folder: PointFolder, column: str) -> Measurements:
    """The sum of ``column`` of the metrics over the rounds that measured it; NaN if none did."""
    return _one(sum_of_measured(np.asarray(metric_by_round(folder.run, column), dtype=np.float64)))


def percent_by_round(folder: PointFolder, column: str) -> Measurements:
    """Every measured value of ``column`` of the metrics, a share, in percent, with its round.

    [] if there is none.
    """
    return [Measurement(100 * one.value, at=one.at) for one in by_round(folder, column)]


def percent_above(folder: PointFolder, column: str, level: str) -> Measurements:
    """The share of the rounds that measured ``column`` in which it is above ``level``, in percent.

    ``level``: a number as text. NaN if no round measured it.
    """
    measured = metric_by_round(folder.run, column).dropna()
    return _one(100 * float((measured > float(level)).mean()))


def volatility(folder: PointFolder, column: str, first: str) -> Measurements:
    """The standard deviation of the change of ``column``, a share, between evaluations, in percentage points.

    A steady rise, by as much from each evaluation to the next, has none. NaN for fewer than three
    evaluations.

    Args:
        folder: of the point.
        column: of the metrics.
        first: the round from which on changes count, as text.
    """
    measured = metric_by_round(folder.run, column).dropna()
    return _one(100 * float(measured[measured.index >= float(first)].diff().std()))


def by_round(folder: PointFolder, column: str) -> Measurements:
    """The values of ``column`` of the metrics as measurements, each ``at`` its round, by ascending round.

    Rounds in which it was not measured are left out. [] if there are none, or no such column.
    """
    measured = metric_by_round(folder.run, column).dropna()
    return [Measurement(value, at=float(at)) for at, value in zip(measured.index, measured, strict=True)]


def total_until(folder: PointFolder, column: str, level: str) -> Measurements:
    """The sum of a column up to the first evaluated round with an accuracy of ``level`` or more; else NaN.

    ``level``: a share as text, such as ``0.75``. NaN, too, where the metrics do not have the column.
    """
    metrics, reached = folder.run.metrics, _first_with(folder, level)
    if reached is None or column not in metrics:
        return _one(math.nan)
    return _one(float(metrics[column].iloc[: reached + 1].sum()))


def rounds_until(folder: PointFolder, level: str) -> Measurements:
    """The first evaluated round with an accuracy of ``level`` or more: so many rounds it took; else NaN.

    ``level``: a share as text, such as ``0.75``.
    """
    reached = _first_with(folder, level)
    return _one(math.nan if reached is None else float(folder.run.metrics["round"].iloc[reached]))


def _first_with(folder: PointFolder, level: str) -> int | None:
    """The first row of the metrics, from 0, with an accuracy of ``level`` or more; ``None`` if none has."""
    metrics = folder.run.metrics
    if "accuracy" not in metrics:
        return None
    reached = np.flatnonzero(metrics["accuracy"].to_numpy(dtype=float) >= float(level))
    return int(reached[0]) if len(reached) else None


def _one(value: float) -> Measurements:
    """A single measurement, of the whole run."""
    return [Measurement(value)]
