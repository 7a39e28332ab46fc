"""The summary of a run: one row of figures, and a few sentences."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from sfumato.findings.guessing import guessing_in_words, share_of_guessing
from sfumato.privacy.guarantee import Guarantee
from sfumato.privacy.observers import ObserverKind
from sfumato.report.formatting import epsilon, how_many, join_names, percent, whole
from sfumato.report.results.chance import by_chance, tested_examples
from sfumato.report.results.dp_ogl_plus import note_between_releases, rounds_to_a_release
from sfumato.report.results.matrix import Matrix, build_matrix
from sfumato.report.results.observer_labels import labels_for
from sfumato.report.results.series import Series
from sfumato.report.results.spec_sections import source_of
from sfumato.run_folder.headline import ACCURACY, Headline, headline_of
from sfumato.run_folder.label_counts import read_test_persons
from sfumato.run_folder.reader import RunFolder
from sfumato.run_folder.recorded_privacy import RawDevices

_CLEARLY = 0.01  # of accuracy
SPREAD = 1.05  # of ε from unit to unit, worth a sentence


@dataclass(frozen=True)
class Summary:
    """One row of a comparison; ``Comparison.table`` documents the columns."""

    run: str
    protocol: str
    seeds: int
    rounds: int
    final_accuracy: float
    final_accuracy_half_width: float
    best_accuracy: float
    delta: float
    epsilon_cloud: float
    epsilon_own_edge: float
    epsilon_other_edge: float
    raw_to_trusted_edge: str
    total_bytes: float
    energy_j: float
    delay_s: float
    epsilon_peers: float
    score: str
    final_score: float
    final_score_half_width: float
    epsilon_public: float
    cloud_is_trusted: bool
    unit: str


def matrix_of(one: Series) -> Matrix:
    """The matrix of the guarantees of the first seed of a series, with the labels of its network."""
    return build_matrix(one.first.privacy.guarantees, labels_for(one.network))


def summarise(series: Series) -> Summary:
    """The figures of ``series`` as one row of a comparison; NaN where something was not measured.

    `Comparison.table` says what each is.
    """
    accuracy, score = series.final("accuracy"), headline_of(series.first.metrics)
    rows = [row for run in series.runs for row in of_main_unit(run.privacy.guarantees)]

    def largest(kind: ObserverKind) -> float:
        """The largest ε towards observers of ``kind``; NaN without such; trusted own edges are left out.

        `raw_to_trusted_edge` counts the latter.
        """
        towards = (row for row in rows if row.relation.kind == kind)
        return max((row.epsilon for row in towards if kind != "own-edge" or not row.is_raw), default=math.nan)

    to_cloud = [row for row in rows if row.relation.kind == "cloud"]
    return Summary(
        run=series.name,
        protocol=str(series.first.spec_dict["protocol"]),
        seeds=len(series.runs),
        rounds=series.rounds_played,
        final_accuracy=accuracy.value,
        final_accuracy_half_width=accuracy.half_width,
        best_accuracy=series.best("accuracy").value,
        delta=series.first.privacy.delta,
        epsilon_cloud=largest("cloud"),
        epsilon_own_edge=largest("own-edge"),
        epsilon_other_edge=largest("other-edge"),
        raw_to_trusted_edge=raw_text(series.first.privacy.raw_to_trusted_edge),
        total_bytes=series.total("bytes_up", "bytes_down").value,
        energy_j=series.total("energy_j").value,
        delay_s=series.total("delay_s").value,
        epsilon_peers=max(epsilons_towards_workers(series), default=math.nan),
        score=score.column,
        final_score=series.final(score.column).value,
        final_score_half_width=series.final(score.column).half_width,
        epsilon_public=largest("public"),
        cloud_is_trusted=bool(to_cloud) and all(row.is_raw for row in to_cloud),
        unit=unit_of_run(series.first),
    )


def score_text(score: Headline, series: Series, *, named: bool = False) -> str:
    """The last value of a score, with "± half of its 95 % interval" of several seeds.

    ``named``: whether the name of the score stands before it.
    """
    final = series.final(score.column)
    spread = "" if math.isnan(final.half_width) else f" ± {score.text(final.half_width)}"
    return f"{score.name + ' ' if named else ''}{score.text(final.value)}{spread}"


def score_sentence(series: Series) -> str:
    """A sentence on the headline score after the last round, or that the model has not been evaluated.

    Of an accuracy, sentences also on guessing, on test examples, and on the best round.
    """
    score, rounds = headline_of(series.first.metrics), series.rounds_played
    after = f"After {whole(rounds)} round{'s' if rounds != 1 else ''}"
    if math.isnan(series.final(score.column).value):
        return f"{after} the model has not been evaluated."
    several = f"mean of {len(series.runs)} seeds with its 95 % interval"
    tested = _tested_on(series) if score is ACCURACY else ""
    seeds = f" ({tested}{several if len(series.runs) > 1 else 'one seed'})"
    value, between = score_text(score, series), note_between_releases([series])
    if score is not ACCURACY:
        return f"{after} the model's {score.name} on held-out data is {value}{seeds}.{between}"
    guessing, best = guessing_of_run(series), _best_round_sentence(series)
    than = f"; {guessing}{_note_on_a_small_lead(series)}" if guessing else ""
    group, family = series.first.deployed.get("group"), series.network.family
    if group is not None:  # a master's run folder has no other model
        return f"{after} the model of group {group} is {value} accurate on held-out data{seeds}{than}.{best}"
    if family is not None and family.devices_observe:
        what, own = (
            f"the workers' models are {value} accurate on the whole test set",
            _personal_clause(series),
        )
        return f"{after} {what}, in the mean{seeds}{own}{than}.{best}{between}"
    return f"{after} the model is {value} accurate on held-out data{seeds}{than}.{best}{between}"


def _note_on_a_small_lead(one: Series) -> str:
    """A clause that a run with one seed may be more accurate than guessing by chance alone.

    "" where it is not more accurate, or by more than 1.96 standard errors of what guessing gives on its test
    examples.
    """
    guess, count = guess_of_run(one), tested_examples(one, ACCURACY)
    lead = one.final(ACCURACY.column).value - guess
    if len(one.runs) > 1 or not count or not 0 < lead <= by_chance([guess], count):
        return ""
    return ", and that the model is better may be chance"


def _personal_clause(series: Series) -> str:
    """A clause on the accuracy on data distributed like each worker's own; "" where it was not measured."""
    if "personal_accuracy" not in series.first.metrics:
        return ""
    own = series.final("personal_accuracy").value
    return "" if math.isnan(own) else f"; on data distributed like their own, {percent(own)}"


