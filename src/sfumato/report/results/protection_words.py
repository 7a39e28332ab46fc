"""Sentences on who is protected how well, who trusts whom, and who has no guarantee and why."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Mapping, Sequence

from sfumato.privacy.guarantee import Guarantee
from sfumato.report.formatting import epsilon, join_names, number, sentence, span, title, whole
from sfumato.report.results.dp_ogl_plus import protocol_warnings
from sfumato.report.results.epsilon_words import (
    after_run_sentence,
    draw_sentence,
    epsilon_in_words,
    unit_sentences,
)
from sfumato.report.results.held import held_in_run
from sfumato.report.results.matrix import Matrix
from sfumato.report.results.network import Network, parties_in_words
from sfumato.report.results.observer_labels import Row
from sfumato.report.results.series import Series
from sfumato.report.results.summary import (
    SPREAD,
    epsilons_towards_workers,
    kind_within_devices,
    least_epsilon,
    range_sentence,
)
from sfumato.run_folder.recorded_privacy import RawDevices

_MOST_CLASSES = 3  # of devices to name in a sentence
_MOST_SITES = 6
_NUMBERED = re.compile(r"\b(edge|group|zone)[: ]\d")
_COUNTED = re.compile(r"[\d,]+ (\w+?)s?\b")
_SEEN = ", seen"  # of a draw, in the accountant's reasons
_ALL_FROM_GRADIENTS = (
    "No less is proven towards any of them, as noise is in every gradient: whatever anybody receives follows "
    "from noised gradients."
)

_STRONGEST = "Every round is charged as if the strongest signal that may arrive did arrive."
_ALL_SEE_DRAWS = "ε is the same towards all, as each is charged as if it saw who is drawn."
_HEARS_NO_BETTER = "any observer that hears no better than the receiver"


def protection_paragraphs(series: Series, matrix: Matrix) -> list[str]:
    """Paragraphs on who has no guarantee, on the largest ε towards the cloud or public, and on units.

    Over groups also on ε towards other workers. One sentence where the runs have no guarantees, or no finite
    one. ``matrix``: of the first run.
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
    raw = series.first.privacy.raw_to_trusted_edge
    bare = [*map(sentence, unprotected_finding(matrix)), *_trusting_sentences(matrix, raw)]
    protected = [
        said for kind in ("device", "record", "person") for said in _about_units(series, matrix, kind, at)
    ]
    protected += after_run_sentence(series.first.privacy)
    within, units = kind_within_devices(series.first.privacy.guarantees), []
    if within is not None:
        counts = _held_by_sites(series, within)
        told = counts != "" and any(counts in said for said in protected)
        held = "" if told else held_in_run(series.first, within).each
        units = unit_sentences(series.first.spec_dict, within, series.network.device_word, held)
        rates = (series.first.ledger.get("batches") or {}).get("rate_per_device") or ()
        units += draw_sentence(series.first.spec_dict["training"], rates, within)
    paragraphs = bare, protected, units, _worker_sentences(series, matrix, main, at)
    return [" ".join(sentences) for sentences in paragraphs if sentences]


def _worker_sentences(series: Series, matrix: Matrix, main: str, at: str) -> list[str]:
    """Sentences on ε towards other workers of groups; [] where none is finite, and without groups.

    Args:
        series: the runs.
        matrix: of the first run.
        main: the kind of unit.
        at: text with δ.
    """
    workers = epsilons_towards_workers(series)
    protected = [value for value in workers if value < math.inf]
    if not protected:
        return []
    whom = _finite_workers(matrix) if len(protected) < len(workers) else "towards another worker"
    each = _each_class(matrix) if len(protected) == len(workers) else ""
    return [
        f"Towards other workers{at}: {each}."
        if each
        else f"{title(whom)} no worker exceeds ε = {epsilon(max(protected))}{at}.",
        epsilon_in_words("worker" if main == "device" else main, max(protected)),
    ]


def _finite_workers(matrix: Matrix) -> str:
    """A phrase on the kinds of other workers towards whom every class has a finite ε.

    Such as ``towards workers 1 group away``; on all with a guarantee where no kind is such.
    """
    found: dict[int, bool] = {}
    for (_, column), cell in sorted(matrix.cells.items()):
        if matrix.columns[column].kind in ("peer", "other-device"):
            found[column] = found.get(column, True) and cell.epsilon < math.inf
    towards = [matrix.columns[column].towards for column, finite in found.items() if finite]
    return join_names(towards) or "towards other workers, where there is a guarantee,"


