"""The papers' claims of ε beside the rigorous ε."""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

from sfumato.report import formatting as text
from sfumato.report.figures.figure import NEUTRAL, NO_GUARANTEE, TRUSTED, Figure, log_axis, needs_log_axis
from sfumato.run_folder.reader import as_epsilon

_MOST_BARS = 20
_MOST_NAMED = 4
_ERRATA = (
    '<p class="facts">A letter with a number, as H1, is an entry in the list of errors of the four papers: '
    "docs/errata.md.</p>"
)
_ONE_ROUND = "one round"  # as sources of claims say it


def claims_sentence(claims: Sequence[Mapping[str, Any]]) -> list[str]:
    """How many claims hold, in a sentence; nothing without claims."""
    if not claims:
        return []
    counted = _counted(claims)
    about = {
        (str(claim["source"]).partition(",")[0], as_epsilon(claim["claimed_epsilon"])) for claim in claims
    }
    if len(about) > 1:
        return [f"{counted}."]
    later = [claim for claim in claims if _ONE_ROUND not in str(claim["source"])]
    if 0 < len(later) < len(claims):
        first = [claim for claim in claims if claim not in later]
        worst = max(as_epsilon(claim["rigorous_epsilon"]) for claim in later)
        said = claims_sentence(first)[0]
        return [f"Of one round: {said} Over all rounds the rigorous ε is up to {text.epsilon(worst)}."]
    ((source, claimed),) = about
    if len({claim["observer"] for claim in claims}) == len(claims) <= _MOST_NAMED:
        each = [
            f"it {'holds' if claim['holds'] else 'fails'} towards {claim['observer']} "
            f"({text.epsilon(as_epsilon(claim['rigorous_epsilon']))})"
            for claim in claims
        ]
        return [f"{source} claims ε = {text.number(claimed)}: {text.join_names(each)}."]
    found = sorted(as_epsilon(claim["rigorous_epsilon"]) for claim in claims)
    ends = list(dict.fromkeys(text.epsilon(value) for value in (found[0], found[-1])))
    return [f"{counted}: {source} claims ε = {text.number(claimed)}, the rigorous ε is {' to '.join(ends)}."]


def _counted(claims: Sequence[Mapping[str, Any]]) -> str:
    holding = sum(bool(claim["holds"]) for claim in claims)
    verb = "holds" if 1 in (holding, len(claims)) else "hold"
    made = text.pluralise("claim", len(claims))
    return f"{text.whole(holding)} of {text.whole(len(claims))} published {made} {verb} for this run"


def claims_figure(claims: Sequence[Mapping[str, Any]]) -> Figure | None:
    """Claimed and rigorous ε of each claim as bars; ``None`` without claims."""
    if not claims:
        return None
    shown = claims[:_MOST_BARS]
    claimed = [as_epsilon(claim["claimed_epsilon"]) for claim in shown]
    rigorous = [as_epsilon(claim["rigorous_epsilon"]) for claim in shown]
    finite = [value for value in claimed + rigorous if value < math.inf]
    end = max(finite, default=1.0) or 1.0
    log = needs_log_axis(finite)
    beyond = end * (2 if log else 1.15)  # length of a bar for an infinite ε
    source = str(claims[0]["source"])
    alike = all(claim["source"] == source for claim in claims)
    labels = [
        f"{'' if alike else text.wrapped(c['source'], 30) + '<br>'}"
        f"<span style='font-size:11px'>"
        f"{text.wrapped(' → '.join((c['unit'], c['observer'])), 40)}</span>"
        for c in shown
    ]
    places = list(range(len(shown)))
    height = 36 + 62 * len(shown)
    axis: dict[str, Any] = {"title": {"text": "ε"}, "fixedrange": True}
    axis |= log_axis([*finite, beyond]) if log else {"rangemode": "tozero"}
    return Figure(
        title="Claimed and rigorous ε" + (f": {text.escape(source)}" if alike else ""),
        caption=(
            f"{_counted(claims)}. A claim holds where the rigorous ε does not exceed it."
            f"{_about_one_round(claims)}"
        ),
        description=" ".join(
            f"{c['source']}, {c['unit']} towards {c['observer']}: claimed {text.number(a)}, rigorous "
            f"{text.epsilon(b)}."
            for c, a, b in zip(shown, claimed, rigorous, strict=True)
        ),
        data=[
            _bars("claimed", NEUTRAL, claimed, places, beyond),
            _bars("rigorous", TRUSTED, rigorous, places, beyond),
        ],
        layout={
            "height": height + 90,
            "barmode": "group",
            "bargap": 0.35,
            "margin": {"l": 8, "r": 56, "t": 8, "b": 76},
            "xaxis": axis,
            "yaxis": {
                "tickvals": places, "ticktext": labels, "autorange": "reversed", "automargin": True,
                "showgrid": False, "fixedrange": True,
            },
            "legend": {"orientation": "h", "x": 0, "y": -58 / height, "yanchor": "top"},
        },
        kind="claims",
    )  # fmt: skip


