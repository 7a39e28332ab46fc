"""One measurement of a study, and what a measure is."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Literal, TypeAlias

from sfumato.run_folder.reader import RunFolder, load_run
from sfumato.spec.document import Spec

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


@dataclass(frozen=True)
class Measure:
    """What can be measured of a point.

    Attributes:
        title: on axes and in tables, with its unit.
        source: ``run``: from the folder of a finished run; ``accounts``: from its accounts, also without
            training; ``formula``: from the spec alone, in a job of its own.
        from_folder: of ``run`` and ``accounts``: measures the folder of a point and seed, with what stands
            behind the colon of the measure's name.
        from_spec: of ``formula``: the same from the spec.
        points: of what differences are called: percentage points, J; empty: as the title says.
        is_epsilon: whether values are upper bounds of ε, which are rounded up.
    """

    title: str
    source: Literal["run", "accounts", "formula"]
    from_folder: Callable[[PointFolder, str], Measurements] | None = None
    from_spec: Callable[[Spec, str], Measurements] | None = None
    points: str = ""
    is_epsilon: bool = False

    @property
    def is_exact(self) -> bool:
        """Whether it follows from the spec without training, so that one seed decides."""
        return self.source != "run"
