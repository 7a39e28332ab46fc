"""What the metrics of a finished run say: last values, totals, curves, and costs until an accuracy."""

from __future__ import annotations

import math
from pathlib import Path

import numpy as np
import pandas as pd

from sfumato.run_folder.reader import load_run
from sfumato.studies.measures.base import Measurement, Measurements


def last_percent(folder: Path, column: str) -> Measurements:
    """The last measured value of a share, in percent."""
    return _one(100 * _last(_column(folder, column)))


def last_value(folder: Path, column: str) -> Measurements:
    """The last measured value."""
    return _one(_last(_column(folder, column)))


def best_percent(folder: Path, column: str) -> Measurements:
    """The largest measured value of a share, in percent."""
    return _one(100 * float(_column(folder, column).max()))


def mean_value(folder: Path, column: str) -> Measurements:
    """The mean over rounds."""
    return _one(float(_column(folder, column).mean()))


def total(folder: Path, column: str) -> Measurements:
    """The sum over rounds."""
    measured = _column(folder, column).dropna()
    return _one(float(measured.sum()) if len(measured) else math.nan)


def percent_by_round(folder: Path, column: str) -> Measurements:
    """Every measured value of a share, in percent, with its round."""
    return [Measurement(100 * one.value, at=one.at) for one in by_round(folder, column)]


def by_round(folder: Path, column: str) -> Measurements:
    """Every measured value with its round."""
    metrics = load_run(folder).metrics
    if column not in metrics:
        return []
    known = metrics[["round", column]].dropna()
    return [Measurement(float(value), at=float(at)) for at, value in known.itertuples(index=False)]


def total_until(folder: Path, column: str, level: str) -> Measurements:
    """The sum of ``column`` up to the first evaluated round with the accuracy ``level``; else NaN."""
    metrics = load_run(folder).metrics
    reached = np.flatnonzero(metrics["accuracy"].to_numpy(dtype=float) >= float(level))
    if not len(reached) or column not in metrics:
        return _one(math.nan)
    return _one(float(metrics[column].iloc[: int(reached[0]) + 1].sum()))


def _column(folder: Path, column: str) -> pd.Series[float]:
    """A column of the metrics; empty where the run has none of that name."""
    metrics = load_run(folder).metrics
    return metrics[column].astype(float) if column in metrics else pd.Series(dtype=float)


def _last(values: pd.Series[float]) -> float:
    measured = values.dropna()
    return float(measured.iloc[-1]) if len(measured) else math.nan


def _one(value: float) -> Measurements:
    return [Measurement(value)]
