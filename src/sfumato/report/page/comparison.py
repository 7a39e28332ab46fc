"""Several runs side by side: which is best at what, and a table of their figures."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import NamedTuple

from sfumato.privacy.guarantee import Guarantee
from sfumato.privacy.observers import ObserverKind
from sfumato.report import formatting as text
from sfumato.report.results.chance import note_on_difference
from sfumato.report.results.claim_words import by_source, held_in_words
from sfumato.report.results.comparability import (
    asks_for_energy,
    by_score_and_data,
    energy_text,
    have_comparable_epsilons,
)
from sfumato.report.results.cost_of_privacy import CostOfNoise
from sfumato.report.results.epsilon_words import unit_sentences
from sfumato.report.results.network import GroupNetwork
from sfumato.report.results.series import Series
from sfumato.report.results.spec_sections import has_noise
from sfumato.report.results.summary import Summary, guessing_beside, of_main_unit, score_text, unit_of_run
from sfumato.run_folder.headline import ACCURACY, Headline, headline_of
from sfumato.run_folder.reader import RunFolder

_ALIKE = ("unit", "δ", "rounds", "seeds")  # left out where all runs are alike
_MOST_IN_WORDS = 4  # runs
_NO_TWIN = "not known: no comparable run without noise here"
_WHOM: tuple[tuple[tuple[ObserverKind, ...], str, str], ...] = (
    (("cloud",), "the cloud", "the cloud"),
    (("public",), "the public", "the public"),
    (("own-edge",), "its own edge", "its own master"),
    (("other-edge",), "another edge", "another master"),
    (("peer", "other-device"), "another device", "another worker"),
)
"""Kinds of observers with their name in trees, and in groups."""
_BEST_TOWARDS: tuple[tuple[str, Callable[[Summary], float]], ...] = (
    ("the cloud", lambda one: one.epsilon_cloud),
    ("the public", lambda one: one.epsilon_public),
    ("the own edge (where it is not trusted)", lambda one: one.epsilon_own_edge),
    ("other workers", lambda one: one.epsilon_peers),
)


def best_runs(series: Sequence[Series], summaries: Sequence[Summary]) -> list[str]:
    """Sentences on which run has the best score, and which the smallest ε towards each kind of observer.

    Nothing is said where all runs are alike, of scores on different data, and of ε that cannot be compared.
    """
    said = []
    scores = set(by_score_and_data(series))
    finals = [one.final_score for one in summaries]
    if len(scores) == 1 and not any(map(math.isnan, finals)) and len(set(finals)) > 1:
        ((score, _),) = scores
        better = max if score.higher_is_better else min
        best = better(range(len(finals)), key=finals.__getitem__)
        superlative = "Highest" if score.higher_is_better else "Lowest"
        reached = f"{superlative} {score.name}: {summaries[best].run}, {score.text(finals[best])}"
        beside = _beside_best(score, list(zip(series, summaries, strict=True)), best)
        said.append(f"{reached}{_price(series[best])}.{beside}{guessing_beside(score, series)}")
    for whom, of in _BEST_TOWARDS if have_comparable_epsilons(series) else ():
        known = [(of(one), one.run) for one in summaries if not math.isnan(of(one))]
        finite = [value for value, _ in known if value < math.inf]
        if finite and len({text.epsilon(value) for value, _ in known}) > 1:
            least = text.epsilon(min(finite))
            most = text.epsilon(max(value for value, _ in known))
            ends = (
                f"{text.join_names([run for value, run in known if text.epsilon(value) == end])}, {end}"
                for end in (least, most)
            )
            said.append(f"Smallest ε towards {whom}: {'; largest: '.join(ends)}.")
    if said and all(one.seeds == 1 for one in summaries):
        said.append("Each run has one seed, so small differences may be chance.")
    return said


def _beside_best(score: Headline, runs: Sequence[tuple[Series, Summary]], best: int) -> str:
    """Sentences, each after a space, on how much worse than the ``best`` run the others are by ``score``.

    They tell those apart of which this may be chance. ``best``: its place in ``runs``.
    """
    near, worse = [], []
    for run in (run for place, run in enumerate(runs) if place != best):
        value = run[1].final_score
        shown = score.text(value)
        if note_on_difference(score, run[0], runs[best][0]):
            near.append(f"{run[1].run} ({shown})")
            continue
        points = text.points_between(runs[best][1].final_score, value) if score is ACCURACY else 0.0
        less = f", {points:.1f} points less" if points else ""
        worse.append(f"{run[1].run} ({shown}{less})")
    told = (("Not worse by more than chance may make it", near), ("Worse", worse))
    return "".join(f" {how}: {text.join_names(names, _MOST_IN_WORDS)}." for how, names in told if names)


def _price(one: Series) -> str:
    """A clause, after a comma, on the ε of a run and on the observers towards whom it has none.

    "" of a run without guarantees.
    """
    rows = [row for run in one.runs for row in of_main_unit(run.privacy.guarantees)]
    finite = [row.epsilon for row in rows if row.epsilon < math.inf]
    if not finite:
        return f", where no {unit_of_run(one.first)} has a guarantee (ε = ∞)" if rows else ""
    none = _without_guarantee(one)
    endless = f", and no guarantee (∞) towards {'; towards '.join(none)}" if none else ""
    return f", with ε of at most {text.epsilon(max(finite))}{endless}"


def _observers_of(one: Series) -> list[tuple[tuple[ObserverKind, ...], str]]:
    """Kinds of observers and what they are called in the network of a run."""
    grouped = isinstance(one.network.shape, GroupNetwork)
    return [(kinds, in_groups if grouped else in_trees) for kinds, in_trees, in_groups in _WHOM]


def _without_guarantee(one: Series) -> list[str]:
    """The observers towards whom some units of a run have no guarantee, each with how many and why.

    Such as "the cloud", or "its own edge for 25 of 50 devices (trusted)"; [] if there are none.
    """
    return [
        f"{words}{found.partition('∞')[2].replace('; ∞', ' and')}"
        for kinds, words in _observers_of(one)
        if "∞" in (found := _towards(one, *kinds))
    ]


def _rounds_in_words(one: Series, summary: Summary) -> str:
    """How many rounds a run has done, as text; with adaptive control also that this chose how many."""
    chosen = " (as many as adaptive control chose)" if one.first.spec_dict.get("control") else ""
    return f"{text.whole(summary.rounds)}{chosen}"


def _towards(one: Series, *kinds: ObserverKind) -> str:
    """The largest finite ε towards observers of these kinds, and for how many it is ∞; "–" without such.

    A device has one cloud and one own edge, unless it moves; of other kinds pairs are counted.
    """
    of_seeds = [_rows_towards(run, kinds) for run in one.runs]
    rows = [row for of_seed in of_seeds for row in of_seed]
    finite = [row.epsilon for row in rows if row.epsilon < math.inf]
    said = [text.epsilon(max(finite))] if finite else []
    each = set(kinds) <= {"cloud", "public", "own-edge"} and not one.network.trees
    for trusted, why in ((True, " (trusted)"), (False, "")):
        seed = next((s for s in of_seeds if any(_endless(row, trusted) for row in s)), ())
        many = sum(row.stands_for for row in seed if _endless(row, trusted))
        every = sum(row.stands_for for row in seed)
        if many:
            unit = unit_of_run(one.first) if each else "pair"
            whom = "" if many == every else f" for {text.whole(many)} of {text.how_many(every, unit)}"
            said.append(f"∞{whom}{why}")
    return "; ".join(said) or "–"


def _rows_towards(run: RunFolder, kinds: Sequence[ObserverKind]) -> list[Guarantee]:
    """The guarantees of the main unit towards observers of these kinds."""
    return [row for row in of_main_unit(run.privacy.guarantees) if row.relation.kind in kinds]


def _endless(row: Guarantee, trusted: bool) -> bool:
    """Whether ε is ∞, because the observer is ``trusted`` with raw updates or else for lack of protection."""
    return row.epsilon == math.inf and row.is_raw == trusted


def _told_towards(one: Series, *kinds: ObserverKind) -> str:
    """`_towards`, with "(budget)" behind a finite ε of a run with adaptive control."""
    said = _towards(one, *kinds)
    if not one.first.spec_dict.get("control") or not said[0].isdigit():
        return said
    finite, separator, endless = said.partition("; ")
    return f"{finite} (budget){separator}{endless}"


def largest_epsilons_in_words(series: Sequence[Series]) -> list[str]:
    """Sentences on the largest finite ε of every run in ``series`` and towards whom it is.

    They also say who has none (∞). Runs of which the same is said but for the value share one sentence. [] of
    more than `_MOST_IN_WORDS` runs.
    """
    if len(series) > _MOST_IN_WORDS:
        return []
    alike: dict[_WhoLearns, list[tuple[str, str]]] = {}
    for one in series:
        value, said = _who_learns(one)
        alike.setdefault(said, []).append((one.name, value))
    return [said.in_words(runs) for said, runs in alike.items()]


class _WhoLearns(NamedTuple):
    """What is said of a run but for its name and its largest finite ε.

    Attributes:
        unit: whose ε it is.
        towards: observers towards whom it is so large, with a comma before; "" without a finite ε.
        rest: further sentences, with a space before.
        only: name of the only run that it is said of; "" where others may share it.
    """

    unit: str
    towards: str
    rest: str
    only: str

    def in_words(self, runs: Sequence[tuple[str, str]]) -> str:
        """The sentences on ``runs``, a name and an ε each."""
        names = [name for name, _ in runs]
        if not self.towards:
            return f"{text.join_names(names)}: no {self.unit} has a guarantee."
        if len(runs) == 1:
            begin = f"{names[0]}: the largest finite ε of one {self.unit} is {runs[0][1]}"
        else:
            values = text.join_names([f"{value} in {name}" for name, value in runs])
            begin = f"The largest finite ε of one {self.unit} is {values}"
        return f"{begin}{self.towards}{self.rest}"


def _who_learns(one: Series) -> tuple[str, _WhoLearns]:
    """The largest finite ε of a run as text, who learns so much, and towards whom there is no guarantee."""
    unit = unit_of_run(one.first)
    rows = [row for run in one.runs for row in of_main_unit(run.privacy.guarantees)]
    finite = [row for row in rows if row.epsilon < math.inf]
    if not finite:
        return "∞", _WhoLearns(unit, "", "", "")
    most = text.epsilon(max(row.epsilon for row in finite))
    worst = {row.relation.kind for row in finite if text.epsilon(row.epsilon) == most}
    whom = _observers_of(one)
    said = text.join_names([words for kinds, words in whom if worst & set(kinds)], len(whom))
    trusted = "own-edge" in worst and any(row.is_raw for row in rows if row.relation.kind == "own-edge")
    none = _without_guarantee(one)
    tail = [f"No guarantee (∞) towards {'; towards '.join(none)}."] if none else []
    budget = ", a budget" if one.first.spec_dict.get("control") else ""
    failed = _failed_claim(one)
    rest = "".join(f" {said}" for said in [*tail, *_of_whole_devices(one, unit), *failed])
    towards = f"{budget}, towards {said}{', where that is not trusted' if trusted else ''}."
    return most, _WhoLearns(unit, towards, rest, one.name if failed else "")


def _of_whole_devices(one: Series, unit: str) -> list[str]:
    """A sentence that a whole device, and a person with several records, is protected less; [] of devices."""
    if unit == "device":
        return []
    return unit_sentences(one.first.spec_dict, unit, one.network.device_word)[1:]


def _failed_claim(one: Series) -> list[str]:
    """A sentence for each published source of which some claims do not hold; [] where all do."""
    said = []
    for source, about in by_source(one.first.privacy.claims).items():
        failed = sorted({claim.claimed_epsilon for claim in about if not claim.holds})
        if failed:
            _, not_held = held_in_words(about[0])
            towards = " towards some observers" if any(claim.holds for claim in about) else ""
            values = " to ".join(map(text.number, dict.fromkeys((failed[0], failed[-1]))))
            said.append(f"The claim of {source}, ε = {values}, {not_held}{towards} for this run.")
    return said


def comparison(series: Sequence[Series], summaries: Sequence[Summary], costs: Sequence[CostOfNoise]) -> str:
    """HTML of a table with a column for each run.

    A row is left out if it was measured in no run; unit, δ, rounds and seeds also if all runs have the same.

    Args:
        series: the runs compared, each of one or more seeds.
        summaries: of the same, in the same order.
        costs: what the noise costs those of which that is known.
    """
    rows = [
        row
        for row in _figures_of_runs(series, summaries, costs)
        if set(row[1:]) != {"–"} and (row[0] not in _ALIKE or len(set(row[1:])) > 1)
    ]
    deltas = {text.number(s.delta) for s in summaries}
    said = f" at δ = {next(iter(deltas))}" if len(deltas) == 1 else ""
    table = text.html_table(
        ["", *(s.run for s in summaries)],
        rows,
        caption=f"Comparison of the runs: the largest ε towards each kind of observer{said}; ∞: no "
        "guarantee, –: does not apply or was not measured",
        stacked=True,
    )
    return table


def _figures_of_runs(
    series: Sequence[Series], summaries: Sequence[Summary], costs: Sequence[CostOfNoise]
) -> list[tuple[str, ...]]:
    """Rows of a table: what a figure is, and that of every run; ``costs`` as in `comparison`."""
    scores = [headline_of(one.first.metrics) for one in series]
    mixed = len(set(scores)) > 1
    pairs = list(zip(series, summaries, strict=True))
    asked = [asks_for_energy([one]) for one in series]
    lost = {cost.one.name: cost.amount or "none seen" for cost in costs}
    found: dict[str, list[str]] = {
        "final score" if mixed else f"final {scores[0].name}": [
            score_text(score, one, named=mixed) for score, one in zip(scores, series, strict=True)
        ],
        "what the noise costs of it": [
            lost.get(one.name, _NO_TWIN if lost and has_noise(one.first.spec_dict) else "–") for one in series
        ],
        "unit": [s.unit for s in summaries],
        "ε, cloud": [_told_towards(one, "cloud") for one in series],
        "ε, public": [_told_towards(one, "public") for one in series],
        "ε, own edge": [_told_towards(one, "own-edge") for one in series],
        "ε, another edge": [_told_towards(one, "other-edge") for one in series],
        "ε, another device": [_told_towards(one, "peer", "other-device") for one in series],
        "δ": [text.number(s.delta) for s in summaries],
        "traffic, up and down": [text.quantity(s.total_bytes, text.BYTES) for s in summaries],
        "energy": [
            energy_text(one.first.spec_dict, s.energy_j) if has else "–"
            for (one, s), has in zip(pairs, asked, strict=True)
        ],
        "time to transmit": [
            text.quantity(s.delay_s, text.SECONDS) if has else "–"
            for s, has in zip(summaries, asked, strict=True)
        ],
        "rounds": [_rounds_in_words(one, s) for one, s in pairs],
        "seeds": [text.whole(s.seeds) for s in summaries],
    }
    return [(title, *values) for title, values in found.items()]
