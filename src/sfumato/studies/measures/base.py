"""One measurement of a study, and the folder that it is read from."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TypeAlias

from sfumato.run_folder.reader import RunFolder, load_run

SPREAD = ", sd"
"""Ends the name of a series that holds the standard deviation of another, over workers."""


@dataclass(frozen=True)
class Measurement:
    """One measured number of one point and seed.

    Attributes:
        value: in the measure's unit; infinite for an ε without a guarantee.
        series: tells several values of one measure apart, such as ``exact`` and ``claimed``.
        at: round or epoch; NaN where there is none.
        unit: the worker that an ε is about; -1: none.
        observer: the worker that observes; -1: none.
    """

    value: float
    series: str = ""
    at: float = math.nan
    unit: int = -1
    observer: int = -1


Measurements: TypeAlias = Sequence[Measurement]


@dataclass(frozen=True)
class PointFolder:
    """The folder of a point and seed; its run is read and checked once for all measures."""

    path: Path

    @cached_property
    def run(self) -> RunFolder:
        """The finished run in it."""
        return load_run(self.path)