def _about_one_round(claims: Sequence[Mapping[str, Any]]) -> str:
    """How many claims are not about the whole training, where there are any."""
    some = sum(_ONE_ROUND in str(claim["source"]) for claim in claims)
    verb = "is" if some == 1 else "are"
    return f" {text.whole(some)} of them {verb} about one round only, not the whole training." if some else ""


def claims_table(claims: Sequence[Mapping[str, Any]], delta: str = "") -> str:
    """Why each claim holds or does not, and the claims as a table; ``delta`` stands beside the ε."""
    table = text.table(
        ["claim", "unit", "observer", "claimed ε", "rigorous ε", "holds", "why"],
        [
            (
                c["source"], c["unit"], c["observer"], text.number(as_epsilon(c["claimed_epsilon"])),
                text.epsilon(as_epsilon(c["rigorous_epsilon"])), "yes" if c["holds"] else "no",
                c.get("why", ""),
            )
            for c in claims
        ],
        caption=f"Published claims and the rigorous ε of this run{delta}",
        numeric=(3, 4),
    )  # fmt: skip
    return f"{_reasons(claims)}<details><summary>Show all claims</summary>{table}</details>"


def _reasons(claims: Sequence[Mapping[str, Any]]) -> str:
    """Every reason once, with the claims that it is about where it is not about all."""
    about: dict[str, list[str]] = {}
    pairs = Counter(map(_pair, claims))
    for claim in claims:
        pair = _pair(claim)
        which = pair if pairs[pair] == 1 else f"{claim['source']}, {pair}"
        for clause in str(claim.get("why") or "").rstrip(".").split("; "):
            if clause:
                about.setdefault(clause, []).append(which)
    items = []
    for clause, whom in about.items():
        only = "" if len(whom) == len(claims) else f"for {text.join_names(whom, _MOST_NAMED)}: "
        items.append(f"<li>{text.escape(text.sentence(only + clause))}</li>")
    if not items:
        return ""
    codes = _ERRATA if any(re.search(r"\([A-Z]\d", clause) for clause in about) else ""
    return f'<p>Why they hold or do not:</p><ul class="reasons">{"".join(items)}</ul>{codes}'


def _pair(claim: Mapping[str, Any]) -> str:
    return f"{claim['unit']} towards {claim['observer']}"


def _bars(
    name: str, colour: str, values: Sequence[float], places: Sequence[int], beyond: float
) -> dict[str, Any]:
    infinite = [value == math.inf for value in values]
    shown = [text.number(value) if name == "claimed" else text.epsilon(value) for value in values]
    return {
        "type": "bar",
        "orientation": "h",
        "name": name,
        "y": list(places),
        "x": [beyond if endless else value for value, endless in zip(values, infinite, strict=True)],
        "text": shown,
        "textposition": "outside",
        "cliponaxis": False,
        "hovertext": [f"{name}: ε = {value}" for value in shown],
        "hoverinfo": "text",
        "marker": {
            "color": [NO_GUARANTEE if endless else colour for endless in infinite],
            "pattern": {"shape": ["/" if endless else "" for endless in infinite]},
        },
    }