def _about_units(series: Series, matrix: Matrix, kind: str, at: str) -> list[str]:
    """Sentences on the largest ε of a ``kind`` of unit towards the cloud, or else the public.

    The public is told of where nobody has a guarantee towards the cloud. ``at``: text with δ.
    """
    every = [row for run in series.runs for row in run.privacy.guarantees]
    of_kind = [row for row in every if row.unit_kind == kind]
    for observer in ("cloud", "public"):
        rows = [row for row in of_kind if row.relation.kind == observer]
        finite = [row for row in rows if row.epsilon < math.inf]
        if not finite:
            continue
        most = max(row.epsilon for row in finite)
        others = " that has a guarantee" if len(finite) < len(rows) else ""
        several = len({row.relation.kind for row in of_kind}) > 1
        alike = several and {epsilon(row.epsilon) for row in of_kind} == {epsilon(most)}
        whom = _everybody(series, kind) if alike else f"the {observer}"
        having = f", of those {kind}s that have a guarantee," if len(finite) < len(rows) else ""
        ranged = range_sentence(finite, f" towards the {observer}{having}")
        by_class = (
            _towards_classes(series.network, matrix, kind, observer, at) if len(series.runs) == 1 else []
        )
        largest = f"Towards {whom} no {kind}{others} exceeds ε = {epsilon(most)}{at}."
        return [
            *(by_class or [largest, *ranged]),
            *(_why_sites_differ(series, kind) if ranged else []),
            *([_STRONGEST] if series.network.over_air else []),
            *([_ALL_SEE_DRAWS] if alike and all(_SEEN in row.why for row in of_kind) else []),
            *([_ALL_FROM_GRADIENTS] if alike and series.network.step_noise else []),
            *([epsilon_in_words(kind, most)] if kind == every[0].unit_kind else []),
        ]
    return []


def _why_sites_differ(series: Series, kind: str) -> list[str]:
    """A list with a sentence on why ε of a record or person differs from site to site in a star.

    With one noise and equal weights for all, what differs is the probability of being drawn for a batch: the
    batch size over how many the site has. [] where something else may differ.
    """
    spec, network = series.first.spec_dict, series.network
    training = spec["training"]
    drawn = kind != "device" and training.get("batches") == "poisson" and network.device_word == "site"
    equal = training.get("weights", {}).get("kind") == "uniform" and len(set(network.noise.values())) < 2
    if not (drawn and equal):
        return []
    held = _held_by_sites(series, kind)
    return [
        f"The fewer {kind}s a site has{held}, the more often each is drawn for a batch, and the larger ε is."
    ]


def _held_by_sites(series: Series, kind: str) -> str:
    """`` (ulm 39, kiel 47)``: how many units of a ``kind`` the sites have, which is public; else ""."""
    held = held_in_run(series.first, kind).by_site(series.network)
    if not held or len(held) > _MOST_SITES or not all(held.values()):
        return ""
    ascending = sorted(held, key=lambda name: (held[name], name))
    return f" ({join_names([f'{name} {whole(held[name])}' for name in ascending], _MOST_SITES)})"


def _everybody(series: Series, kind: str) -> str:
    """The words for all observers of a ``kind`` of unit but for the device or site that holds it."""
    if series.network.over_air:
        return _HEARS_NO_BETTER
    if kind == "device":
        return "any observer"
    return f"anybody but its own {series.network.device_word}"


def _towards_classes(network: Network, matrix: Matrix, kind: str, observer: str, at: str) -> list[str]:
    """One sentence with the least and the largest ε of every class of units towards the cloud or the public.

    Of many classes only the least and the largest of all; of a class whose ε differ, the device with the
    largest. Those without a guarantee are left out. [] where ε hardly differs, and for classes of named
    sites. ``at``: text with δ.
    """
    found, bare = list[tuple[float, float, Row, Guarantee]](), False
    for (row, column), cell in sorted(matrix.cells.items()):
        if matrix.columns[column].kind == observer and cell.guarantees[0].unit_kind == kind:
            if any(one.sites for one in cell.guarantees):
                return []
            bare = bare or cell.epsilon == math.inf
            if cell.epsilon < math.inf:
                least = min(map(least_epsilon, cell.guarantees))
                worst = max(cell.guarantees, key=lambda one: one.epsilon)
                found.append((least, cell.epsilon, matrix.rows[row], worst))
    values = [largest for _, largest, *_ in found]
    if len(values) < 2 or max(values) < SPREAD * min(values):
        return []
    if len(found) > _MOST_CLASSES:
        having = ", where there is a guarantee," if bare else ""
        least = min(one[0] for one in found)
        own_least, most, of_class, of_pair = max(found, key=lambda one: one[1])
        alike = epsilon(own_least) == epsilon(most)
        whose = f"{'' if alike else 'some of '}{of_class.title}{_in_brackets(of_class.detail, observer)}"
        if not alike and kind == "device" and of_pair.stands_for == 1:
            whose = parties_in_words(network.titled(of_pair.unit))
        ends = span([least, most], epsilon)
        return [f"Towards the {observer}{at} ε is{having} from {ends}; the largest is that of {whose}."]
    each = [
        f"ε = {span([least, most], epsilon)} for {of_class.title}{_in_brackets(of_class.detail, observer)}"
        for least, most, of_class, _ in found
    ]
    return [f"Towards the {observer}{at}: {join_names(each)}."]


