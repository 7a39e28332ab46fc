"""How accurate finished runs of the same setting were, or of settings next to it; nothing is extrapolated."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from itertools import islice
from pathlib import Path
from typing import Any, NamedTuple

from sfumato.errors import SfumatoError
from sfumato.explore.accounted_setting import AccountedSetting
from sfumato.privacy.guarantee import Guarantee
from sfumato.report import formatting as text
from sfumato.report.results.network import towards_in_words
from sfumato.report.results.series import Mean, mean
from sfumato.report.results.summary import of_main_unit
from sfumato.run_folder.manifest import MANIFEST_FILE
from sfumato.run_folder.metrics_table import last_measured
from sfumato.run_folder.reader import POINTS_FOLDER, SPEC_FILE, load_run
from sfumato.spec.diff import changed_values
from sfumato.spec.document import Spec
from sfumato.spec.load import load_spec
from sfumato.spec.words_of_keys import key_in_words, setting_in_words

_BESIDE = ("name", "seed", "versions", "hashes", "watch", "evaluate_every")
_FIXED = ("data", "model", "topology")
_KINDS_OF_SECTIONS = {"privacy.noise.kind", "training.participation.kind"}
_NEAREST = 3
_MOST_RUNS = 200
_MOST_LISTED = 5_000
_POINTS = f"{POINTS_FOLDER}/*/seed-*"
_PLACES = ("*", "*/seed-*", f"*/{_POINTS}", _POINTS)
"""Where runs are in a folder: runs, their seeds, and the points of sweeps, of which it may be one itself."""
_MOST_KEYS = 4


@dataclass(frozen=True)
class FinishedRun:
    """A run that is finished.

    Attributes:
        folder: of the run.
        spec: resolved.
        accuracy: the last that was measured on held-out data, 0 to 1.
        epsilons: the largest finite ε by kind of observer.
        delta: of every ε.
    """

    folder: Path
    spec: Spec
    accuracy: float
    epsilons: Mapping[str, float] = field(default_factory=dict)
    delta: float = math.nan


@dataclass(frozen=True)
class NearRun:
    """A finished run of the same data, model and network as the setting.

    Attributes:
        run: the run.
        different: by key of the spec that differs, its value in the run and in the setting; empty for none.
    """

    run: FinishedRun
    different: Mapping[str, tuple[Any, Any]]


class RunsFound(NamedTuple):
    """Finished runs in a folder.

    Attributes:
        runs: those that were read.
        unread: number of further folders of runs, which were not read.
    """

    runs: tuple[FinishedRun, ...]
    unread: int = 0


def finished_runs(folder: Path) -> RunsFound:
    """The finished runs in ``folder``, those of several seeds and those of the points of sweeps there.

    ``folder`` may be a sweep itself. The most recent are read, at most `_MOST_RUNS`, of the first
    `_MOST_LISTED` that are found; damaged ones are left out. Runs that have not changed are cached.
    """
    if not folder.is_dir():
        return RunsFound(())
    listed = (path for place in _PLACES for path in folder.glob(f"{place}/{MANIFEST_FILE}"))
    manifests = {path: _modification_time(path) for path in islice(listed, _MOST_LISTED)}
    recent = sorted(manifests, key=manifests.__getitem__, reverse=True)[:_MOST_RUNS]
    found = (_read_finished_run(path.parent, manifests[path]) for path in recent)
    return RunsFound(tuple(run for run in found if run is not None), len(manifests) - len(recent))


def _modification_time(path: Path) -> int:
    """When the file was last changed, in nanoseconds; 0 where it is not there."""
    try:
        return path.stat().st_mtime_ns
    except OSError:
        return 0


@lru_cache(maxsize=2 * _MOST_RUNS)
def _read_finished_run(folder: Path, changed: int) -> FinishedRun | None:
    """The finished run in ``folder``; ``None`` where there is none, it has no accuracy, or is damaged.

    ``changed``: time of modification, for the cache.
    """
    try:
        run = load_run(folder)
        if not run.finished:
            return None
        accuracy = last_measured(run.metrics["accuracy"])
        if math.isnan(accuracy):
            return None
        spec = load_spec(folder / SPEC_FILE)
        epsilons = largest_epsilons(run.privacy.guarantees)
        return FinishedRun(folder, spec, accuracy, epsilons, run.privacy.delta)
    except (SfumatoError, OSError):
        return None


def largest_epsilons(rows: Sequence[Guarantee]) -> dict[str, float]:
    """The largest ε in ``rows`` towards each kind of observer, by kind such as ``cloud``.

    Where some rows are about devices, only these count. Kinds towards which some unit has no guarantee are
    left out.
    """
    found: dict[str, float] = {}
    for row in of_main_unit(rows):
        found[row.relation.kind] = max(row.epsilon, found.get(row.relation.kind, 0.0))
    return {kind: value for kind, value in found.items() if value < math.inf}


def first_accuracy(accounted: AccountedSetting, runs: Sequence[FinishedRun]) -> tuple[str, str, str]:
    """What the page first says of a setting's accuracy, from finished runs.

    Returns:
        (title, text, sentence). Where runs have this setting: title and text of their mean over seeds, and
        "". Otherwise "", "" and a sentence with the accuracy of the nearest run and how it differs. Three
        empty texts where no run has the same data, model and network.
    """
    near = _nearest_first(accounted, runs)
    same = [one.run for one in near if not one.different]
    if same:
        return "accuracy, measured", text.percent(_mean_over_seeds(same).value), ""
    if not near:
        return "", "", ""
    other = text.percent(near[0].run.accuracy)
    differs = _differences_phrase(near[0].different)
    said = f"No finished run has this setting. The nearest, with accuracy {other}, differs in {differs}."
    return "", "", said


def _nearest_first(accounted: AccountedSetting, runs: Sequence[FinishedRun]) -> list[NearRun]:
    """The runs of the same data, model and network, those with the fewest different keys first."""
    return sorted(
        runs_of_same_data(accounted, runs), key=lambda one: (len(one.different), str(one.run.folder))
    )


def estimate(accounted: AccountedSetting, runs: Sequence[FinishedRun]) -> list[str]:
    """Sentences on the accuracy to expect of a setting, by finished runs, which they name.

    The mean over seeds if the setting itself was run. Otherwise its pilots, pairs of runs on both sides of
    it, and the three nearest runs of the same data, model and network; or one sentence that there are none.
    """
    near = _nearest_first(accounted, runs)
    same = [one.run for one in near if not one.different]
    if same:
        return [_mean_over_seeds_sentence(same)]
    if not near:
        return ["No finished run has the same data, model and network: there is no estimate."]
    said = ["No finished run has this setting."]
    said += [*_sentences_on_pilots(accounted, runs), *_runs_on_both_sides(near)]
    said.append("The nearest finished runs:")
    return said + [
        f"{one.run.folder}: {text.percent(one.run.accuracy)}, which differs in "
        f"{_differences_phrase(one.different)}."
        for one in near[:_NEAREST]
    ]


def _mean_over_seeds_sentence(same: Sequence[FinishedRun]) -> str:
    """A sentence with the mean accuracy over seeds of the runs ``same``."""
    found, seeds_of = _mean_over_seeds(same), {str(run.spec.seed) for run in same}
    spread = "" if math.isnan(found.half_width) else f" ± {text.percent(found.half_width)} (95 %)"
    seeds = f"{text.pluralise('seed', len(seeds_of))} {text.join_names(sorted(seeds_of), 8)}"
    folders = text.join_names([str(run.folder) for run in same])
    return (
        f"Measured: {text.percent(found.value)}{spread} on held-out data, by {len(same)} finished "
        f"{text.pluralise('run', len(same))} of this setting ({seeds}): {folders}."
    )


def _mean_over_seeds(same: Sequence[FinishedRun]) -> Mean:
    """The mean accuracy over seeds of the runs ``same``; several runs of one seed count once.

    Its half-width is NaN of a single seed.
    """
    of_seed: dict[str, list[float]] = {}
    for run in same:
        of_seed.setdefault(str(run.spec.seed), []).append(run.accuracy)
    return mean(mean(accuracies).value for accuracies in of_seed.values())


def runs_of_same_data(accounted: AccountedSetting, runs: Sequence[FinishedRun]) -> Iterator[NearRun]:
    """Yield the runs of the same data, model and network, each with the keys in which it differs.

    Keys that decide about neither training nor noise are left out. Where a section is of another kind, only
    its kind is named, as the keys of the two kinds cannot be compared.
    """
    now = _with_requested_noise(accounted.report.plan.spec)
    for run in runs:
        different = {
            key: values
            for key, values in changed_values(_with_requested_noise(run.spec), now).items()
            if key.partition(".")[0] not in _BESIDE
        }
        for kind in (
            _KINDS_OF_SECTIONS & different.keys()
        ):  # then the keys of one kind say nothing of the other
            section, kinds = kind.removesuffix("kind"), different[kind]
            different = {key: pair for key, pair in different.items() if not key.startswith(section)}
            if section == "privacy.noise.":
                different["privacy.noise"] = (_noise_in_words(run.spec), _noise_in_words(now))
            else:
                different[kind] = kinds
        if not any(key.partition(".")[0] in _FIXED for key in different):
            yield NearRun(run, different)


def _noise_in_words(spec: Spec) -> str:
    """How the noise of a spec was asked for, in words: ``sized for ε = 8 towards the cloud``, or "none"."""
    noise = spec.privacy.requested_noise
    match noise.kind:
        case "target":
            return f"sized for ε = {noise.epsilon:g} {towards_in_words(noise.towards)}"
        case "formula":
            return f"by the formula {noise.formula}"
        case "multiplier":
            return "a multiplier for all"
        case "sources":
            return "multipliers of single parties"
        case "none":
            return "none"


def _sentences_on_pilots(accounted: AccountedSetting, runs: Sequence[FinishedRun]) -> Iterator[str]:
    """Yield a sentence for each pilot: a run of the first rounds with the noise of all rounds.

    Of ``runs`` those whose spec is the setting's resolved one but for fewer rounds.
    """
    planned = accounted.report.plan.spec
    for run in runs:
        if run.spec.privacy.noise.kind != "sources" or run.spec.training.rounds >= planned.training.rounds:
            continue
        found = {
            key
            for key in changed_values(run.spec, planned)
            if key.partition(".")[0] not in _BESIDE and not key.startswith("privacy.noise.calibrated_from")
        }
        if found == {"training.rounds"}:
            rounds = f"{run.spec.training.rounds} of {planned.training.rounds} rounds"
            yield (
                f"A pilot with the noise of this setting: {text.percent(run.accuracy)} after {rounds} "
                f"({run.folder})."
            )


def _with_requested_noise(spec: Spec) -> Spec:
    """The spec with the noise that was asked for, such as a target, in place of the calibrated sources."""
    privacy = spec.privacy.model_copy(update={"noise": spec.privacy.requested_noise})
    return spec.model_copy(update={"privacy": privacy})


def _runs_on_both_sides(near: Sequence[NearRun]) -> Iterator[str]:
    """Yield a sentence for each number of the spec between two runs: one with less and one with more.

    ``near``: runs with their differences from the setting; only those are used that differ in one number and
    nothing else.
    """
    sides: dict[str, list[tuple[float, float, FinishedRun]]] = {}
    for one in near:
        if len(one.different) == 1:
            ((key, (theirs, ours)),) = one.different.items()
            if _is_number(theirs) and _is_number(ours):
                sides.setdefault(key, []).append((float(theirs), float(ours), one.run))
    for key, found in sides.items():
        below = max((row for row in found if row[0] < row[1]), key=lambda row: row[0], default=None)
        above = min((row for row in found if row[0] > row[1]), key=lambda row: row[0], default=None)
        if below is not None and above is not None:
            said = (
                f"{text.percent(one[2].accuracy)} with {key_in_words(key)} {one[0]:g} ({one[2].folder})"
                for one in (below, above)
            )
            yield f"Between two finished runs: {', '.join(said)}."


def _is_number(value: object) -> bool:
    """Whether ``value`` is a number, and no truth value."""
    return isinstance(value, int | float) and not isinstance(value, bool)


def _differences_phrase(different: Mapping[str, tuple[Any, Any]]) -> str:
    """A phrase on the keys in which two specs differ; ``different``: both values by key.

    Of many keys the first `_MOST_KEYS`, and how many more differ.
    """
    named = [
        f"{key_in_words(key)} ({' instead of '.join(setting_in_words(key, value, 40) for value in values)})"
        for key, values in different.items()
    ]
    if len(named) > _MOST_KEYS:
        named = [*named[:_MOST_KEYS], f"{len(named) - _MOST_KEYS} more keys that differ"]
    return text.join_names(named, _MOST_KEYS + 1)
