"""Tables of measures, a row for every point, beside the paper's values."""

from __future__ import annotations

from collections.abc import Sequence

from sfumato.report import formatting as text
from sfumato.rounding import number
from sfumato.studies.grids import StudyPoint, setting_text
from sfumato.studies.measures.registry import measure_named
from sfumato.studies.page.panel_data import PanelData
from sfumato.studies.study import Panel, PaperValue

_MOST_OPEN = 24  # rows of a table that is shown without a click


def measure_table(data: PanelData) -> str:
    """The panel as an HTML table: a row for every point, its measures beside the paper's values.

    Axes with a single value among the points have no column. "–" stands where nothing was measured or stated.
    """
    axes = [
        axis
        for axis in data.axes
        if len({setting_text(point.settings[axis.name]) for point in data.points}) > 1
    ]
    columns = [(measure, series) for measure in data.panel.measures for series in data.series(measure)]
    stated = {measure: list(data.paper_values(measure)) for measure in data.panel.measures}
    headers = [axis.words for axis in axes]
    for measure, series in columns:
        words = ", ".join(filter(None, (data.title_of(measure), series)))
        headers += [words, "paper"] if _states(stated[measure], series) else [words]
    rows = []
    for point in data.points:
        row = [setting_text(point.settings[axis.name]) for axis in axes]
        for measure, series in columns:
            row.append(data.figure_of(measure, data.mean_at(point, measure, series)))
            if _states(stated[measure], series):
                found = [v.value for v, at in stated[measure] if at is point and v.series in ("", series)]
                row.append(", ".join(map(number, found)) or "–")
        rows.append(row)
    caption = data.means_in_words
    has_epsilon = any(measure_named(measure)[0].is_epsilon for measure in data.panel.measures)
    if data.seeds > 1:
        caption += " ± half of the 95 % interval"
        caption += "; of ε the largest" if has_epsilon else ""
    caption += "; ε are rounded up" if has_epsilon else ""
    first = len(axes)
    numeric = tuple(range(first, len(headers)))
    table = text.html_table(headers, rows, caption=caption, numeric=numeric)
    return with_heading(data.panel, table if len(rows) <= _MOST_OPEN else folded(table, len(rows)))


def folded(table: str, rows: int) -> str:
    """HTML of a table that is shown when its summary, which says how many ``rows`` it has, is opened."""
    return f"<details><summary>Show all {text.whole(rows)} rows</summary>{table}</details>"


def with_heading(panel: Panel, table: str) -> str:
    """HTML of a table under the title of its panel and what the panel says about it."""
    about = text.paragraphs([text.sentence(panel.about)]) if panel.about else ""
    return f"<h3>{text.escape(panel.title)}</h3>{about}{table}"


def _states(stated: Sequence[tuple[PaperValue, StudyPoint]], series: str) -> bool:
    """Whether the paper states a value of a series."""
    return any(value.series in ("", series) for value, _ in stated)
