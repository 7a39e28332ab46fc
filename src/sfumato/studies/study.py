"""What a study file may say: frozen models, checked like a spec.

A study has *grids* of specs, *panels* that draw what was measured, the *values* that the paper states, and
*statements* of the paper, each with a rule that decides from what was measured whether it agrees.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import Annotated, Any, Literal, TypeAlias

from pydantic import Field

from sfumato.spec.base import Count, Flag, NonNegative, Section, in_range
from sfumato.spec.limits import MOST
from sfumato.spec.refusals import Refusals
from sfumato.studies.measures.registry import title_of_measure

Text = Annotated[str, Field(min_length=1)]
Number = Annotated[float, in_range(-MOST, MOST)]
Where: TypeAlias = dict[str, Any]
"""The name of an axis and a value on it."""
POINT_COLUMNS = ("study", "form", "quick", "grid", "point")
SEED_COLUMNS = ("seed", "measure")
MEASUREMENT_COLUMNS = ("series", "at", "unit", "observer", "value")
ROUNDS = "at"
"""The ``x`` of panels of a measure over rounds or epochs, and the column that holds them."""
OWN_QUESTION = "a question of this study"
"""The ``place`` of statements that are no sentence of the paper; they are counted and shown apart."""
COLUMNS = (*POINT_COLUMNS, *SEED_COLUMNS, *MEASUREMENT_COLUMNS)
"""Columns of every table of results, in which axes stand behind the point; no axis can have such a name."""


class StudyAxis(Section):
    """What varies in a grid: one key of the spec, or several keys at once under a name for each case."""

    name: Text = Field(description="by which panels and statements call it")
    title: str = Field(default="", description="on plots; default: its name")
    key: str | None = Field(default=None, description="a dotted key of the spec")
    values: tuple[Any, ...] = Field(default=(), description="of the key")
    cases: dict[str, dict[str, Any]] = Field(
        default_factory=dict, description="name of a case: keys of the spec and their values"
    )

    def refusals(self) -> Refusals:
        """Refuse an axis without either a key with values, or cases that all set the same keys."""
        yield bool(self.cases) == (self.key is not None), "", None, "needs either key and values, or cases"
        yield self.key is not None and not self.values, "values", None, "must have at least one entry"
        keys = [set(case) for case in self.cases.values()]
        for name, case in self.cases.items():
            differ = sorted(set(case) ^ keys[0])
            allowed = f"must set the same keys as the first case; these are not in both: {', '.join(differ)}"
            yield bool(differ) or not case, f"cases.{name}", None, allowed

    @property
    def settings(self) -> tuple[Any, ...]:
        """The values of the axis, as panels and statements name them: of its key, or names of its cases."""
        return tuple(self.cases) if self.cases else self.values

    @property
    def words(self) -> str:
        """The title of the axis on plots."""
        return self.title or self.name


class StudyGrid(Section):
    """Specs that are run or accounted for: a base and all combinations of its axes."""

    spec: str | dict[str, Any] = Field(description="a spec, or the file or built-in name of one")
    over: tuple[StudyAxis, ...] = Field(min_length=1, description="what varies")
    trains: Flag = Field(default=True, description="false: only ε is computed")
    seeds: Count | None = Field(default=None, description="default: the study's")
    forms: tuple[Text, ...] = Field(default=(), description="forms that it belongs to; default: all")

    def refusals(self) -> Refusals:
        """Refuse two axes with one name, and an axis with the name of a column that every table has."""
        names = [axis.name for axis in self.over]
        for at, name in enumerate(names):
            yield name in names[:at], f"over[{at}].name", name, "names two axes of this grid"
            yield name in COLUMNS, f"over[{at}].name", name, "is a column of every table; choose another name"

    def axis(self, name: str) -> StudyAxis | None:
        """The axis called ``name``; ``None`` if there is none."""
        return next((axis for axis in self.over if axis.name == name), None)


Best: TypeAlias = Literal["highest", "lowest"]
"""Of several points, that with the highest or the lowest mean of the measure over seeds."""


def with_minus(one: StudyTerm | Panel) -> Where:
    """The settings of what is subtracted: those that ``one`` is at, but where its ``minus`` names others."""
    return {**one.where, **one.minus}


class StudyTerm(Section):
    """One measured quantity: a measure at one point of a grid, or at the best of several."""

    measure: Text
    grid: str = Field(default="", description="default: the only grid")
    where: Where = Field(default_factory=dict, description="axis: value, for every axis of the grid")
    best: Best | None = Field(
        default=None, description="of all points that where selects; axes may then be left out"
    )
    minus: Where = Field(
        default_factory=dict,
        description="axis: value; what is measured with these settings in place of its own is subtracted",
    )
    series: str = Field(default="", description="of measures that have several")
    at: Number | None = Field(
        default=None, description="of measures over rounds: the round; default: the last"
    )
    unit: int | None = Field(default=None, description="of pairs: the worker that ε is about")
    observer: int | None = Field(default=None, description="of pairs: the worker that observes")

    def refusals(self) -> Refusals:
        """Refuse a best point of which something is subtracted."""
        yield bool(self.minus) and self.best is not None, "minus", None, "goes without best"


class PaperValue(Section):
    """A value that the paper states of one point, drawn into every panel that shows the measure."""

    value: Number
    place: Text = Field(description="in the paper")
    measure: Text
    grid: str = ""
    where: Where = Field(default_factory=dict)
    minus: Where = Field(
        default_factory=dict, description="of panels with the same minus only: a difference from that setting"
    )
    series: str = Field(default="", description="of measures that have several; default: any")
    at: Number | None = None


class Expect(Section):
    """What a statement says of its value: an interval, whose ends may be left out, or that it is ∞."""

    at_least: Number | None = None
    at_most: Number | None = None
    about: Number | None = None
    within: NonNegative | None = Field(default=None, description="how far from ``about`` still agrees")
    infinite: Flag = Field(default=False, description="whether it is ∞: an ε without any guarantee")

    def refusals(self) -> Refusals:
        """Refuse anything but ``about`` with ``within``, one or two ends in ascending order, or ∞ alone."""
        ends = (self.at_least, self.at_most)
        both = (self.about, self.within)
        if self.infinite:
            yield ends != (None, None) or both != (None, None), "infinite", True, "goes with nothing else"
            return
        yield (self.about is None) != (self.within is None), "", None, "needs about and within together"
        yield (
            both == (None, None) and ends == (None, None),
            "",
            None,
            "needs at_least, at_most, about and within, or infinite",
        )
        yield both != (None, None) and ends != (None, None), "", None, "is either about a value or has ends"
        if self.at_least is not None and self.at_most is not None:
            yield self.at_least > self.at_most, "at_most", self.at_most, "must not be below at_least"

    @property
    def interval(self) -> tuple[float, float]:
        """The lowest and the highest value that agree with the statement; ∞ where an end is open."""
        if self.infinite:
            return float("inf"), float("inf")
        if self.about is not None and self.within is not None:
            return self.about - self.within, self.about + self.within
        low = -float("inf") if self.at_least is None else self.at_least
        return low, float("inf") if self.at_most is None else self.at_most

    @property
    def figure(self) -> float:
        """The value that the paper names: ``about``, else the lower end, else the upper; of ∞ that."""
        named = (x for x in (self.about, self.at_least, self.at_most) if x is not None)
        return next(named, float("inf"))


class Monotone(Section):
    """A measure along one axis, with all other axes at one value."""

    measure: Text
    along: Text = Field(description="the axis")
    grid: str = ""
    where: Where = Field(default_factory=dict)
    series: str = ""


class PaperStatement(Section):
    """A sentence of the paper in our words, and the rule that decides whether what was measured agrees.

    The value is ``value``, ``value`` minus ``minus``, or how many percent ``value`` is above ``relative_to``;
    computed seed by seed. Or a measure ``rises`` or ``falls`` along an axis.
    """

    says: Text
    place: Text = Field(description="in the paper, or ``a question of this study``")
    value: StudyTerm | None = None
    minus: StudyTerm | None = None
    relative_to: StudyTerm | None = None
    rises: Monotone | None = None
    falls: Monotone | None = None
    expect: Expect | None = None
    because: str = Field(default="", description="why it differs, where it does")

    @property
    def is_of_paper(self) -> bool:
        """Whether it is a sentence of the paper, and no question of the study's own."""
        return self.place != OWN_QUESTION

    @property
    def compared(self) -> tuple[StudyTerm, ...]:
        """A tuple of its value and of the term that it is compared with; empty of a direction."""
        return tuple(term for term in (self.value, self.minus, self.relative_to) if term is not None)

    @property
    def terms(self) -> tuple[StudyTerm | Monotone, ...]:
        """A tuple of all measured quantities that the statement uses."""
        return (*self.compared, *(along for along in (self.rises, self.falls) if along is not None))

    def refusals(self) -> Refusals:
        """Refuse anything but either one value with what is expected of it, or one direction.

        A value may be compared with one other: ``minus`` or ``relative_to``, not both.
        """
        said = [name for name in ("value", "rises", "falls") if getattr(self, name) is not None]
        yield len(said) != 1, "", None, "needs one of value, rises and falls"
        yield self.value is not None and self.expect is None, "expect", None, "is required beside value"
        yield self.value is None and self.expect is not None, "expect", None, "goes with value only"
        baselines = [name for name in ("minus", "relative_to") if getattr(self, name) is not None]
        yield (
            self.value is None and bool(baselines),
            baselines[0] if baselines else "",
            None,
            "goes with value only",
        )
        yield len(baselines) == 2, "relative_to", None, "goes without minus"


