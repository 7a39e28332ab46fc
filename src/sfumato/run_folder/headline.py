"""The score that a run is judged by, and how it is written: the accuracy, or another where there is none."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from sfumato.rounding import number

if TYPE_CHECKING:
    import pandas as pd


@dataclass(frozen=True)
class Headline:
    """A column of scores that a reader is shown first.

    Attributes:
        column: in ``metrics.parquet``.
        title: what it is called, with its unit.
        scale: what values are multiplied by to be shown.
        higher_is_better: whether a larger value is the better one.
    """

    column: str
    title: str
    scale: float = 1.0
    higher_is_better: bool = True

    @property
    def name(self) -> str:
        """The title of the score without its unit."""
        return self.title.removesuffix(" %")

    def figure(self, value: float) -> str:
        """``value`` of the score as text without its unit; "–" for NaN.

        Percentages have one decimal, other scores the digits that `sfumato.rounding.number` gives them.
        """
        return self.text(value).removesuffix(" %")

    def text(self, value: float) -> str:
        """``value`` of the score as text with its unit; "–" for NaN."""
        if math.isnan(value):
            return "–"
        return f"{self.scale * value:.1f} %" if self.scale == 100.0 else number(value)


ACCURACY = Headline("accuracy", "accuracy %", 100.0)
HEADLINES = (
    ACCURACY,
    Headline("mae", "MAE", higher_is_better=False),
    Headline("rmse", "RMSE", higher_is_better=False),
    Headline("r2", "R²"),
    Headline("loss", "loss", higher_is_better=False),
)
"""Every score that a run may be judged by: the first that was measured."""

_BESIDE = (
    Headline("auc", "AUC"),
    Headline("f1", "F1"),
    *HEADLINES[1:4],
    Headline("perplexity", "perplexity", higher_is_better=False),
    Headline("train_loss", "training loss", higher_is_better=False),
    Headline("accuracy_worst_decile", "accuracy of the worst tenth of the devices %", 100.0),
    Headline(
        "accuracy_spread", "standard deviation of accuracy over devices %", 100.0, higher_is_better=False
    ),
)
"""Scores that a spec asks for by ``metrics``."""


def scores_beside(values: pd.DataFrame) -> list[Headline]:
    """The scores that the spec asked for with a value in a table of metrics, [] if there are none.

    Except the one that a run is judged by.
    """
    first = headline_of(values)
    found = [one for one in _BESIDE if one.column in values and one != first]
    return [one for one in found if values[one.column].notna().any()]


def headline_of(values: pd.DataFrame | Mapping[str, float]) -> Headline:
    """The score by which a run is judged: the first in `HEADLINES` that has a value, else the accuracy.

    Args:
        values: a table of metrics, or one row of it.
    """

    def is_there(column: str) -> bool:
        if column not in values:
            return False
        found = values[column]
        return bool(found.notna().any()) if hasattr(found, "notna") else not math.isnan(found)

    for headline in HEADLINES:
        if is_there(headline.column):
            return headline
    return ACCURACY
