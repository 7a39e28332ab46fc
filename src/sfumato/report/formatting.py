"""Numbers, names and tables as text; text from users is escaped, so that it is never read as markup."""

from __future__ import annotations

import html
import math
import textwrap
from collections.abc import Callable, Iterable, Sequence
from typing import Any

from sfumato import rounding
from sfumato.privacy.guarantee import Guarantee

number = rounding.number  # to the nearest
epsilon = rounding.upper_bound  # a guaranteed one; no guarantee is ∞
lower_epsilon = rounding.lower_bound  # one that an audit has shown


def escape(value: object) -> str:
    """``value`` as text with HTML's special characters escaped, for content and attributes: ``&lt;``."""
    return html.escape(str(value), quote=True)


def plotly_label(value: object) -> str:
    """``value`` as text for a Plotly label, with &, < and > escaped: Plotly reads ``<b>`` as HTML."""
    return html.escape(str(value), quote=False)


def wrapped(value: object, width: int = 60) -> str:
    """``value`` as a Plotly label, broken with ``<br>`` into lines of at most ``width`` characters.

    Characters are escaped as by `plotly_label`.
    """
    return "<br>".join(plotly_label(line) for line in textwrap.wrap(str(value), width))


def epsilon_range(row: Guarantee) -> str:
    """The least and the largest ε of the units of a row as text, rounded up; "–" where they do not differ."""
    return rounding.range_text(row.epsilon_range) or "–"


def at_delta(delta: float) -> str:
    """The text `` (δ = 1e-5)`` for ``delta`` = 1e-5, with its leading space, to put behind an ε.

    "" where δ is NaN.
    """
    return "" if math.isnan(delta) else f" (δ = {number(delta)})"


def sentence(said: str) -> str:
    """``said`` with one full stop, and its first letter in upper case: ``Edges add noise.``

    A first letter that is not ASCII, such as ε, stays as it is.
    """
    first = said[:1].upper() if said[:1].isascii() else said[:1]
    return f"{first}{said[1:].rstrip('.')}."


def title(name: str) -> str:
    """``name`` with its first letter in upper case, unless that is not ASCII, such as ε."""
    return f"{name[:1].upper() if name[:1].isascii() else name[:1]}{name[1:]}"


def whole(value: float) -> str:
    """The whole part of ``value``, which is finite, as text, with commas between thousands: ``1,000``."""
    return f"{int(value):,}"


def how_many(count: int, name: str) -> str:
    """``count`` with the noun ``name``, in the plural unless it is 1: ``1 pair`` or ``1,000 pairs``."""
    return f"{whole(count)} {pluralise(name, count)}"


def percent(value: float) -> str:
    """``value``, a share from 0 to 1, as percent with one decimal: ``97.3 %``; "–" for NaN."""
    return "–" if math.isnan(value) else f"{100 * value:.1f} %"


def span(values: Sequence[float], written: Callable[[float], str]) -> str:
    """The least and the largest of ``values``, at least one, as text: ``1 to 3``; one if written alike.

    ``written``: writes a value.
    """
    return " to ".join(dict.fromkeys(map(written, (min(values), max(values)))))


def points_between(share: float, other: float) -> float:
    """By how many percentage points ``share`` exceeds ``other``, rounded once, to one decimal.

    Negative where it does not.
    """
    return round(100 * (share - other), 1) + 0.0  # no negative zero


def percents_apart(share: float, other: float) -> tuple[str, str]:
    """Two shares as percent, with so many decimals that the difference of what is shown is right.

    It is then `points_between` them. One decimal where that is enough, at most four.
    """
    difference = points_between(share, other)
    digits = next(
        (d for d in range(1, 4) if round(round(100 * share, d) - round(100 * other, d), 1) == difference), 4
    )
    return f"{100 * share:.{digits}f} %", f"{100 * other:.{digits}f} %"


def scale(largest: float, units: Sequence[tuple[float, str]]) -> tuple[float, str]:
    """The largest of ``units`` that is at most ``largest``, to show it by; the smallest if none is.

    ``units``: (size, name) pairs, smallest first.
    """
    fitting = [unit for unit in units if abs(largest) >= unit[0]]
    return fitting[-1] if fitting else units[0]


