"""The summary of a run: one row of figures, and a few sentences."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from sfumato.findings import findings_after
from sfumato.guessing import guessing_in_words
from sfumato.network.tree import Tree
from sfumato.privacy.guarantee import Guarantee
from sfumato.privacy.observers import ObserverKind
from sfumato.report.formatting import epsilon, join_names, number, percent, whole
from sfumato.report.results.dp_ogl_plus import note_between_releases, rounds_to_a_release
from sfumato.report.results.epsilon_words import after_run_sentence, epsilon_in_words, unit_sentences
from sfumato.report.results.matrix import Matrix, build_matrix
from sfumato.report.results.network import read_network
from sfumato.report.results.observer_labels import labels_for
from sfumato.report.results.series import Series
from sfumato.run_folder.headline import ACCURACY, Headline, headline_of
from sfumato.run_folder.label_counts import read_test_labels
from sfumato.run_folder.reader import RunFolder
from sfumato.run_folder.recorded_privacy import RawDevices

_CLEARLY = 0.01  # of accuracy
_SPREAD = 1.05  # of ε from unit to unit, worth a sentence
_MOST_CLASSES = 3  # of devices to name in a sentence


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


def matrix_of(run: RunFolder) -> Matrix:
    """The matrix of the guarantees of a run, with the labels of its network."""
    return build_matrix(run.privacy.guarantees, labels_for(read_network(run.spec_dict)))


def summarise(series: Series) -> Summary:
    """The figures of ``series`` as one row of a comparison; NaN where something was not measured."""
    accuracy, score = series.final("accuracy"), headline_of(series.first.metrics)
    rows = [row for run in series.runs for row in of_main_unit(run.privacy.guarantees)]

    def largest(kind: ObserverKind) -> float:
        """NaN without such an observer; a trusted own edge is left out: `raw_to_trusted_edge` counts them."""
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
        epsilon_peers=max(_epsilons_towards_workers(series), default=math.nan),
        score=score.column,
        final_score=series.final(score.column).value,
        final_score_half_width=series.final(score.column).half_width,
        epsilon_public=largest("public"),
        cloud_is_trusted=bool(to_cloud) and all(row.is_raw for row in to_cloud),
        unit=unit_of_run(series.first),
    )


def score_text(score: Headline, series: Series, *, named: bool = False) -> str:
    """The last value of a score, "± half of its 95 % interval" with several seeds; ``named``: with its
    name.
    """
    final = series.final(score.column)
    spread = "" if math.isnan(final.half_width) else f" ± {score.text(final.half_width)}"
    return f"{score.name + ' ' if named else ''}{score.text(final.value)}{spread}"


def score_sentence(series: Series) -> str:
    """A sentence on the headline score after the last round."""
    score, rounds = headline_of(series.first.metrics), series.rounds_played
    after = f"After {whole(rounds)} round{'s' if rounds != 1 else ''}"
    if math.isnan(series.final(score.column).value):
        return f"{after} the model has not been evaluated."
    several = f"mean of {len(series.runs)} seeds with its 95 % interval"
    seeds = f" ({several if len(series.runs) > 1 else 'one seed'})"
    value, between = score_text(score, series), note_between_releases([series])
    if score is not ACCURACY:
        return f"{after} the model's {score.name} on held-out data is {value}{seeds}.{between}"
    guessing, best = guessing_of_run(series.first), _best_round_sentence(series)
    than = f"; {guessing}" if guessing else ""
    return f"{after} the model is {value} accurate on held-out data{seeds}{than}.{best}{between}"


def _best_round_sentence(series: Series) -> str:
    """A sentence on the best round if it was better than the last by a point of accuracy or more; else "".

    Rounds whose models are not released do not count.
    """
    curve = series.curve(ACCURACY.column)
    released = np.flatnonzero(curve.rounds % rounds_to_a_release(series.first) == 0)
    if not len(released):
        return ""
    at = released[curve.mean[released].argmax()]
    if curve.mean[at] - curve.mean[-1] < _CLEARLY:
        return ""
    return f" It was best after round {whole(curve.rounds[at])}: {percent(float(curve.mean[at]))}."


def guessing_of_run(run: RunFolder) -> str:
    """A clause on the accuracy of guessing; "" where neither test labels nor classes are known."""
    data = run.spec_dict.get("data")
    source = str(data.get("source")) if isinstance(data, Mapping) else ""
    return guessing_in_words(source, read_test_labels(run.path))


def protection_sentences(series: Series, matrix: Matrix) -> list[str]:
    """Sentences on the largest ε towards each kind of observer, and on who has no guarantee.

    One sentence where the runs have no guarantees, or no finite one. ``matrix``: of the first run.
    """
    guarantees = [row for run in series.runs for row in run.privacy.guarantees]
    if not guarantees:
        return ["The run has no guarantees."]
    main, delta = guarantees[0].unit_kind, series.first.privacy.delta
    at = "" if math.isnan(delta) else f" at δ = {number(delta)}"
    if all(row.epsilon == math.inf for row in guarantees):
        whys = sorted({row.why for row in guarantees if row.why})
        reason = f" ({_without_full_stop(whys[0])})" if len(whys) == 1 else ""
        return [f"No {main} has a guarantee towards any observer{reason}."]
    said = []
    for kind in ("device", "record", "person"):
        for observer in ("cloud", "public"):  # the public, where the cloud has raw updates
            rows = [row for row in guarantees if (row.relation.kind, row.unit_kind) == (observer, kind)]
            finite = [row.epsilon for row in rows if row.epsilon < math.inf]
            if finite:
                others = " that has a guarantee" if len(finite) < len(rows) else ""
                largest = f"exceeds ε = {epsilon(max(finite))}{at}"
                said.append(f"Towards the {observer} no {kind}{others} {largest}.")
                ranged = range_sentence([row for row in rows if row.epsilon < math.inf])
                said += ranged
                said += _why_sites_differ(series, kind) if ranged else []
                said += [epsilon_in_words(kind, max(finite))] if kind == main else []
                break
    said += after_run_sentence(series.first.privacy)
    within = kind_within_devices(series.first)
    said += [] if within is None else unit_sentences(series.first.spec_dict, within)
    workers = _epsilons_towards_workers(series)
    protected = [value for value in workers if value < math.inf]
    if protected:
        largest = f"ε = {epsilon(max(protected))}{at}"
        said.append(
            f"Towards some other workers there is no guarantee (∞); towards the rest none exceeds {largest}."
            if len(protected) < len(workers)
            else f"Towards another worker none exceeds {largest}."
        )
        said += _class_sentences(matrix)
        said.append(epsilon_in_words("worker" if main == "device" else main, max(protected)))
    return said + _trusting_sentences(matrix, series.first.privacy.raw_to_trusted_edge)


def _why_sites_differ(series: Series, kind: str) -> list[str]:
    """One sentence on why ε of a record or person differs from site to site in a star; [] where it is not
    sure.

    With one noise and equal weights for all, what differs is the probability of being drawn for a batch: the
    batch size over how many the site has.
    """
    spec, network = series.first.spec_dict, read_network(series.first.spec_dict)
    training = spec["training"]
    drawn = kind != "device" and training.get("batches") == "poisson" and network.device_word == "site"
    equal = training.get("weights", {}).get("kind") == "uniform" and len(set(network.noise.values())) < 2
    if not (drawn and equal):
        return []
    return [f"The fewer {kind}s a site has, the more often each is drawn for a batch, and the larger ε is."]


def range_sentence(rows: Sequence[Guarantee]) -> list[str]:
    """One sentence with the least and the largest ε of the units of ``rows``, by the names of their sites.

    [] where both are written alike, or nearly so and without names, or where the least is not known.
    ``rows``: at least one, of one kind of unit towards one observer.
    """
    if any(row.least_known is None for row in rows):
        return []
    best, worst = _ends(rows)
    least_value, worst_value = min(map(_least_epsilon, rows)), max(row.epsilon for row in rows)
    if best.epsilon == worst.epsilon:
        return []
    if best.sites:
        return [
            f"Protected least: {worst.sites}, ε = {worst.epsilon}; most: {best.sites}, ε = {best.epsilon}."
        ]
    if worst_value < _SPREAD * least_value:
        return []
    return [f"From one {rows[0].unit_kind} to another ε goes from {best.epsilon} to {worst.epsilon}."]


class _End(NamedTuple):
    """One end of a range of ε, as text: ε, and whose it is; "" unless both ends have names, of two rows."""

    epsilon: str
    sites: str


def _ends(rows: Sequence[Guarantee]) -> tuple[_End, _End]:
    """The least and the largest ε of the units of ``rows``, at least one row."""
    best, worst = min(rows, key=_least_epsilon), max(rows, key=lambda row: row.epsilon)
    named = bool(worst.sites and best.sites and worst is not best)
    least, most = (join_names(row.sites, 3) if named else "" for row in (best, worst))
    return _End(epsilon(_least_epsilon(best)), least), _End(epsilon(worst.epsilon), most)


def _least_epsilon(row: Guarantee) -> float:
    """The least ε of the units that a row stands for; its own ε where that is not known."""
    return row.epsilon if row.least_known is None else row.least_known


def _class_sentences(matrix: Matrix) -> list[str]:
    """One sentence with the largest ε towards other workers of each class; [] for many or equal classes."""
    largest: dict[int, float] = {}
    for (row, column), cell in matrix.cells.items():
        if matrix.columns[column].kind in ("peer", "other-device"):
            largest[row] = max(cell.epsilon, largest.get(row, 0.0))
    shown = [f"{matrix.rows[row].title} {epsilon(value)}" for row, value in sorted(largest.items())]
    if not 1 < len(shown) <= _MOST_CLASSES or len({epsilon(value) for value in largest.values()}) == 1:
        return []
    return [f"By class at most: {join_names(shown)}."]


def kind_within_devices(run: RunFolder) -> str | None:
    """``record`` or ``person``, where all guarantees are about one of these; ``None`` where some are not."""
    kinds = {row.unit_kind for row in run.privacy.guarantees}
    return kinds.pop() if len(kinds) == 1 and "device" not in kinds else None


def unit_of_run(run: RunFolder) -> str:
    """The unit (``device``, ``record`` or ``person``) that the ε of a comparison are about."""
    return kind_within_devices(run) or "device"


def of_main_unit(rows: Sequence[Guarantee]) -> Sequence[Guarantee]:
    """The guarantees about devices; where there are none, all."""
    return [row for row in rows if row.unit_kind == "device"] or rows


def _epsilons_towards_workers(series: Series) -> list[float]:
    """All ε towards single other workers in runs over groups; [] otherwise."""
    family = read_network(series.first.spec_dict).family
    if family is None or not family.devices_observe:
        return []
    rows = (row for run in series.runs for row in of_main_unit(run.privacy.guarantees))
    return [row.epsilon for row in rows if row.relation.kind in ("peer", "other-device")]


def has_edges(one: Series) -> bool:
    """Whether there are aggregators between devices and the cloud."""
    shape = read_network(one.first.spec_dict).shape
    return not isinstance(shape, Tree) or shape.depth > 1


def findings_of_run(run: RunFolder) -> list[str]:
    """What is worth a warning about a run, by its account and its metrics; sentences without a full stop."""
    data = run.spec_dict.get("data")
    source = str(data.get("source")) if isinstance(data, dict) else ""
    measured = [value for value in run.metrics["accuracy"].tolist() if not math.isnan(value)]
    accuracy = float(measured[-1]) if measured else math.nan
    clips = run.metrics["clip_fraction"].tolist()
    network = read_network(run.spec_dict)
    noisy = network.has_noise or network.over_air
    with_faults = run.finished and run.spec_dict.get("faults")
    lost = run.ledger["realised"].get("lost_sums") if with_faults else None
    kind = ((run.spec_dict.get("privacy") or {}).get("clip") or {}).get("kind", "update")
    after = findings_after(
        source,
        clips,
        accuracy,
        adds_noise=noisy,
        clip_kind=kind,
        lost_sums=lost,
        test_labels=read_test_labels(run.path),
    )
    return [*run.privacy.findings, *(network.titled(finding.text) for finding in after)]


def _trusting_sentences(matrix: Matrix, raw: RawDevices | None) -> list[str]:
    """One sentence on who trusts whom with raw updates; [] where nobody does.

    ``raw``: how many devices send raw updates.
    """
    trusted = _without_guarantee(matrix, trusted=True)
    if not trusted:
        return []
    pairs = _unprotected_pairs_phrase(matrix, trusted, str(raw) if raw else None)
    return [f"Trusted with raw updates, so without any guarantee: {pairs}."]


def unprotected_finding(matrix: Matrix) -> list[str]:
    """One text on who has no guarantee towards observers that nobody trusts; [] if all have."""
    others = _without_guarantee(matrix, trusted=False)
    if not others:
        return []
    who = _unprotected_pairs_phrase(matrix, others)
    return [f"without any guarantee: {who}; the reasons are below the table of ε"]


def _without_guarantee(matrix: Matrix, *, trusted: bool) -> dict[int, list[str]]:
    """Row of the matrix to phrases for the observers towards whom its ε is infinite.

    ``trusted``: those that are trusted with raw updates, else those that are not.
    """
    found: dict[int, list[str]] = {}
    for (row, column), cell in sorted(matrix.cells.items()):
        if cell.epsilon == math.inf and cell.trusts_all == trusted:
            found.setdefault(row, []).append(matrix.columns[column].towards)
    return found


def _unprotected_pairs_phrase(
    matrix: Matrix, found: Mapping[int, Sequence[str]], count: str | None = None
) -> str:
    """A phrase on who has no guarantee towards whom; of many classes only their number.

    Args:
        matrix: whose rows ``found`` counts.
        found: as of `_without_guarantee`, not empty.
        count: number of these devices, as text, to say in place of the number of classes; ``None``: not
            known.
    """
    if len(found) > _MOST_CLASSES:
        towards = join_names(list(dict.fromkeys(whom for several in found.values() for whom in several)), 3)
        merged = any(row.title.endswith("more classes") for row in matrix.rows)
        many = "many" if merged else f"{whole(len(found))} of {whole(len(matrix.rows))}"
        return f"{count} devices {towards}" if count else f"{many} classes of devices {towards}"
    alike: dict[tuple[str, ...], list[str]] = {}
    for row, towards_whom in found.items():
        alike.setdefault(tuple(towards_whom), []).append(matrix.rows[row].title)
    each = [f"{join_names(who)} {join_names(whom, 3)}" for whom, who in alike.items()]
    return join_names(each, _MOST_CLASSES)


def reasons_without_guarantee(matrix: Matrix) -> list[str]:
    """A sentence for each reason why pairs have no guarantee; pairs with trust are left out, [] if none is
    left.
    """
    reasons: dict[str, dict[str, None]] = {}
    for (row, column), cell in sorted(matrix.cells.items()):
        worst = cell.guarantees[0]
        if cell.epsilon == math.inf and not worst.trusted:
            pair = f"{matrix.rows[row].title} {matrix.columns[column].towards}"
            reasons.setdefault(_without_full_stop(worst.why or "there is no protection"), {})[pair] = None
    return [f"No guarantee for {join_names(list(who), 3)}: {why}." for why, who in reasons.items()]


def _without_full_stop(sentence: str) -> str:
    """A sentence without its full stop."""
    return sentence.strip().rstrip(".")


def raw_text(raw: RawDevices | None) -> str:
    """The text "25 of 50": devices that send raw updates to a trusted edge; "–" where the folder does not
    say.
    """
    return "–" if raw is None else str(raw)