class Panel(Section):
    """One figure or table of the page.

    ``lines``: a measure over ``x``, a numeric axis, ``at`` (rounds) or a measure that follows from the spec,
    such as ``epsilon:public``; a line for every value of ``lines``.
    ``bars``: a bar for every value of ``x``, and of ``lines``. ``dots``: the same as dots, on an axis that
    need not begin at 0. ``heatmap``: ``x`` and ``y`` are axes.
    ``pairs``: ε of every worker towards every other, of one point. ``table``: a row for every point, a column
    for each of ``measures``.
    """

    kind: Literal["lines", "bars", "dots", "heatmap", "pairs", "table"]
    title: Text
    grid: str = Field(default="", description="default: the only grid")
    measures: tuple[Text, ...] = Field(min_length=1, description="one; of a table one or more")
    x: str = ""
    y: str = ""
    lines: str = Field(default="", description="an axis")
    where: Where = Field(default_factory=dict, description="axis: value, or a list of values")
    minus: Where = Field(
        default_factory=dict,
        description="axis: value; of bars and dots: what is measured with these settings in place of a "
        "point's own is subtracted",
    )
    series: tuple[Text, ...] = Field(default=(), description="of measures that have several; default: all")
    best: Best | None = Field(
        default=None,
        description="of points that are alike in x, lines and per, only that with the best value",
    )
    per: tuple[Text, ...] = Field(default=(), description="of best: axes beside x and lines")
    log: Flag = False
    y_range: tuple[Number, Number] | None = Field(
        default=None, description="ends of the y axis of lines, bars and dots; default: that of the values"
    )
    about: str = Field(default="", description="below the figure")
    first_worker: int = Field(default=0, description="of pairs: the number of the first worker in the paper")

    @property
    def is_over_rounds(self) -> bool:
        """Whether its ``x`` is no axis but rounds or epochs: the word ``at``."""
        return self.x == ROUNDS

    def measure_of_x(self, axes: Collection[str]) -> str:
        """The measure that is its ``x``; "" where its ``x`` is one of ``axes``, by name, or rounds."""
        return "" if self.x in axes or self.is_over_rounds else self.x

    def refusals(self) -> Refusals:
        """Refuse a panel that lacks what its kind needs, or has what does not go with it.

        Only a table may have several measures, and ``per`` goes with ``best``.
        """
        yield (
            self.kind != "table" and len(self.measures) > 1,
            "measures",
            None,
            "must have one entry, but in a table",
        )
        yield (
            self.kind in ("lines", "bars", "dots", "heatmap") and not self.x,
            "x",
            None,
            f"is required of {self.kind}",
        )
        yield self.kind == "heatmap" and not self.y, "y", None, "is required of a heatmap"
        yield bool(self.per) and self.best is None, "per", list(self.per), "goes with best only"
        is_grouped = self.kind in ("bars", "dots")
        yield bool(self.minus) and not is_grouped, "minus", None, "goes with bars and dots only"
        yield bool(self.minus) and self.best is not None, "minus", None, "goes without best"
        if self.y_range is not None:
            ends = list(self.y_range)
            yield self.log, "y_range", ends, "goes without log"
            yield ends[0] >= ends[1], "y_range", ends, "must be two ascending numbers"