BYTES = ((1.0, "B"), (1e3, "kB"), (1e6, "MB"), (1e9, "GB"), (1e12, "TB"))
JOULES = ((1e-6, "µJ"), (1e-3, "mJ"), (1.0, "J"), (1e3, "kJ"), (1e6, "MJ"), (1e9, "GJ"))
SECONDS = ((1e-3, "ms"), (1.0, "s"), (3600.0, "h"))


def quantity(value: float, units: Sequence[tuple[float, str]]) -> str:
    """``value`` with the name of the largest unit in which it is at least 1; "–" for NaN.

    ``units``: (size, name) pairs, smallest first.
    """
    if math.isnan(value):
        return "–"
    size, unit = scale(value, units)
    return f"{number(value / size)} {unit}"


def join_names(names: Sequence[str], most: int = 4) -> str:
    """The names as ``a, b and c``; of more than ``most``, ``most`` - 1 and how many more there are.

    "" of none.
    """
    if len(names) > most:
        return f"{', '.join(names[: most - 1])} and {whole(len(names) - most + 1)} more"
    return " and ".join(filter(None, [", ".join(names[:-1]), names[-1]])) if names else ""


def ranges_text(indices: Sequence[int], most: int = 4) -> str:
    """Ascending indices as text: "0–3, 7"; of more than ``most`` ranges ``most`` - 1 and "and N more".

    "" of none.
    """
    runs: list[list[int]] = []
    for index in indices:
        if runs and index == runs[-1][1] + 1:
            runs[-1][1] = index
        else:
            runs.append([index, index])
    names = [str(a) if a == b else f"{a}, {b}" if b == a + 1 else f"{a}–{b}" for a, b in runs]
    if len(names) <= most:
        return ", ".join(names)
    return f"{', '.join(names[: most - 1])} and {whole(sum(b - a + 1 for a, b in runs[most - 1 :]))} more"


def unit_of(row: Guarantee) -> str:
    """The unit of a row, such as ``device:1 (Lyon)``: with the sites of the units it stands for.

    Without them where it has none, or the unit is named by its only site.
    """
    is_named = list(row.sites) == [row.unit.partition(":")[2]]
    return f"{row.unit} ({join_names(row.sites)})" if row.sites and not is_named else row.unit


def pluralise(name: str, count: int = 2) -> str:
    """``name``, or its plural unless ``count`` is 1: ``edges``, ``entries``."""
    if count == 1:
        return name
    return f"{name[:-1]}ies" if name.endswith("y") else f"{name}s"


def paragraphs(lines: Iterable[str]) -> str:
    """Lines of plain text as HTML paragraphs, with special characters escaped; "" without any."""
    return "".join(f"<p>{escape(line)}</p>" for line in lines)


def html_table(
    headers: Sequence[str],
    rows: Iterable[Sequence[Any]],
    *,
    caption: str,
    numeric: Sequence[int] = (),
    stacked: bool = False,
) -> str:
    """An HTML table; every cell, header and the caption is escaped.

    Args:
        headers: of the columns.
        rows: the cells, one for each header.
        caption: above the table.
        numeric: numbers of the columns, from 0, that are aligned to the right.
        stacked: on a narrow screen every cell has a line of its own, behind the header of its column.

    Raises:
        ValueError: a row has more or fewer cells than there are headers.
    """
    kinds = [' class="n"' if i in numeric else "" for i in range(len(headers))]
    titles = [f' data-title="{escape(h)}"' if stacked else "" for h in headers]
    head = "".join(f'<th scope="col"{k}>{escape(h)}</th>' for h, k in zip(headers, kinds, strict=True))
    body = "".join(
        "<tr>"
        + "".join(f"<td{k}{t}>{escape(cell)}</td>" for cell, k, t in zip(row, kinds, titles, strict=True))
        + "</tr>"
        for row in rows
    )
    table = '<table class="stacked">' if stacked else "<table>"
    return (
        f'<div class="scroll" tabindex="0" role="region" aria-label="{escape(caption)}">{table}'
        f"<caption>{escape(caption)}</caption><thead><tr>{head}</tr></thead>"
        f"<tbody>{body}</tbody></table></div>"
    )
