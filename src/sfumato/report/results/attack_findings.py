"""Results of attacks and audits in a run folder, by observer."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from sfumato.errors import RunError
from sfumato.report.formatting import join_names, number, percent, sentence
from sfumato.report.results.network import read_network
from sfumato.report.results.series import Series
from sfumato.run_folder.reader import ATTACKS_FOLDER, RunFolder, as_epsilon, read_json

AUDIT_FILE = "audit.json"
_PLACE = f"{ATTACKS_FOLDER}/"


@dataclass(frozen=True)
class Reconstructions:
    """Reconstructed images and their originals.

    Attributes:
        images: target, attack and scores of each image.
        arrays: pixels from 0 to 1, ``[I, C, H, W]``: originals, reconstructions, and the baseline if any.
    """

    images: list[Mapping[str, Any]]
    arrays: Mapping[str, npt.NDArray[np.float32]]


@dataclass
class ObserverFindings:
    """All results about one observer.

    Attributes:
        name: a party, or a coalition joined by commas.
        title: the same with sites by their names.
        audits: findings of ``sfumato audit`` about it.
        curves: rows of membership and property results.
        guaranteed_epsilons: the guaranteed ε in the results of attacks.
        notes: of the attacks.
        reconstructions: of an inversion.
    """

    name: str
    title: str
    audits: list[Mapping[str, Any]] = field(default_factory=list)
    curves: list[Mapping[str, Any]] = field(default_factory=list)
    guaranteed_epsilons: list[float] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    reconstructions: Reconstructions | None = None


def attacked_run(one: Series) -> RunFolder | None:
    """The first seed with results of attacks or of an audit; ``None`` if there are none."""
    return next((run for run in one.runs if _results(run)), None)


def observers_of(run: RunFolder) -> list[ObserverFindings]:
    """Observers with results, in the order of their names.

    Raises:
        RunError: a file is damaged, missing, or not of this run.
    """
    for lost in run.manifest.damages(run.path, [n for n in run.manifest.files if n.startswith(_PLACE)]):
        again = "repeat the attack or the audit, or resume the run, which removes the file"
        raise RunError(f"{run.path / lost.name}: {lost.what}; {again}")
    found: dict[str, ObserverFindings] = {}
    names = read_network(run.spec_dict)

    def about(name: object) -> ObserverFindings:
        return found.setdefault(str(name), ObserverFindings(str(name), names.titled(str(name))))

    for name in _results(run):
        path = run.path / name
        if name not in run.manifest.files:
            again = "repeat the attack or the audit, or remove it"
            raise RunError(f"{path}: is not in the manifest, so it cannot be checked; {again}")
        try:
            document = read_json(path)
            if path.name == AUDIT_FILE:
                for finding in document["findings"]:
                    as_epsilon(finding["upper"]), as_epsilon(finding["lower"]), finding["unit"]
                    about(finding["observer"]).audits.append(finding)
                continue
            observer = about(document["observer"])
            observer.notes += [note for note in document["notes"] if note not in observer.notes]
            if document["kind"] == "inversion":
                observer.reconstructions = _pictures(path, document)
            else:
                observer.curves += document["results"]
                observer.guaranteed_epsilons.append(as_epsilon(document["promised"]["epsilon"]))
        except (OSError, ValueError, KeyError, TypeError) as error:
            raise RunError(f"{path}: is not the result of an attack or an audit: {error!r}") from None
    return [found[name] for name in sorted(found)]


def _results(run: RunFolder) -> list[str]:
    """Names of the results in the folder or in its manifest."""
    there = {path.relative_to(run.path).as_posix() for path in (run.path / ATTACKS_FOLDER).glob("*.json")}
    listed = {name for name in run.manifest.files if name.startswith(_PLACE) and name.endswith(".json")}
    return sorted(there | listed)


def guaranteed_epsilon(run: RunFolder, observer: ObserverFindings) -> float:
    """The largest guaranteed ε towards this observer; NaN if no row names it."""
    stated = [
        as_epsilon(row["epsilon"]) for row in run.privacy["guarantees"] if row["observer"] == observer.name
    ]
    stated += [as_epsilon(finding["upper"]) for finding in observer.audits]
    return max([*stated, *observer.guaranteed_epsilons], default=math.nan)


def verdict(observers: Sequence[ObserverFindings]) -> str:
    """Whether audits and attacks agree with the guarantees, in one sentence."""
    refuted = [one.title for one in observers if not all(finding["holds"] for finding in one.audits)]
    above = [one.title for one in observers if any(row["exceeds_bound"] for row in one.curves)]
    if refuted:
        return f"THE GUARANTEE IS REFUTED by an audit, towards {join_names(refuted)}."
    if above:
        return f"An attack is ABOVE THE GUARANTEE, towards {join_names(above)}."
    audited = [one.title for one in observers if one.audits]
    attacked = [one.title for one in observers if one.curves or one.reconstructions is not None]
    said = [f"no audit refutes the guarantee towards {join_names(audited)}"] if audited else []
    beyond = "it" if audited else "the guarantee"
    said += [f"no attack as {join_names(attacked)} goes beyond {beyond}"] if attacked else []
    return f"{sentence(join_names(said))}{_best_rates(observers)}"


def _best_rates(observers: Sequence[ObserverFindings]) -> str:
    """What the best attacks find, in a sentence; empty where none was measured."""
    found = []
    for level, what in (("record", "examples"), ("device", "devices"), ("label", "labels")):
        rates = [
            float(row["tpr_at"]["0.01"]["value"])
            for one in observers
            for row in one.curves
            if row["level"] == level
        ]
        found += [f"{percent(max(rates))} of {what}"] if rates else []
    areas = [float(row["auc"]["value"]) for one in observers for row in one.curves]
    if not found:
        return ""
    best = f"the largest area under a curve is {number(max(areas))}, where guessing has 0.5"
    return f" At 1 % false positives the best attacks find {join_names(found)}; {best}."


def _pictures(path: Path, document: Mapping[str, Any]) -> Reconstructions:
    with np.load(path.with_suffix(".npz"), allow_pickle=False) as file:
        names = [name for name in ("originals", "reconstructions", "guesses") if name in file]
        shown = {name: np.asarray(file[name], dtype=np.float32) for name in names}
    images = list(document["images"])
    sizes = {len(images), *(len(array) for array in shown.values())}
    if {"originals", "reconstructions"} - set(shown) or len(sizes) > 1:
        raise ValueError("the images and the scores do not belong together")
    return Reconstructions(images, shown)
