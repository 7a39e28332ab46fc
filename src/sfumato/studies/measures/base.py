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
        series: tells several values of one measure apart, such as ``rigorous`` and ``claimed``.
        at: round or epoch; NaN for a value of the whole run.
        unit: of pairs of workers, the worker that an ε is about; else -1.
        observer: of pairs of workers, the worker that observes; else -1.
    """

    value: float
    series: str = ""
    at: float = math.nan
    unit: int = -1
    observer: int = -1


Measurements: TypeAlias = Sequence[Measurement]


@dataclass(frozen=True)
class PointFolder:
    """The folder of a point and seed. Its run is read and checked once for all measures."""

    path: Path

    @cached_property
    def run(self) -> RunFolder:
        """The finished run in this folder, read at the first use.

        Raises:
            SpecError: there is no run in it.
            RunError: a file of the run is missing, damaged, or of another run.
        """
        return load_run(self.path)
