"""The first words of a sweep's page: the best points, where ε is moderate, and where a front bends."""

from __future__ import annotations

import math
from collections.abc import Sequence

from sfumato.findings.large_epsilons import LARGE_EPSILON
from sfumato.report import formatting as text
from sfumato.report.formatting import points_between
from sfumato.report.page.not_accounted import noise_from_seed
from sfumato.report.pareto.axis import ACCURACY, SCORES, title_of
from sfumato.report.pareto.knee import knee_sentences
from sfumato.report.pareto.points import (
    ParetoPage,
    SweptPoint,
    cost_of,
    describe_objective,
    is_higher_better,
    mixes_observers,
    note_on_trust,
    planes,
    repeated_by,
    shown_value,
    value_of,
    varied_objectives,
)
from sfumato.report.results.epsilon_words import several_in_words
from sfumato.run_folder.metrics_table import EPSILON_PREFIX
from sfumato.spec.words_of_keys import WORDS

_MOST_EPSILONS = 4


def headline(swept: ParetoPage) -> str:
    """HTML of the top of a Pareto page: warnings, the best point by each objective, where a front bends."""
    failed = f"; {text.whole(len(swept.failures))} failed" if swept.failures else ""
    seeds = max((point.seeds for point in swept.points), default=0)
    of = f" of {seeds} seeds each" if seeds > 1 else ""
    tested = f" and {text.whole(swept.tested)} test examples" if swept.tested else ""
    alone = f" One seed each{tested}: a small difference between points may be chance." if seeds == 1 else ""
    counted = f"{text.whole(len(swept.points))} {text.pluralise('point', len(swept.points))}"
    told = [plane for plane in planes(swept) if plane[1] in SCORES]
    bends = knee_sentences(swept, told)
    only_target = tuple(swept.keys) == (WORDS["privacy.noise.epsilon"],)  # its least has the least ε
    if only_target and bends and not math.isnan(swept.guess):
        bends[-1] += f" Guessing would give {text.percent(swept.guess)}."
    said = [*_best_by_rule(swept), *bends, *_sentence_on_baseline(swept), *_epsilons_in_words(swept)]
    spread = f" {_order_in_words(swept, seeds)}" if seeds > 1 else ""
    said.append(f"{counted}{of}{failed}.{alone}{spread}")
    for name in varied_objectives(swept):
        if only_target and (name.startswith(EPSILON_PREFIX) or (bends and name in SCORES)):
            continue  # then the sentence on the front has the best score
        if _restates_target(swept, name):
            continue
        known = [point for point in swept.points if math.isfinite(value_of(point, name))]
        if known:
            best = min(known, key=lambda point: cost_of(point, name))
            ones = [point for point in known if shown_value(point, name) == shown_value(best, name)]
            where = "every point" if len(ones) == len(swept.points) > 1 else _describe_points(swept, ones)
            superlative = "Highest" if is_higher_better(name) else "Lowest"
            trust = note_on_trust(ones, name)
            said.append(
                f"{superlative} {title_of(name)}: {describe_objective(best, name)} at {where}"
                f"{f' ({trust})' if trust else ''}{_clause_on_guessing(swept, name)}."
            )
    said += [
        f"{title_of(name)} equals {title_of(other)} at every point."
        for name in swept.measured
        if name.startswith(EPSILON_PREFIX) and (other := repeated_by(swept, name)) is not None
    ]
    said += _trust_difference_sentence(swept)
    if any(name in SCORES for name in swept.measured) and any(map(_is_bounded, swept.points)):
        said.append(noise_from_seed("a"))
    failures = ["Some points failed; they are listed below."] if swept.failures else []
    warnings = [*failures, *_large_epsilons(swept), *swept.notices]
    notice = "".join(f'<p class="notice">{text.escape(said)}</p>' for said in warnings)
    lead = "".join(f"<p>{text.escape(line)}</p>" for line in said)
    return f'<section aria-label="Headline">{notice}<div class="lead">{lead}</div>{_command(swept)}</section>'