def _tested_on(one: Series) -> str:
    """How many examples a run's accuracy is of, before a comma and a space; "" where that is not known."""
    labels = one.test_labels
    if not labels:
        return ""
    if unit_of_run(one.first) != "person":
        return f"{how_many(sum(labels.values()), 'example')}, "
    persons = read_test_persons(one.first.path)
    whom = how_many(persons, "other person") if persons else "other persons"
    return f"{how_many(sum(labels.values()), 'row')} of {whom}, "


def _best_round_sentence(series: Series) -> str:
    """A sentence on the best round if it was better than the last by a point of accuracy or more; else "".

    Rounds whose models are not released do not count. Where nothing was learned a best round is chance.
    """
    curve = series.curve(ACCURACY.column)
    released = np.flatnonzero(curve.rounds % rounds_to_a_release(series) == 0)
    if not len(released) or series.findings.nothing_learned:
        return ""
    at = released[curve.mean[released].argmax()]
    if curve.mean[at] - curve.mean[-1] < _CLEARLY:
        return ""
    best = percent(float(curve.mean[at]))
    return f" It was best after round {whole(curve.rounds[at])}: {best}, as picked on the same test data."


def guessing_of_run(one: Series) -> str:
    """A clause, such as "guessing would give 10.0 %", on the accuracy of guessing.

    "" where neither test labels nor classes are known.
    """
    return guessing_in_words(source_of(one.first.spec_dict), one.test_labels)


def guess_of_run(one: Series) -> float:
    """The accuracy of guessing, 0 to 1; NaN where neither test labels nor classes are known."""
    return share_of_guessing(source_of(one.first.spec_dict), one.test_labels)


