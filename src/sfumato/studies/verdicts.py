"""Whether the paper's statements agree with what was measured: an interval beside what is expected.

The value of a statement is computed seed by seed, as a seed draws the same partition, trust and initial model
in both of its terms, and has a 95 % t interval. It *agrees* if the whole interval is within what is expected,
and *differs* if all of it is outside. Otherwise it is *not settled* by so many seeds. A value without
training, such as an ε, needs no interval. A direction is the same rule, with more than 0 expected of each
step along the axis: a value that stays the same neither rises nor falls. Nothing is judged of a shortened
study, nor where a seed has no value.
"""

from __future__ import annotations

import enum
import itertools
import math
from collections.abc import Sequence
from dataclasses import dataclass

import pandas as pd

from sfumato.report.results.series import mean
from sfumato.studies.best_point import best_point
from sfumato.studies.grids import StudyPlan, StudyPoint, named_setting, points_of
from sfumato.studies.measures.registry import PERCENTAGE_POINTS, Measure, measure_named
from sfumato.studies.observations import last_by_seed
from sfumato.studies.references import fixed_axes, same_setting
from sfumato.studies.study import Monotone, PaperStatement, StudyTerm, with_minus


class Outcome(enum.StrEnum):
    """The verdict on a statement."""

    AGREES = "agrees"
    DIFFERS = "differs"
    NOT_SETTLED = "not settled"
    NOT_JUDGED = "not judged"


@dataclass(frozen=True)
class StatementVerdict:
    """A statement of the paper, what was measured, and the verdict.

    Attributes:
        statement: of the study.
        outcome: whether it agrees.
        words: the outcome as a sentence.
        value: measured, the mean over seeds; NaN of a direction, and if nothing was measured.
        terms: the two measured values, each the mean over seeds (of ε the largest), of which ``value`` is the
            difference, or the change in percent; empty of a single value, and of differences of differences.
        low: lower end of its 95 % interval; the value itself where no interval is needed.
        high: upper end.
        unit: of the value: points, %, or "".
        is_change: whether the value is a change, in percent of another one.
        is_epsilon: whether the value is an ε, which is rounded up.
        along: of a direction the value at each setting of the axis, the mean over seeds, of ε the largest.
    """

    statement: PaperStatement
    outcome: Outcome
    words: str
    value: float = math.nan
    low: float = math.nan
    high: float = math.nan
    terms: tuple[float, ...] = ()
    unit: str = ""
    is_change: bool = False
    is_epsilon: bool = False
    along: tuple[float, ...] = ()


def judge_statements(plan: StudyPlan, table: pd.DataFrame) -> tuple[StatementVerdict, ...]:
    """The verdict on every statement of a study, in order; of a shortened study nothing is judged.

    Then, and where a seed has no value, the outcome is ``Outcome.NOT_JUDGED``.

    Args:
        plan: of the study.
        table: of `collect_observations`.
    """
    judge = _StatementJudge(plan, table)
    return tuple(map(judge.verdict, plan.study.statements))