def _order_in_words(swept: ParetoPage, seeds: int) -> str:
    """Sentences on how far intervals over at most ``seeds`` seeds settle an order of the points."""
    score = next((name for name in swept.measured if name in SCORES), None)
    if score and _overlap(swept.points, score):
        return (
            f"The intervals of all points overlap in {title_of(score)}: with {text.how_many(seeds, 'seed')} "
            "each, every order among them may be chance."
        )
    unseen = [key for place, key in enumerate(swept.keys) if score and _is_unseen(swept, place, score)]
    said = [
        f"Points that differ only in {key} have overlapping intervals of {title_of(score)}: no effect of "
        f"{key} on it is seen."
        for key in unseen
        if score
    ]
    return " ".join([*said, "Where the intervals in the table overlap, an order may be chance."])


def _overlap(points: Sequence[SweptPoint], name: str) -> bool:
    """Whether at least two points have an interval of an objective, and one value is in all of these."""
    means = [point.objectives[name] for point in points if name in point.objectives]
    ends = [(one.value - one.half_width, one.value + one.half_width) for one in means]
    known = [pair for pair in ends if not any(map(math.isnan, pair))]
    return len(known) > 1 and max(low for low, _ in known) <= min(high for _, high in known)


def _is_unseen(swept: ParetoPage, place: int, score: str) -> bool:
    """Whether the intervals of a score overlap among all points that differ only in the key at ``place``."""
    alike: dict[tuple[str, ...], list[SweptPoint]] = {}
    for point in swept.points:
        others = tuple(label for at, label in enumerate(point.labels) if at != place)
        alike.setdefault(others, []).append(point)
    compared = [points for points in alike.values() if len(points) > 1]
    return len(alike) > 1 and bool(compared) and all(_overlap(points, score) for points in compared)


def _restates_target(swept: ParetoPage, name: str) -> bool:
    """Whether the objective is an ε that equals, at every point, the target ε that is swept."""
    target = WORDS["privacy.noise.epsilon"]
    if target not in swept.keys or not name.startswith(EPSILON_PREFIX):
        return False
    place = swept.keys.index(target)
    return all(point.labels[place] in _as_written(value_of(point, name)) for point in swept.points)


def _as_written(value: float) -> tuple[str, ...]:
    """The ways in which a spec may write an ε as a target: ``8`` and ``8.0``."""
    shown = text.epsilon(value)
    return shown, f"{shown}.0"


def _is_bounded(point: SweptPoint) -> bool:
    """Whether any ε of a point is finite."""
    return any(
        math.isfinite(value_of(point, name)) for name in point.objectives if name.startswith(EPSILON_PREFIX)
    )


def _command(swept: ParetoPage) -> str:
    """HTML of the folded command that trains a run without noise beside the sweep.

    "" where none fits, or such a run is there.
    """
    if not swept.silent_command:
        return ""
    how = (
        "This command, in the folder that holds the sweep, trains what all points share without noise, with "
        "one seed. The sweep's own command, given once more, then writes its accuracy into this page:"
    )
    shown = f'<pre class="command" tabindex="0">{text.escape(swept.silent_command)}</pre>'
    question = "What the noise costs in all"
    return f"<details><summary>{question}</summary>{text.paragraphs([how])}{shown}</details>"


def _epsilons_in_words(swept: ParetoPage) -> list[str]:
    """Sentences on what the ε of the points mean, towards the cloud or else the first observer.

    Of more than `_MOST_EPSILONS` different ε only the ends are told, and none of those that are large, of
    which a warning speaks. Of records another sentence is on somebody with several. [] if there is nothing to
    tell.
    """
    names = sorted(
        (name for name in swept.measured if name.startswith(EPSILON_PREFIX)),
        key=lambda name: name != f"{EPSILON_PREFIX}cloud",
    )
    if not names:
        return []
    towards = [value_of(point, names[0]) for point in swept.points]
    found = {text.epsilon(value): value for value in towards if value > 0}
    values = sorted((value for value in found.values() if value <= LARGE_EPSILON), reverse=True)
    shown = values if len(values) <= _MOST_EPSILONS else [values[0], values[-1]]
    if not shown:
        return []
    said = several_in_words(f"a {swept.unit}'s" if swept.unit else "one protected unit's", shown)
    less = ["Somebody with several records is protected less."] if swept.unit == "record" else []
    return [f"What {title_of(names[0])} means: {said[0].lower()}{said[1:]}", *less]