class Form(Section):
    """The study on one data set: ``fmnist`` or ``digits``, which run on any machine, or ``paper``."""

    changes: dict[str, Any] = Field(
        default_factory=dict, alias="set", description="dotted keys of every grid's spec, and their values"
    )
    needs: str = Field(default="", description="what has to be fetched, where it goes, and what it costs")
    unstated: str = Field(default="", description="in place of the study's")


class Quick(Section):
    """A look in minutes: shorter, with fewer seeds and points. It decides nothing."""

    changes: dict[str, Any] = Field(default_factory=dict, alias="set", description="dotted keys and values")
    seeds: Count = 1
    keep: dict[str, tuple[Any, ...]] = Field(default_factory=dict, description="axis: the values that stay")


class Study(Section):
    """A table or figure of a paper, computed again."""

    title: Text
    paper: Text
    figure: Text = Field(description="figure or table, with its section")
    found: str = Field(default="", description="what a full run of the first form found, in a few sentences")
    intro: Text = Field(description="what is compared, in a few sentences")
    unstated: str = Field(default="", description="what the paper leaves open and how it is set here")
    seeds: Count = 5
    round_name: Text = Field(default="round", description="what the paper calls a round; on axes")
    titles: dict[str, Text] = Field(
        default_factory=dict, description="measure: its title on axes and in tables, in place of its own"
    )
    grids: dict[str, StudyGrid] = Field(min_length=1)
    panels: tuple[Panel, ...] = Field(min_length=1)
    values: tuple[PaperValue, ...] = Field(default=(), description="that the paper states")
    statements: tuple[PaperStatement, ...] = ()
    quick: Quick = Quick()
    forms: dict[str, Form] = Field(min_length=1, description="by name; the first is run by default")

    def grid_name(self, name: str) -> str:
        """The name of the grid that ``name`` in a panel or term stands for; "" stands for the only grid.

        Of several grids "" is none: `check_references` refuses it.
        """
        return next(iter(self.grids)) if not name and len(self.grids) == 1 else name

    def in_form(self, form: str) -> Study:
        """The study with the grids of one of its ``forms`` only, and with what is shown or said of these.

        A statement stays if all grids that it compares do. What a full run found is said of the first form.

        Raises:
            KeyError: the study has no such form.
        """
        grids = {name: grid for name, grid in self.grids.items() if not grid.forms or form in grid.forms}

        def belongs(name: str) -> bool:
            """Whether the grid that a panel or term names is one of them."""
            return self.grid_name(name) in grids

        kept = {
            "grids": grids,
            "panels": tuple(panel for panel in self.panels if belongs(panel.grid)),
            "values": tuple(value for value in self.values if belongs(value.grid)),
            "statements": tuple(
                one for one in self.statements if all(belongs(term.grid) for term in one.terms)
            ),
            "unstated": self.forms[form].unstated or self.unstated,
            "found": self.found if form == self.first_form else "",
        }
        return self.model_copy(update=kept)

    def title_of(self, measure: str) -> str:
        """The title of a measure on axes and in tables: the study's own, else that of `title_of_measure`."""
        return self.titles.get(measure) or title_of_measure(measure)

    @property
    def first_form(self) -> str:
        """The name of the form that is run by default."""
        return next(iter(self.forms))

    @property
    def can_be_shortened(self) -> bool:
        """Whether it has a shorter form: it trains, or its section ``quick`` leaves something out."""
        trains = any(grid.trains for grid in self.grids.values())
        return trains or bool(self.quick.changes or self.quick.keep)