def _in_brackets(detail: str, observer: str) -> str:
    """The detail of a row in brackets, after a space, without the noise of the ``observer``, who knows it."""
    first, added, adders = detail.partition("noise added by ")
    others = [name for name in re.split(", | and ", adders) if name != observer]
    known = f"{first}{added}{join_names(others)}" if added and others else first if added else detail
    if added and others and observer in adders:
        known = f"{known}; the {observer}'s own does not count"
    return f" ({known.rstrip(', ')})" if known.rstrip(", ") else ""


def _each_class(matrix: Matrix) -> str:
    """The largest ε towards other workers for each class of workers; "" for many or equal classes."""
    largest: dict[int, float] = {}
    for (row, column), cell in matrix.cells.items():
        if matrix.columns[column].kind in ("peer", "other-device"):
            largest[row] = max(cell.epsilon, largest.get(row, 0.0))
    if not 1 < len(largest) <= _MOST_CLASSES or len({epsilon(value) for value in largest.values()}) == 1:
        return ""
    return join_names([
        f"at most ε = {epsilon(value)} for the {matrix.rows[row].title}"
        for row, value in sorted(largest.items())
    ])  # fmt: skip


def _trusting_sentences(matrix: Matrix, raw: RawDevices | None) -> list[str]:
    """One sentence on who trusts whom with raw updates; [] where nobody does.

    ``raw``: how many devices send raw updates.
    """
    trusted = _without_guarantee(matrix, trusted=True)
    if not trusted:
        return []
    whom = {phrase for phrases in trusted.values() for phrase in phrases}
    if len(trusted) == len(matrix.rows) > 1 and whom == {"towards their own master"}:
        return ["All workers trust their own masters with raw updates: there is no guarantee towards these."]
    pairs = _unprotected_pairs_phrase(matrix, trusted, str(raw) if raw else None)
    return [f"No guarantee towards an observer that is trusted with raw updates: {pairs}."]


def unprotected_finding(matrix: Matrix) -> list[str]:
    """A list with one text on who has no guarantee towards observers that they do not trust.

    [] if all have one.
    """
    others = _without_guarantee(matrix, trusted=False)
    if not others:
        return []
    who = _unprotected_pairs_phrase(matrix, others)
    return [f"without any guarantee: {who}"]


def warnings_of_run(one: Series, matrix: Matrix) -> list[str]:
    """A list of all warnings about a run: on its protocol, on units without a guarantee, and findings.

    The latter are `Series.findings`. ``matrix``: the guarantees of its first seed. [] if there is nothing to
    warn of.
    """
    verdict = protocol_warnings(one.first.spec_dict)
    return [*verdict, *unprotected_finding(matrix), *one.findings.all]


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
    each = [f"{_named(matrix, who)} {join_names(whom, 3)}" for whom, who in alike.items()]
    return "; ".join(each)


def _named(matrix: Matrix, titles: Sequence[str]) -> str:
    """The classes of units with these ``titles``, joined.

    "all workers" where they are all classes, and each is a number of workers, as ``96 workers in 1 group``.
    """
    counted = [_COUNTED.match(row.title) for row in matrix.rows]
    if len(titles) == len(matrix.rows) > 1 and all(counted):
        (noun, *others) = dict.fromkeys(found[1] for found in counted if found)
        if not others:
            return f"all {noun}s"
    return join_names(titles)


def reasons_without_guarantee(matrix: Matrix) -> list[str]:
    """A sentence for each reason why pairs of ``matrix`` have no guarantee; an empty list if all have one.

    Of every cell the first pair without a guarantee counts whose unit does not trust its observer.
    """
    reasons: dict[str, dict[str, None]] = {}
    for (row, column), cell in sorted(matrix.cells.items()):
        endless = (one for one in cell.guarantees if one.epsilon == math.inf and not one.trusted)
        if (worst := next(endless, None)) is not None:
            pair = f"{matrix.rows[row].title} {matrix.columns[column].towards}"
            reasons.setdefault(_without_full_stop(worst.why or "there is no protection"), {})[pair] = None
    return [
        f"No guarantee for {join_names(list(who), 3)}: {why}.{_for_others_alike(why, who)}"
        for why, who in reasons.items()
    ]


def _for_others_alike(why: str, whose: Iterable[str]) -> str:
    """A sentence, after a space, that a reason with one aggregator's number stands for others; else ""."""
    several = any("edges " in who or " group" in who for who in whose)
    numbered = _NUMBERED.search(why)
    return f" The same is true of every other such {numbered[1]}." if several and numbered else ""


def _without_full_stop(said: str) -> str:
    """The text ``said`` without a full stop, or spaces, at its end."""
    return said.strip().rstrip(".")