@dataclass(frozen=True)
class _StatementJudge:
    plan: StudyPlan
    table: pd.DataFrame

    def verdict(self, statement: PaperStatement) -> StatementVerdict:
        """The verdict on a statement: of an interval beside the expected one, or of a direction."""
        if self.plan.quick:
            return StatementVerdict(statement, Outcome.NOT_JUDGED, "a shortened run decides nothing.")
        direction = statement.rises or statement.falls
        if direction is not None:
            return self._of_direction(statement, direction, 1.0 if statement.rises else -1.0)
        assert statement.value is not None
        assert statement.expect is not None
        measured = [self._of_term(term) for term in statement.compared]
        values = _combined(statement, measured)
        low, high = _interval(values, is_exact=_is_exact(statement, len(values)))
        seeds = self.plan.seeds_of(self._name(statement.value.grid))
        outcome = (
            _compare(low, high, statement.expect.interval) if len(values) >= seeds else Outcome.NOT_JUDGED
        )
        words = _words(outcome, statement, seeds) + self._chosen(statement)
        measure = measure_named(statement.value.measure)[0]
        is_change = statement.relative_to is not None
        is_absolute = statement.minus is None and not is_change and not statement.value.minus
        unit = "%" if is_change else _unit(measure, is_absolute=is_absolute)
        if outcome is Outcome.NOT_JUDGED:  # the mean of some seeds is not that of all
            return StatementVerdict(statement, outcome, words, unit=unit)
        return StatementVerdict(
            statement,
            outcome,
            words,
            mean(values).value,
            low,
            high,
            _summaries(statement, measured),
            unit,
            is_change,
            is_absolute and measure.is_epsilon,
        )

    def _of_term(self, term: StudyTerm) -> pd.Series[float]:
        """The measured values of a term by seed; of measures over rounds the asked or the last one.

        Indexed by seed; empty where there is no such point. What its ``minus`` names is subtracted.
        """
        if term.minus:
            other = term.model_copy(update={"where": with_minus(term), "minus": {}})
            return self._of_term(term.model_copy(update={"minus": {}})).sub(self._of_term(other)).dropna()
        found = self._found(term)
        point = self._point(term, found)
        if point is None:
            return pd.Series(dtype=float)
        return last_by_seed(found[found["point"] == point.folder_name])

    def _found(self, term: StudyTerm) -> pd.DataFrame:
        """The rows of the table of the measure of ``term``, at all points: at its round and of its pair."""
        found = self._rows(term.grid, term.measure, term.series)
        for column in ("at", "unit", "observer"):
            if (wanted := getattr(term, column)) is not None:
                found = found[found[column] == wanted]
        return found

    def _point(self, term: StudyTerm, rows: pd.DataFrame) -> StudyPoint | None:
        """The point of ``term``, of several the best; ``None`` if there is none or one lacks a seed.

        ``rows``: `_found` of the term.
        """
        points = [point for point in self._points(term.grid) if point.matches(term.where)]
        if term.best is None:
            return points[0] if points else None
        asked = self.plan.seeds_of(self._name(term.grid))
        seeds = rows.groupby("point")["seed"].nunique()
        if any(seeds.get(point.folder_name, 0) < asked for point in points):
            return None
        return best_point(points, rows, term.best)

    def _chosen(self, statement: PaperStatement) -> str:
        """What was chosen as the best, in words; empty where nothing had to be.

        Of two it is said whose each is: by the settings in which the terms differ.
        """
        terms = statement.compared
        said = []
        for number, term in enumerate(terms):
            point = self._point(term, self._found(term)) if term.best else None
            if point is None:
                continue
            other = terms[1 - number] if len(terms) > 1 else None
            axes = self.plan.axes(self._name(term.grid))
            fixed = fixed_axes(term.where)
            chosen = [axis for axis in axes if axis.name not in fixed and len(axis.settings) > 1]
            listed = ", ".join(named_setting(axis, point.settings[axis.name]) for axis in chosen)
            if other is None or other.best is None:
                said.append(listed)
                continue
            unnamed = "the other" if self._whose(other, term) else ("the first", "the second")[number]
            said.append(f"{self._whose(term, other) or unnamed} with {listed}")
        return f" The best: {'; '.join(said)}." if said else ""

    def _whose(self, term: StudyTerm, other: StudyTerm) -> str:
        """The settings of ``term`` that ``other`` does not have, in words; "" if there are none."""
        same = self._name(term.grid) == self._name(other.grid)
        own = {
            name: term.where[name]
            for name in fixed_axes(term.where)
            if not same or name not in other.where or not same_setting(term.where[name], other.where[name])
        }
        axes = [axis for axis in self.plan.axes(self._name(term.grid)) if axis.name in own]
        return ", ".join(named_setting(axis, own[axis.name]) for axis in axes)

    def _of_direction(self, statement: PaperStatement, along: Monotone, sign: float) -> StatementVerdict:
        """The verdict on a direction: all steps along the axis must go one way.

        Args:
            statement: of the study.
            along: the measure and the axis.
            sign: 1: up; -1: down.
        """
        axis = self.plan.study.grids[self._name(along.grid)].axis(along.along)
        assert axis is not None
        rows = self._rows(along.grid, along.measure, along.series)
        points = [point for point in self._points(along.grid) if point.matches(along.where)]
        seeds = []
        for setting in axis.settings:
            point = next(p for p in points if same_setting(p.settings[axis.name], setting))
            seeds.append(last_by_seed(rows[rows["point"] == point.folder_name]))
        steps = [_steps(before, after, sign) for before, after in itertools.pairwise(seeds)]
        asked = self.plan.seeds_of(self._name(along.grid))
        outcomes = [_moves(*_interval(step, is_exact=_is_exact(statement, len(step)))) for step in steps]
        if any(len(step) < asked for step in steps):
            outcomes = [Outcome.NOT_JUDGED]
        worst_first = (Outcome.NOT_JUDGED, Outcome.DIFFERS, Outcome.NOT_SETTLED)
        outcome = next((one for one in worst_first if one in outcomes), Outcome.AGREES)
        measure = measure_named(along.measure)[0]
        values = tuple(float(one.max() if measure.is_epsilon else one.mean()) for one in seeds)
        return StatementVerdict(
            statement,
            outcome,
            _words(outcome, statement, asked),
            unit=_unit(measure, is_absolute=True),
            is_epsilon=measure.is_epsilon,
            along=values,
        )

    def _points(self, grid: str) -> Sequence[StudyPoint]:
        """Every point of a grid in this form; ``grid``: "" for the only one."""
        return points_of(self.plan.axes(self._name(grid)))

    def _name(self, grid: str) -> str:
        """The name of the grid that a term names; ``grid``: "" for the only one."""
        return self.plan.study.grid_name(grid)

    def _rows(self, grid: str, measure: str, series: str) -> pd.DataFrame:
        """The rows of the study's table of one grid, measure and series."""
        table = self.table
        chosen = (
            (table["grid"] == self._name(grid)) & (table["measure"] == measure) & (table["series"] == series)
        )
        return table[chosen]


