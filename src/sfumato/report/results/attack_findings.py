"""Results of attacks and audits in a run folder, by observer."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from sfumato.errors import RunError
from sfumato.report.formatting import join_names, number, percent, sentence
from sfumato.report.results.network import read_network
from sfumato.report.results.series import Series
from sfumato.run_folder.reader import ATTACKS_FOLDER, RunFolder, read_json

AUDIT_FILE = "audit.json"
_PLACE = f"{ATTACKS_FOLDER}/"
_LOW_RATES = ("0.001", "0.01")  # false-positive rates at which results state the true-positive rate


class AuditedUnit(NamedTuple):
    """What an audit found about one unit.

    Attributes:
        unit: such as ``device:3``.
        lower: the empirical lower bound of ε.
        upper: the guaranteed ε.
        holds: whether the audit leaves the guarantee unrefuted.
    """

    unit: str
    lower: float
    upper: float
    holds: bool


class Interval(NamedTuple):
    """An estimate with its 95 % interval."""

    value: float
    low: float
    high: float

    @classmethod
    def of(cls, found: Mapping[str, float]) -> Interval:
        """The estimate and its interval, from ``value``, ``low`` and ``high`` of a JSON object of an attack.

        Raises:
            KeyError: one of these is missing.
        """
        return cls(float(found["value"]), float(found["low"]), float(found["high"]))


@dataclass(frozen=True)
class AttackCurve:
    """The ROC curve of one attack on records, devices or labels.

    Attributes:
        level: ``record``, ``device`` or ``label``.
        attack: its name.
        epsilon: the guaranteed ε of whom it attacks, under ``neighbours``, at ``delta``.
        delta: of that ε.
        neighbours: of that ε.
        exceeds_bound: whether the curve is above the guarantee.
        members: number of trials of members.
        others: number of trials of non-members.
        at_low_rates: the true-positive rates at 0.1 % and 1 % false positives.
        auc: the area under the curve.
        curve: arrays ``fpr``, ``tpr``, ``tpr_low``, ``tpr_high``, equally long, of rates from 0 to 1.
    """

    level: str
    attack: str
    epsilon: float
    delta: float
    neighbours: str
    exceeds_bound: bool
    members: int
    others: int
    at_low_rates: tuple[Interval, ...]
    auc: Interval
    curve: Mapping[str, Sequence[float]]

    @property
    def tpr_at_one_percent(self) -> float:
        """The true-positive rate at 1 % false positives, without its interval."""
        return self.at_low_rates[1].value

    @classmethod
    def from_dict(cls, row: Mapping[str, Any]) -> AttackCurve:
        """The curve of ``row``, one entry of ``results`` in the JSON file of an attack.

        Raises:
            KeyError: something is missing.
            ValueError, TypeError: something is of another kind.
        """
        bound, rates = row["bound"], tuple(Interval.of(row["tpr_at"][rate]) for rate in _LOW_RATES)
        stated = float(bound["epsilon"]), float(bound["delta"]), str(bound["neighbours"])
        trials = bool(row["exceeds_bound"]), int(row["members"]), int(row["others"])
        level, attack = str(row["level"]), str(row["attack"])
        return cls(level, attack, *stated, *trials, rates, Interval.of(row["auc"]), row["curve"])


class ReconstructedImage(NamedTuple):
    """One reconstructed image.

    Attributes:
        target: whose image it is.
        attack: name of the attack.
        scores: likeness to the original, by the name of the score.
    """

    target: str
    attack: str
    scores: Mapping[str, float]

    @classmethod
    def from_dict(cls, image: Mapping[str, Any]) -> ReconstructedImage:
        """The image of one entry of ``images`` in the file of an inversion.

        Scores that were not computed (null) are left out.

        Raises:
            KeyError: something is missing.
        """
        scores = {name: float(value) for name, value in image["scores"].items() if value is not None}
        return cls(str(image["target"]), str(image["attack"]), scores)


class Reconstructions(NamedTuple):
    """Reconstructed images and their originals.

    ``arrays`` has pixels from 0 to 1, ``[I, C, H, W]``: originals, reconstructions, and the baseline if any.
    """

    images: list[ReconstructedImage]
    arrays: Mapping[str, npt.NDArray[np.float32]]


@dataclass
class ObserverFindings:
    """All results about one observer.

    Attributes:
        name: a party, or a coalition joined by commas.
        title: the same with sites by their names.
        audits: findings of ``sfumato audit`` about it.
        curves: of membership and property attacks.
        guaranteed_epsilons: the guaranteed ε that each result of an attack states.
        notes: of the attacks, as sentences.
        reconstructions: of an inversion; ``None`` where there was none.
    """

    name: str
    title: str
    audits: list[AuditedUnit] = field(default_factory=list)
    curves: list[AttackCurve] = field(default_factory=list)
    guaranteed_epsilons: list[float] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    reconstructions: Reconstructions | None = None

    @property
    def is_attacked(self) -> bool:
        """Whether there are results of attacks, not of audits only."""
        return bool(self.curves) or self.reconstructions is not None

    def best(self, level: str) -> float:
        """The largest true-positive rate on ``level`` at 1 % false positives; NaN where none was measured.

        ``level``: as of `AttackCurve`.
        """
        return max(
            (curve.tpr_at_one_percent for curve in self.curves if curve.level == level), default=math.nan
        )


def attacked_run(one: Series) -> RunFolder | None:
    """The run of the first seed of a series that has results of attacks or an audit; ``None`` if none has."""
    return next((run for run in one.runs if _results(run)), None)


def observers_of(run: RunFolder) -> list[ObserverFindings]:
    """All findings of attacks and audits in a run folder by observer, in the order of their names.

    [] without any.

    Raises:
        RunError: a file is damaged, missing, or not of this run.
    """
    for lost in run.manifest.damages(run.path, [n for n in run.manifest.files if n.startswith(_PLACE)]):
        again = "repeat the attack or the audit, or resume the run, which removes the file"
        raise RunError(f"{run.path / lost.name}: {lost.what}; {again}")
    found: dict[str, ObserverFindings] = {}
    names = read_network(run.spec_dict)

    def about(name: object) -> ObserverFindings:
        """The findings about the observer ``name``, begun at the first."""
        return found.setdefault(str(name), ObserverFindings(str(name), names.titled(str(name))))

    for name in _results(run):
        path = run.path / name
        if name not in run.manifest.files:
            again = "repeat the attack or the audit, or remove it"
            raise RunError(f"{path}: is not in the manifest, so it cannot be checked; {again}")
        try:
            document = read_json(path)
            if path.name == AUDIT_FILE:
                for row in document["findings"]:
                    bounds = float(row["lower"]), float(row["upper"])
                    about(row["observer"]).audits.append(
                        AuditedUnit(str(row["unit"]), *bounds, bool(row["holds"]))
                    )
                continue
            observer = about(document["observer"])
            observer.notes += [note for note in document["notes"] if note not in observer.notes]
            if document["kind"] == "inversion":
                observer.reconstructions = _pictures(path, document)
            else:
                observer.curves += map(AttackCurve.from_dict, document["results"])
                observer.guaranteed_epsilons.append(float(document["promised"]["epsilon"]))
        except (OSError, ValueError, KeyError, TypeError) as error:
            raise RunError(f"{path}: is not the result of an attack or an audit: {error!r}") from None
    return [found[name] for name in sorted(found)]


def _results(run: RunFolder) -> list[str]:
    """Paths within the run folder, ascending, of the results of attacks and audits.

    They are the JSON files that are there, and those that the manifest lists.
    """
    there = {path.relative_to(run.path).as_posix() for path in (run.path / ATTACKS_FOLDER).glob("*.json")}
    listed = {name for name in run.manifest.files if name.startswith(_PLACE) and name.endswith(".json")}
    return sorted(there | listed)


def guaranteed_epsilon(run: RunFolder, observer: ObserverFindings) -> float:
    """The largest guaranteed ε towards this observer: of privacy.json, and as audits and attacks state it.

    NaN if nothing states one.
    """
    stated = [row.epsilon for row in run.privacy.guarantees if row.observer == observer.name]
    stated += [audit.upper for audit in observer.audits]
    return max([*stated, *observer.guaranteed_epsilons], default=math.nan)


def verdict(observers: Sequence[ObserverFindings]) -> str:
    """A sentence on whether audits and attacks agree with the guarantees, and one on the best attacks.

    If an audit or attack contradicts a guarantee, only that is said. ``observers``: at least one.
    """
    refuted = [one.title for one in observers if not all(audit.holds for audit in one.audits)]
    above = [one.title for one in observers if any(curve.exceeds_bound for curve in one.curves)]
    if refuted:
        return f"THE GUARANTEE IS REFUTED by an audit, towards {join_names(refuted)}."
    if above:
        return f"An attack is ABOVE THE GUARANTEE, towards {join_names(above)}."
    audited = [one.title for one in observers if one.audits]
    attacked = [one.title for one in observers if one.is_attacked]
    said = [f"no audit refutes the guarantee towards {join_names(audited)}"] if audited else []
    beyond = "it" if audited else "the guarantee"
    said += [f"no attack as {join_names(attacked)} goes beyond {beyond}"] if attacked else []
    return f"{sentence(join_names(said))}{_best_rates(observers)}"


def _best_rates(observers: Sequence[ObserverFindings]) -> str:
    """Two clauses on the best attacks: true-positive rates by level, and the area under a curve.

    As one sentence after a space; "" where no rate was measured.
    """
    rates = {
        what: [rate for one in observers if not math.isnan(rate := one.best(level))]
        for level, what in (("record", "examples"), ("device", "devices"), ("label", "labels"))
    }
    found = [f"{percent(max(known))} of {what}" for what, known in rates.items() if known]
    areas = [curve.auc.value for one in observers for curve in one.curves]
    if not found:
        return ""
    best = f"the largest area under a curve is {number(max(areas))}, where guessing has 0.5"
    return f" At 1 % false positives the best attacks find {join_names(found)}; {best}."


def _pictures(path: Path, document: Mapping[str, Any]) -> Reconstructions:
    """The images and scores of an inversion.

    ``path``: the file of the attack, beside which the arrays are; ``document``: its content.

    Raises:
        ValueError: arrays are missing, or images and scores are not equally many.
    """
    with np.load(path.with_suffix(".npz"), allow_pickle=False) as file:
        names = [name for name in ("originals", "reconstructions", "guesses") if name in file]
        shown = {name: np.asarray(file[name], dtype=np.float32) for name in names}
    images = list(map(ReconstructedImage.from_dict, document["images"]))
    sizes = {len(images), *(len(array) for array in shown.values())}
    if {"originals", "reconstructions"} - set(shown) or len(sizes) > 1:
        raise ValueError("the images and the scores do not belong together")
    return Reconstructions(images, shown)
