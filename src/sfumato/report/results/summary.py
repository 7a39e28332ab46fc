"""The summary of a run: one row of figures, and a few sentences."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from sfumato.claims.dp_ogl_counts import DP_OGL_PLUS
from sfumato.findings import classes_of
from sfumato.network.tree import Tree
from sfumato.privacy.observers import edge_kind
from sfumato.report.formatting import epsilon, join_names, number, percent, whole
from sfumato.report.results.matrix import Matrix, build_matrix
from sfumato.report.results.network import read_network
from sfumato.report.results.observer_labels import labels_for
from sfumato.report.results.privacy_words import in_words
from sfumato.report.results.series import Series
from sfumato.run_folder.headline import ACCURACY, Headline, headline_of
from sfumato.run_folder.reader import RunFolder, as_epsilon

_CLEARLY = 0.01  # of accuracy
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
    epsilon_peers: float = math.nan
    score: str = ACCURACY.column
    final_score: float = math.nan
    final_score_half_width: float = math.nan
    epsilon_public: float = math.nan
    cloud_is_trusted: bool = False


def matrix_of(run: RunFolder) -> Matrix:
    """The matrix of guarantees of ``run``."""
    return build_matrix(run.privacy["guarantees"], labels_for(read_network(run.spec_dict)))


def summarise(series: Series) -> Summary:
    """The row of ``series``."""
    towards = [pair for run in series.runs for pair in _towards_cloud_and_edges(run)]
    accuracy = series.final("accuracy")
    rows = [row for run in series.runs for row in _of_main_unit(run)]
    score = headline_of(series.first.metrics)
    to_cloud = [row for row in rows if row["observer"] == "cloud"]
    return Summary(
        run=series.name,
        protocol=str(series.first.spec_dict["protocol"]),
        seeds=len(series.runs),
        rounds=series.rounds_played,
        final_accuracy=accuracy.value,
        final_accuracy_half_width=accuracy.half_width,
        best_accuracy=series.best("accuracy").value,
        delta=_delta(series),
        epsilon_cloud=_largest(epsilon for kind, epsilon in towards if kind == "cloud"),
        epsilon_own_edge=_largest(epsilon for kind, epsilon in towards if kind == "own-edge"),
        epsilon_other_edge=_largest(epsilon for kind, epsilon in towards if kind == "other-edge"),
        raw_to_trusted_edge=raw_to_trusted_edge(series.first.privacy),
        total_bytes=series.total("bytes_up", "bytes_down").value,
        energy_j=series.total("energy_j").value,
        delay_s=series.total("delay_s").value,
        epsilon_peers=_largest(epsilon for run in series.runs for epsilon in _towards_workers(run)),
        score=score.column,
        final_score=series.final(score.column).value,
        final_score_half_width=series.final(score.column).half_width,
        epsilon_public=_largest(as_epsilon(g["epsilon"]) for g in rows if g["observer"] == "public"),
        cloud_is_trusted=bool(to_cloud)
        and all(g.get("trusted") and as_epsilon(g["epsilon"]) == math.inf for g in to_cloud),
    )


def score_text(score: Headline, series: Series, *, named: bool = False) -> str:
    """The last value of a score over the seeds, with its 95 % interval; ``named``: and what it is."""
    final = series.final(score.column)
    spread = "" if math.isnan(final.half_width) else f" ± {score.text(final.half_width)}"
    return f"{score.name + ' ' if named else ''}{score.text(final.value)}{spread}"


def score_sentence(series: Series) -> str:
    """How good the model is in the end."""
    score, rounds = headline_of(series.first.metrics), series.rounds_played
    after = f"After {whole(rounds)} round{'s' if rounds != 1 else ''}"
    if math.isnan(series.final(score.column).value):
        return f"{after} the model has not been evaluated."
    several = f"mean of {len(series.runs)} seeds with its 95 % interval"
    seeds = f" ({several if len(series.runs) > 1 else 'one seed'})"
    value = score_text(score, series)
    if score is ACCURACY:
        return (
            f"{after} the model is {value} accurate on held-out data{seeds}{_chance(series)}.{_best(series)}"
        )
    return f"{after} the model's {score.name} on held-out data is {value}{seeds}."


def _best(series: Series) -> str:
    """The round that was better than the last one, by a point of accuracy or more."""
    curve = series.curve(ACCURACY.column)
    at = int(curve.mean.argmax())
    if curve.mean[at] - curve.mean[-1] < _CLEARLY:
        return ""
    return f" It was best after round {whole(curve.rounds[at])}: {percent(float(curve.mean[at]))}."


def _chance(series: Series) -> str:
    """The accuracy of guessing, where the number of classes is known."""
    data = series.first.spec_dict.get("data")
    classes = classes_of(str(data.get("source"))) if isinstance(data, Mapping) else None
    return "" if classes is None else f"; guessing would give {percent(1 / classes)}"


def protection_sentences(series: Series, matrix: Matrix) -> list[str]:
    """The largest ε in words, and who has no guarantee."""
    guarantees = [g for run in series.runs for g in run.privacy["guarantees"]]
    if not guarantees:
        return ["The run has no guarantees."]
    if all(as_epsilon(g["epsilon"]) == math.inf for g in guarantees):
        whys = sorted({str(g["why"]) for g in guarantees if g.get("why")})
        reason = f" ({_clause(whys[0])})" if len(whys) == 1 else ""
        return [f"No {_kind(guarantees[0])} has a guarantee towards any observer{reason}."]
    said = []
    delta = series.first.privacy.get("delta")
    at_delta = f" at δ = {number(delta)}" if isinstance(delta, int | float) else ""
    main = _kind(guarantees[0])
    for kind in ("device", "record"):
        for observer in ("cloud", "public"):  # the public, where the cloud has raw updates
            rows = [g for g in guarantees if g["observer"] == observer and _kind(g) == kind]
            found = [as_epsilon(g["epsilon"]) for g in rows]
            finite = [value for value in found if value < math.inf]
            if finite:
                others = " that has a guarantee" if len(finite) < len(found) else ""
                largest = f"exceeds ε = {epsilon(max(finite))}{at_delta}"
                said.append(f"Towards the {observer} no {kind}{others} {largest}.")
                said += [in_words(kind, max(finite))] if kind == main else []
                break
    workers = [value for run in series.runs for value in _towards_workers(run)]
    protected = [value for value in workers if value < math.inf]
    if protected:
        largest = f"ε = {epsilon(max(protected))}{at_delta}"
        said.append(
            f"Towards some other workers there is no guarantee (∞); towards the rest none exceeds {largest}."
            if len(protected) < len(workers)
            else f"Towards another worker none exceeds {largest}."
        )
        said += _by_class_of_worker(matrix)
        said.append(in_words("worker" if main == "device" else main, max(protected)))
    return said + _trusting_sentences(matrix, raw_to_trusted_edge(series.first.privacy))


def _by_class_of_worker(matrix: Matrix) -> list[str]:
    """The largest ε towards other workers of every class, where a few classes differ."""
    largest: dict[int, float] = {}
    for (row, column), cell in matrix.cells.items():
        if matrix.columns[column].title.startswith("workers "):
            largest[row] = max(cell.epsilon, largest.get(row, 0.0))
    shown = [f"{matrix.rows[row].title} {epsilon(value)}" for row, value in sorted(largest.items())]
    if not 1 < len(shown) <= _MOST_CLASSES or len({epsilon(value) for value in largest.values()}) == 1:
        return []
    return [f"By class at most: {join_names(shown)}."]


def _kind(row: Mapping[str, Any]) -> str:
    return str(row["unit"]).partition(":")[0]


def about_records(run: RunFolder) -> bool:
    """Whether all guarantees are about single records."""
    return {_kind(row) for row in run.privacy["guarantees"]} == {"record"}


def _of_main_unit(run: RunFolder) -> list[Mapping[str, Any]]:
    """The rows about devices; where there are none, those about records."""
    rows = run.privacy["guarantees"]
    return [row for row in rows if _kind(row) == "device"] or list(rows)


def _towards_workers(run: RunFolder) -> list[float]:
    """ε towards single other workers, in a run over groups."""
    family = read_network(run.spec_dict).family
    if family is None or not family.devices_observe:
        return []
    return [
        as_epsilon(g["epsilon"])
        for g in _of_main_unit(run)
        if str(g["observer"]).startswith("device:") and "," not in str(g["observer"])
    ]


def has_edges(one: Series) -> bool:
    """Whether there are aggregators between devices and the cloud."""
    shape = read_network(one.first.spec_dict).shape
    return not isinstance(shape, Tree) or shape.depth > 1


def protocol_warnings(run: RunFolder) -> list[str]:
    """For DP-OGL+: why its rigorous ε is large, and which protocol to use instead."""
    every = run.spec_dict["training"].get("merge_every") or 1
    return [DP_OGL_PLUS] if run.spec_dict["protocol"] == "dp-ogl+" and int(every) > 1 else []


def _trusting_sentences(matrix: Matrix, count: str) -> list[str]:
    """Who has no guarantee towards those that it trusts with raw updates; or that every pair has one.

    Args:
        matrix: of the guarantees.
        count: of the devices that send raw updates to a trusted edge, as ``3 of 5``.
    """
    raw = _observers(matrix, trusted=True)
    if raw:
        many = count if some_are_raw(count) else None
        return [f"Trusted with raw updates, so without any guarantee: {_pairs(matrix, raw, many)}."]
    return [] if _observers(matrix, trusted=False) else ["Every pair has a finite ε."]


def unprotected_finding(matrix: Matrix) -> list[str]:
    """Who has no guarantee towards observers that nobody trusts."""
    others = _observers(matrix, trusted=False)
    if not others:
        return []
    return [f"without any guarantee: {_pairs(matrix, others)}; the reasons are below the table of ε"]


def _observers(matrix: Matrix, *, trusted: bool) -> dict[int, list[str]]:
    """Titles of the observers without a guarantee, by row."""
    found: dict[int, list[str]] = {}
    for (row, column), cell in sorted(matrix.cells.items()):
        endless = [g for g in cell.guarantees if as_epsilon(g["epsilon"]) == math.inf]
        if endless and all(bool(g.get("trusted")) for g in endless) == trusted:
            found.setdefault(row, []).append(matrix.columns[column].title)
    return found


def _pairs(matrix: Matrix, found: Mapping[int, Sequence[str]], count: str | None = None) -> str:
    """Who has no guarantee towards whom; of many classes of devices, how many, or ``count`` devices."""
    if len(found) > _MOST_CLASSES:
        columns = list(dict.fromkeys(column for titles in found.values() for column in titles))
        towards = join_names([_towards(column) for column in columns], 3)
        merged = any(row.title.endswith("more classes") for row in matrix.rows)
        many = "many" if merged else f"{whole(len(found))} of {whole(len(matrix.rows))}"
        return f"{count} devices {towards}" if count else f"{many} classes of devices {towards}"
    alike: dict[tuple[str, ...], list[str]] = {}
    for row, titles in found.items():
        alike.setdefault(tuple(titles), []).append(matrix.rows[row].title)
    return join_names(
        [
            f"{join_names(who)} {join_names([_towards(title) for title in titles], 3)}"
            for titles, who in alike.items()
        ],
        _MOST_CLASSES,
    )


def reasons_without_guarantee(matrix: Matrix) -> list[str]:
    """Why pairs have no guarantee, a sentence for every reason; trust needs none."""
    reasons: dict[str, list[str]] = {}
    for (row, column), cell in sorted(matrix.cells.items()):
        worst = cell.guarantees[0]
        if cell.epsilon == math.inf and not worst.get("trusted"):
            why = _clause(str(worst.get("why") or "there is no protection"))
            pair = f"{matrix.rows[row].title} {_towards(matrix.columns[column].title)}"
            reasons.setdefault(why, []).append(pair)
    return [
        f"No guarantee for {join_names(list(dict.fromkeys(who)), 3)}: {why}." for why, who in reasons.items()
    ]


def _towards(title: str) -> str:
    title = title.removesuffix(", trusted with raw updates")
    if title.startswith("own "):
        return f"towards their {title}"
    return f"towards the {title}" if title in ("cloud", "public") else f"towards {title}"


def _clause(sentence: str) -> str:
    return sentence.strip().rstrip(".")


def _towards_cloud_and_edges(run: RunFolder) -> Iterator[tuple[str, float]]:
    """For every guarantee towards the cloud or an edge: ``cloud``, ``own-edge`` or ``other-edge``, and its ε.

    An own edge that is trusted with raw updates is left out: `raw_to_trusted_edge` counts these devices.
    """
    for g in _of_main_unit(run):
        epsilon = as_epsilon(g["epsilon"])
        kind = "cloud" if g["observer"] == "cloud" else edge_kind(str(g.get("relation", "")))
        if kind is not None and not (kind == "own-edge" and g.get("trusted") and epsilon == math.inf):
            yield kind, epsilon


def raw_to_trusted_edge(privacy: Mapping[str, Any]) -> str:
    """``25 of 50``: devices that send raw updates to a trusted edge; a dash where the folder does not say."""
    found = privacy.get("raw_to_trusted_edge")
    if not isinstance(found, Mapping):
        return "–"
    return f"{whole(found['devices'])} of {whole(found['of'])}"


def some_are_raw(count: str) -> bool:
    """Whether a device sends raw updates to a trusted edge; ``count`` is of `raw_to_trusted_edge`."""
    return not count.startswith(("0 ", "–"))


def _delta(series: Series) -> float:
    """The δ of all seeds' epsilons; NaN where the folder does not say."""
    delta = series.first.privacy.get("delta")
    return float(delta) if isinstance(delta, int | float) else math.nan


def _largest(values: Iterable[float]) -> float:
    return max(values, default=math.nan)
