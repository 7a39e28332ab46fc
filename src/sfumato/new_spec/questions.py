"""Asks on a terminal what options leave open. A wrong answer is said, and the question asked again."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import TypeVar, cast

from sfumato.arguments import Argument
from sfumato.errors import SpecError
from sfumato.new_spec.decisions import (
    DEFAULT_ROW,
    MOST_SITES,
    Decisions,
    Protected,
    parsed_columns,
    parsed_delta,
    parsed_epsilon,
    parsed_number,
    parsed_unit,
    range_of,
)
from sfumato.new_spec.table import OwnTable

Answer = TypeVar("Answer")
Ask = Callable[[str, str], str]
"""Asks a question with a default answer and returns the answer."""

DEFAULT_PROTECT, DEFAULT_EPSILON, DEFAULT_DELTA, DEFAULT_SITES = "record", 4.0, 1e-5, 3
_NONE = "none"


@dataclass(frozen=True)
class Given:
    """What options decide; ``None`` for what they leave open. The attributes are those of `Decisions`."""

    label: str | None = None
    site: str | None = None
    sites: int | None = None
    person: str | None = None
    ids: tuple[str, ...] | None = None
    scale: dict[str, tuple[float, float]] | None = None
    row: str | None = None
    several: bool | None = None
    protect: Protected | None = None
    epsilon: float | None = None
    delta: float | None = None

    def missing(self) -> list[str]:
        """Which of label, site (or sites) and ε were not given, as a user writes them, in a list.

        On a terminal they are asked for; elsewhere label and site must be given.
        """
        found = [] if self.label is not None else [str(Argument("label"))]
        if self.site is None and self.sites is None:
            found.append(f"{Argument('site')} (or {Argument('sites')})")
        return found if self.epsilon is not None else [*found, str(Argument("epsilon"))]

    def with_defaults(self, table: OwnTable) -> Decisions:
        """The decisions, with defaults for what was not given; nothing may be `missing`."""
        label, site, person = cast("str", self.label), self.site, self.person
        return Decisions(
            label=label,
            site=site,
            sites=DEFAULT_SITES if self.sites is None else self.sites,
            person=person,
            ids=table.ids(label, site, person) if self.ids is None else self.ids,
            scale=self.scale or {},
            row=self.row or DEFAULT_ROW,
            several=self.several,
            protect=self.protect or ("record" if person is None else "person"),
            epsilon=DEFAULT_EPSILON if self.epsilon is None else self.epsilon,
            delta=DEFAULT_DELTA if self.delta is None else self.delta,
        )


def ask_for_missing(given: Given, table: OwnTable, ask: Ask, say: Callable[[str], object]) -> Given:
    """Ask for what was not given, each question again until its answer is valid; returns all of it.

    Args:
        given: by options; what it holds is not asked for.
        table: whose columns are asked about.
        ask: shows a question with the text of its default answer; returns the answer.
        say: shows what was wrong with an answer.
    """

    def until_right(question: str, default: str, read: Callable[[str], Answer]) -> Answer:
        while True:
            try:
                return read(ask(question, default).strip())
            except SpecError as error:
                say(str(error))

    def column(text: str, option: str) -> str:
        return table.column_called(text, Argument(option))

    if given.label is None:
        question = f"Which column is to be predicted? ({table.listed})"
        given = replace(given, label=until_right(question, "", lambda text: column(text, "label")))
    if given.site is None and given.sites is None:
        given = _sites(given, until_right, column)
    if given.several is None and given.person is None:
        given = _persons(given, until_right, column)
    if given.ids is None:
        found = table.ids(given.label, given.site, given.person)
        question = f"Which columns are identifiers, and so no features? (names with commas, or {_NONE})"
        ids = until_right(question, ",".join(found) or _NONE, lambda text: _names(text, table))
        given = replace(given, ids=ids)
    if given.row is None:
        row = until_right("What is one row? (a patient, a visit, ...)", DEFAULT_ROW, str)
        given = replace(given, row=row)
    if given.scale is None:
        given = replace(given, scale=_ranges(given.with_defaults(table), table, until_right))
    return _privacy(given, until_right)


def _sites(given: Given, until_right: Callable[..., object], column: Callable[[str, str], str]) -> Given:
    """``given`` with the column of sites, or with how many sites there are, as ``until_right`` answers.

    ``column``: the column that a text names, for an option.
    """
    question = f"Which column says whose row it is (hospital, branch)? (a name, or {_NONE})"
    site = until_right(question, _NONE, lambda text: None if text == _NONE else column(text, "site"))
    if site is not None:
        return replace(given, site=cast("str", site))
    question = "Among how many sites shall the rows be dealt evenly?"
    sites = until_right(
        question, str(DEFAULT_SITES), lambda text: int(parsed_number(text, "sites", 2, MOST_SITES))
    )
    return replace(given, sites=cast("int", sites))


def _persons(given: Given, until_right: Callable[..., object], column: Callable[[str, str], str]) -> Given:
    """``given`` with whether several rows may be of one person, and the column that says whose they are.

    ``person`` stays ``None`` where there is one row each, or no such column. ``until_right``: asks a question
    until the answer is valid. ``column``: the column that a text names, for an option.
    """
    several = until_right("May several rows be of one person? (yes or no)", "no", _yes_or_no)
    given = replace(given, several=cast("bool", several))
    if not several:
        return given
    question = f"Which column says whose row it is? (a name, or {_NONE})"
    person = until_right(question, _NONE, lambda text: None if text == _NONE else column(text, "person"))
    return replace(given, person=cast("str | None", person))


def _ranges(
    decisions: Decisions, table: OwnTable, until_right: Callable[..., object]
) -> dict[str, tuple[float, float]]:
    """Ask for the public range (low, high) of every feature; features without one are left out.

    ``until_right``: asks a question until the answer is valid.
    """
    found: dict[str, tuple[float, float]] = {}
    for name in decisions.features(table):
        question = f"Public range of {name}, known without the rows? (LOW:HIGH, or {_NONE})"

        def bounds(text: str, name: str = name) -> tuple[float, float] | None:
            return None if text == _NONE else range_of(text, Argument("scale"), name)

        stated = until_right(question, _NONE, bounds)
        if stated is not None:
            found[name] = cast("tuple[float, float]", stated)
    return found


def _privacy(given: Given, until_right: Callable[..., object]) -> Given:
    """``given`` with the unit, ε and δ, each asked for where it is open.

    ``until_right``: asks a question until the answer is valid.
    """
    if given.protect is None and given.person is None:
        question = f"Protect one {given.row} (record), or all rows of a site together (device)?"
        protect = until_right(question, DEFAULT_PROTECT, lambda text: parsed_unit(text, ("record", "device")))
        given = replace(given, protect=cast("Protected", protect))
    if given.epsilon is None:
        question = "ε towards the server? (1 is strong; above 10 hardly protects)"
        epsilon = until_right(question, f"{DEFAULT_EPSILON:g}", parsed_epsilon)
        given = replace(given, epsilon=cast("float", epsilon))
    if given.delta is None:
        question = "δ? (far below 1 over the number of rows)"
        delta = until_right(question, f"{DEFAULT_DELTA:g}", parsed_delta)
        given = replace(given, delta=cast("float", delta))
    return given


def _names(text: str, table: OwnTable) -> tuple[str, ...]:
    """A tuple of the columns that ``text`` names, with commas between them; empty for "none".

    Raises:
        SpecError: a name that is no column.
    """
    if text == _NONE:
        return ()
    return parsed_columns(text, "id", table)


def _yes_or_no(text: str) -> bool:
    """Whether a text says yes: ``y`` or ``yes``, in any case.

    Raises:
        SpecError: it says neither yes nor no.
    """
    if text.lower() not in ("y", "yes", "n", "no"):
        raise SpecError(Argument("several"), text, "must be yes or no")
    return text.lower() in ("y", "yes")