def _combined(statement: PaperStatement, measured: Sequence[pd.Series[float]]) -> list[float]:
    """The value of every seed that has one: as measured, or compared with that of another term.

    A ``minus`` is subtracted; relative to another term it is percent above it. ``measured``: by seed, of the
    terms that the statement compares.
    """
    values = measured[0]
    if statement.minus is not None:
        values = values.sub(measured[1]).dropna()
    elif statement.relative_to is not None:
        values = (100 * (values / measured[1] - 1)).dropna()
    return [float(value) for value in values if not math.isnan(value)]


def _summaries(statement: PaperStatement, measured: Sequence[pd.Series[float]]) -> tuple[float, ...]:
    """The mean over seeds of both terms of a comparison, of ε the largest.

    Empty without a second term, and where a term is a difference itself. ``measured``: as of `_combined`.
    """
    if len(measured) == 1 or any(term.minus for term in statement.compared):
        return ()
    return tuple(
        float(values.max() if measure_named(term.measure)[0].is_epsilon else values.mean())
        for term, values in zip(statement.compared, measured, strict=True)
    )


def _unit(measure: Measure, *, is_absolute: bool) -> str:
    """The unit of values of a ``measure``: of an accuracy itself %, of differences of accuracies points."""
    return "%" if is_absolute and measure.unit == PERCENTAGE_POINTS else measure.unit


def _is_exact(statement: PaperStatement, seeds: int) -> bool:
    """Whether the range of the values is that of the truth: they follow from specs, and are ε or of one seed.

    Other values of several seeds, of channels that seeds draw, have a mean with an interval.
    """
    measures = [measure_named(term.measure)[0] for term in statement.terms]
    return all(one.is_exact and (seeds == 1 or one.is_epsilon) for one in measures)


def _interval(values: Sequence[float], *, is_exact: bool) -> tuple[float, float]:
    """The ends of the 95 % interval of the mean of ``values``; of exact ones their range.

    NaN where seeds are too few for an interval.
    """
    if not values:
        return math.nan, math.nan
    if is_exact:
        return min(values), max(values)
    found = mean(values)
    return found.value - found.half_width, found.value + found.half_width


def _compare(low: float, high: float, expected: tuple[float, float]) -> Outcome:
    """The outcome of comparing the interval from ``low`` to ``high`` with the ``expected`` one.

    Both intervals include their ends. Not settled where an end is NaN, or the intervals overlap in part.
    """
    if math.isnan(low) or math.isnan(high):
        return Outcome.NOT_SETTLED
    least, most = expected
    if least <= low and high <= most:
        return Outcome.AGREES
    if high < least or low > most:
        return Outcome.DIFFERS
    return Outcome.NOT_SETTLED


def _steps(before: pd.Series[float], after: pd.Series[float], sign: float) -> list[float]:
    """The steps of the seeds that have both values, times ``sign``; from ∞ to ∞ it is 0."""
    both = pd.DataFrame({"before": before, "after": after}).dropna()
    moved = both["after"] != both["before"]
    return [float(step) for step in (sign * (both["after"] - both["before"])).where(moved, 0.0)]


def _moves(low: float, high: float) -> Outcome:
    """The outcome of a step whose interval goes from ``low`` to ``high``: 0 is no step."""
    if high <= 0:
        return Outcome.DIFFERS
    return Outcome.AGREES if low > 0 else Outcome.NOT_SETTLED


def _words(outcome: Outcome, statement: PaperStatement, seeds: int) -> str:
    """The outcome as a sentence, in lower case; ``seeds``: over how many it was measured."""
    if outcome is Outcome.AGREES:
        return "agrees."
    if outcome is Outcome.DIFFERS:
        reason = statement.because.strip().rstrip(".")
        return f"differs because {reason}." if reason else "differs; the reason is not known."
    if outcome is Outcome.NOT_JUDGED:
        return "not judged: not every seed has a value."
    return f"not settled by {seeds} seed{'' if seeds == 1 else 's'}."
