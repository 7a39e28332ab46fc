"""The first words of a sweep's page: the best points, where ε is moderate, and where a front bends."""

from __future__ import annotations

import math
from collections.abc import Sequence

from sfumato.findings import LARGE_EPSILON
from sfumato.report import formatting as text
from sfumato.report.pareto.axis import SCORES, title_of
from sfumato.report.pareto.knee import knee_sentences
from sfumato.report.pareto.points import (
    ParetoPage,
    SweptPoint,
    cost_of,
    describe_objective,
    is_higher_better,
    planes,
    repeated_by,
    shown_value,
    value_of,
    varied_objectives,
)
from sfumato.run_folder.metrics_table import EPSILON_PREFIX


def headline(swept: ParetoPage) -> str:
    """HTML of the top of a Pareto page: warnings, and the best point by each objective."""
    failed = f"; {text.whole(len(swept.failures))} failed" if swept.failures else ""
    seeds = max((point.seeds for point in swept.points), default=0)
    of = f" of {seeds} seeds each" if seeds > 1 else ""
    alone = " One seed each: a difference between points may be chance." if seeds == 1 else ""
    counted = f"{text.whole(len(swept.points))} {text.pluralise('point', len(swept.points))}"
    said = [*_best_by_rule(swept), f"{counted}{of}{failed}.{alone}"]
    for name in varied_objectives(swept):
        known = [point for point in swept.points if math.isfinite(value_of(point, name))]
        if known:
            best = min(known, key=lambda point: cost_of(point, name))
            ones = [point for point in known if shown_value(point, name) == shown_value(best, name)]
            where = "every point" if len(ones) == len(swept.points) > 1 else swept.describe_point(best)
            others = len(ones) - 1 if len(ones) < len(swept.points) else 0
            more = f" and {text.whole(others)} {text.pluralise('other', others)}" if others else ""
            superlative = "Highest" if is_higher_better(name) else "Lowest"
            said.append(
                f"{superlative} {title_of(name)}: {describe_objective(best, name)} at {where}{more}"
                f"{_raw_devices_note(ones, name)}."
            )
    said += [
        f"{title_of(name)} equals {title_of(other)} at every point."
        for name in swept.measured
        if name.startswith(EPSILON_PREFIX) and (other := repeated_by(swept, name)) is not None
    ]
    said += _trust_difference_sentence(swept)
    said += knee_sentences(swept, [plane for plane in planes(swept) if plane[1] in SCORES])
    warnings = ["Some points failed; they are listed below."] if swept.failures else []
    notice = "".join(f'<p class="notice">{text.escape(said)}</p>' for said in [*warnings, *swept.notices])
    lead = "".join(f"<p>{text.escape(line)}</p>" for line in said)
    return f'<section aria-label="Headline">{notice}<div class="lead">{lead}</div></section>'


def _best_by_rule(swept: ParetoPage) -> list[str]:
    """Sentences on the best point by a rule that they state: the best score at an ε that is not large.

    One for every kind of observer towards whom some points have a large ε, with who is trusted there.
    """
    score = next((name for name in swept.measured if name in SCORES), None)
    if score is None:
        return []
    said = []
    for name in varied_objectives(swept):
        if not name.startswith(EPSILON_PREFIX):
            continue
        below = [point for point in swept.points if value_of(point, name) <= LARGE_EPSILON]
        scored = [point for point in below if not math.isnan(value_of(point, score))]
        if scored and len(below) < len(swept.points):
            best = min(scored, key=lambda point: cost_of(point, score))
            raw = f" ({best.known_raw} devices raw to a trusted edge)" if best.known_raw else ""
            reached = f"{title_of(score)} {describe_objective(best, score)}"
            rule = f"Best point with {title_of(name)} of at most {LARGE_EPSILON:g}"
            said.append(f"{rule}: {swept.describe_point(best)}, with {reached}{raw}.")
    return said


def _trust_difference_sentence(swept: ParetoPage) -> list[str]:
    """One sentence that points differ in how many devices send raw updates to trusted edges; else []."""
    raw = list(dict.fromkeys(point.raw_to_trusted_edge for point in swept.points))
    if len(raw) < 2:
        return []
    return [
        "The points differ in how many devices send raw updates to a trusted edge "
        f"({text.join_names(raw, 5)}). The fronts do not count that: compare points of equal trust, too."
    ]


def _raw_devices_note(points: Sequence[SweptPoint], name: str) -> str:
    """The text " (raw to a trusted edge: … devices)" beside an ε towards edges, which leaves these devices
    out; else "".

    ``name``: the objective.
    """
    if name.removeprefix(EPSILON_PREFIX) not in ("edge", "own-edge", "other-edge"):
        return ""
    known = list(filter(None, dict.fromkeys(point.known_raw for point in points)))
    return f" (raw to a trusted edge: {', or '.join(known)} devices)" if known else ""