def _clause_on_guessing(swept: ParetoPage, name: str) -> str:
    """What guessing would give, beside an accuracy; else ""."""
    if name != ACCURACY or math.isnan(swept.guess):
        return ""
    return f"; guessing would give {text.percent(swept.guess)}"


def _describe_points(swept: ParetoPage, points: Sequence[SweptPoint]) -> str:
    """Points as text: every swept key with its values, if they are all combinations of these.

    Otherwise the first of them, and how many others there are.
    """
    values = [list(dict.fromkeys(labels)) for labels in zip(*(p.labels for p in points), strict=True)]
    if math.prod(map(len, values)) > len(points):
        others = len(points) - 1
        first = swept.describe_point(points[0])
        return f"{first} and {text.whole(others)} {text.pluralise('other point', others)}"
    named = zip(swept.keys, values, strict=True)
    return ", ".join(f"{key} = {' or '.join(found)}" for key, found in named)


def _large_epsilons(swept: ParetoPage) -> list[str]:
    """A warning for each kind of observer towards whom some points have a large, finite ε."""
    said = []
    for name in (name for name in swept.measured if name.startswith(EPSILON_PREFIX)):
        known = [value for point in swept.points if not math.isnan(value := value_of(point, name))]
        large = sorted(value for value in known if LARGE_EPSILON < value < math.inf)
        if large:
            where = "every point" if len(large) == len(known) else f"{len(large)} of {len(known)} points"
            ends = dict.fromkeys(map(text.epsilon, (large[0], large[-1])))
            alike = not mixes_observers(swept, name)  # else `_trust_difference_sentence` says it
            trust = note_on_trust(swept.points, name) if alike else ""
            said.append(
                f"{title_of(name)} is above {LARGE_EPSILON:g} at {where} ({' to '.join(ends)}): "
                f"hardly any protection.{f' It is {trust}.' if trust else ''}"
            )
    return said


def _best_by_rule(swept: ParetoPage) -> list[str]:
    """Sentences on the best point by a rule that they state: the best score at an ε that is not large.

    One for every kind of observer towards whom some points have a large ε, with who is trusted there.
    """
    score = next((name for name in swept.measured if name in SCORES), None)
    if score is None:
        return []
    said = []
    for name in varied_objectives(swept):
        if not name.startswith(EPSILON_PREFIX) or mixes_observers(swept, name):
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
        f"({text.join_names(raw, 5)}), towards which their ε is ∞. A front does not count that: compare "
        "points of equal trust, too."
    ]


def _sentence_on_baseline(swept: ParetoPage) -> list[str]:
    """A list with one sentence on what a run without noise reaches, and what noise costs each point.

    Without such a run it says that there is none. [] where a point has no noise, or nothing was scored.
    """
    names = [name for name in swept.measured if name.startswith(EPSILON_PREFIX)]
    known = [{value_of(point, name) for name in names} for point in swept.points]
    silent = any(all(value == math.inf for value in values if not math.isnan(value)) for values in known)
    score = next((name for name in swept.measured if name in SCORES), None)
    if silent or score is None:
        return []
    if not math.isnan(swept.silent):
        without = (
            f"Without noise {title_of(score)} is {SCORES[score].text(swept.silent)} ({swept.silent_name})"
        )
        return [f"{without}{_costs_of_points(swept, score)}."]
    return [
        "What the noise costs in all is not known: no point is without it, and no run beside the sweep has "
        "the same settings without it."
    ]


def _costs_of_points(swept: ParetoPage, score: str) -> str:
    """A clause, after a colon, on how many points of accuracy noise costs at each of a few points.

    "" of other scores and of more than `_MOST_EPSILONS` points.
    """
    if score != ACCURACY or len(swept.points) > _MOST_EPSILONS:
        return ""
    costs = [
        (points_between(swept.silent, value_of(point, score)), swept.describe_point(point))
        for point in reversed(swept.points)
        if not math.isnan(value_of(point, score))
    ]
    each = [f"{cost:.1f} points at {where}" for cost, where in costs if cost > 0]
    unseen = [where for cost, where in costs if cost <= 0]
    said = [f"the noise costs {text.join_names(each)}"] if each else []
    said += [f"no cost of the noise is seen at {text.join_names(unseen)}"] if unseen else []
    return f": {'; '.join(said)}" if said else ""