def guessing_beside(score: Headline, series: Sequence[Series]) -> str:
    """A sentence, after a space, on the accuracy of guessing, beside accuracies of ``series``.

    "" for another score, and where the accuracy of guessing is not known, or not one for all.
    """
    guesses = {guess_of_run(one) for one in series} if score is ACCURACY else set()
    guess = guesses.pop() if len(guesses) == 1 else math.nan
    return "" if math.isnan(guess) else f" Guessing would give {percent(guess)}."


def range_sentence(rows: Sequence[Guarantee], towards: str = "") -> list[str]:
    """A list with a sentence on the least and the largest ε of the units of ``rows``, by names of sites.

    [] where both are written alike, or nearly so and without names, or where the least is not known.

    Args:
        rows: at least one, of one kind of unit towards one observer.
        towards: a phrase with that observer, after a space, where it is not told before.
    """
    if any(row.least_known is None for row in rows):
        return []
    best, worst = _ends(rows)
    least_value, worst_value = min(map(least_epsilon, rows)), max(row.epsilon for row in rows)
    if best.epsilon == worst.epsilon:
        return []
    if best.sites:
        return [
            f"Protected least{towards}: {worst.sites}, ε = {worst.epsilon}; most: {best.sites}, "
            f"ε = {best.epsilon}."
        ]
    if worst_value < SPREAD * least_value:
        return []
    unit = rows[0].unit_kind
    return [f"ε{towards} goes from {best.epsilon} to {worst.epsilon}, depending on the {unit}."]


class _End(NamedTuple):
    """One end of a range of ε, as text: ε, and whose it is; "" unless both ends have names, of two rows."""

    epsilon: str
    sites: str


def _ends(rows: Sequence[Guarantee]) -> tuple[_End, _End]:
    """The least and the largest ε of the units of ``rows``, at least one row, each as an `_End`."""
    best, worst = min(rows, key=least_epsilon), max(rows, key=lambda row: row.epsilon)
    named = bool(worst.sites and best.sites and worst is not best)
    least, most = (join_names(row.sites, 3) if named else "" for row in (best, worst))
    return _End(epsilon(least_epsilon(best)), least), _End(epsilon(worst.epsilon), most)


def least_epsilon(row: Guarantee) -> float:
    """The least ε of the units that a row stands for; its own ε where that is not known."""
    return row.epsilon if row.least_known is None else row.least_known


def kind_within_devices(guarantees: Sequence[Guarantee]) -> str | None:
    """``record`` or ``person``, where all guarantees are about this one kind; else ``None``.

    ``None`` without guarantees, too.
    """
    kinds = {row.unit_kind for row in guarantees}
    return kinds.pop() if len(kinds) == 1 and "device" not in kinds else None


def unit_of_run(run: RunFolder) -> str:
    """The unit that the ε of a comparison are about: ``record`` or ``person`` if all are, else ``device``."""
    return kind_within_devices(run.privacy.guarantees) or "device"


def of_main_unit(rows: Sequence[Guarantee]) -> Sequence[Guarantee]:
    """The guarantees among ``rows`` about devices; where there are none, all ``rows``."""
    return [row for row in rows if row.unit_kind == "device"] or rows


def epsilons_towards_workers(series: Series) -> list[float]:
    """A list of all ε towards single other workers in runs over groups; empty for other runs."""
    family = series.network.family
    return _towards_devices(series) if family is not None and family.devices_observe else []


def _towards_devices(one: Series) -> list[float]:
    """All ε of the main unit towards single other devices."""
    rows = (row for run in one.runs for row in of_main_unit(run.privacy.guarantees))
    return [row.epsilon for row in rows if row.relation.kind in ("peer", "other-device")]


def raw_to_trusted_in_words(one: Series) -> str:
    """A phrase such as ``raw to a trusted edge: 25 of 50 devices``, on the raw updates of a run."""
    family = one.network.family
    whom, who = ("master", "workers") if family and family.devices_observe else ("edge", "devices")
    return f"raw to a trusted {whom}: {one.first.privacy.raw_to_trusted_edge} {who}"


def raw_text(raw: RawDevices | None) -> str:
    """The text "25 of 50": devices that send raw updates to a trusted edge; "–" where it is not known."""
    return "–" if raw is None else str(raw)
