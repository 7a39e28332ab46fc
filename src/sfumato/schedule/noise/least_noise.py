"""The least noise at which no unit's ε towards an observer is above its target: one search for every family.

A *trial* is a size for every set of sources that scale together. It is judged by what an account of it
reports: by which factor the noise of every set would have to change, as the pairs are charged in the trial.
What differs is told by those who ask. In a tree every source is a set by itself, and takes the largest factor
of the units it serves; where views hold one source only (edges under a cloud) the first trial's factors are
exact, and if sources keep pulling at each other, all are raised until the worst unit meets the target. Where
devices move or trust changes, and in groups, all sources are one set, as no noise is met by some units only.

If the charged releases and the way to charge them are fixed, ε falls as all noise grows. But what is charged
may be chosen anew for every trial (exposed sets of groups), and under hidden draws another choice may be the
cheapest there. So of one set only a size that was judged to be enough, up to rounding, is returned.
"""

from __future__ import annotations

from collections.abc import Callable
from itertools import count
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from sfumato.errors import SpecError
from sfumato.privacy.declared_releases import DeclaredReleases, PairCharge
from sfumato.privacy.observers import Party
from sfumato.schedule.base import Parties
from sfumato.schedule.rows.observers import is_of_kind, main_unit, parse_observer
from sfumato.spec.document import Spec
from sfumato.spec.privacy import OBSERVER_KINDS

FloatArray = npt.NDArray[np.float64]

TOLERANCE = 3e-4  # a factor under hidden draws is a root found to 1e-4
_MOST_TRIALS = 60
_GUIDED_TRIALS = 8  # after so many the factors do not lead to the target, and the interval is halved
FOR = "privacy.noise.for"


class Verdict(NamedTuple):
    """Whether the noise of a trial is enough for its targets, and how it has to change.

    Attributes:
        is_enough: whether every target holds.
        is_close: whether the search may end here, with all noise raised by ``excess``.
        factors: by which the size of every set would have to change, as pairs are charged in the trial.
        excess: the factor on all noise that is lacking in a trial that is close.
    """

    is_enough: bool
    is_close: bool
    factors: Callable[[], FloatArray]
    excess: float = 1.0


def verdict_on_worst(epsilon: float, target: float, factor: Callable[[], float]) -> Verdict:
    """The verdict on a trial by its pair with the largest ε: close if ε is just below or at the target.

    Args:
        epsilon: of that pair.
        target: of that pair; close is within a share of `TOLERANCE` below it.
        factor: computes the least factor on the trial's noise at which that pair would meet its target.
    """
    close = target * (1 - TOLERANCE) <= epsilon <= target
    return Verdict(epsilon <= target, close, lambda: np.array([factor()]))


def verdict_on_factors(factors: FloatArray, tolerance: float) -> Verdict:
    """The verdict on a trial by the factors that its sets of sources need: enough if none is above 1.

    Args:
        factors: by which the noise of every set would have to change, ``[sets]``.
        tolerance: the trial is close if every factor is within this of 1.
    """
    largest = float(factors.max())
    close = float(np.abs(factors - 1.0).max()) < tolerance
    return Verdict(largest <= 1, close, lambda: factors, max(largest, 1.0))


def least_noise(judge: Callable[[FloatArray], Verdict], first: FloatArray) -> FloatArray:
    """The sizes of every set of sources at which ``judge`` finds the noise just enough, ``[sets]``.

    A trial's sizes are multiplied by the factors that its verdict asks for. With one set the search stays
    between what is known to be too little and what is known to be enough, and ends with what was enough, at
    most a relative `TOLERANCE` above the least. With several it ends with the last trial times the
    ``excess`` of its verdict, which makes up for what the worst pair lacks, at the latest after 60 trials.

    Args:
        judge: gives the verdict on the sizes of a trial, ``[sets]``.
        first: sizes of the first trial, ``[sets]``; without a unit, relative to the noise of the plan.
    """
    too_little, enough, trial = np.zeros(1), np.full(1, np.inf), first
    for number in count():
        verdict = judge(trial)
        if verdict.is_close or (number == _MOST_TRIALS - 1 and len(first) > 1):
            return trial * verdict.excess
        if len(first) > 1:
            trial = trial * verdict.factors()
            continue
        too_little, enough = (too_little, trial) if verdict.is_enough else (trial, enough)
        if enough <= too_little * (1 + TOLERANCE):
            return enough
        trial = np.maximum(trial * verdict.factors(), too_little * (1 + TOLERANCE))
        if number >= _GUIDED_TRIALS or trial >= enough:
            trial = _middle_of(too_little, enough)
    raise AssertionError("unreachable: the loop has no end of its own")


def _middle_of(too_little: FloatArray, enough: FloatArray) -> FloatArray:
    """The size ``[1]`` to try next between ``too_little`` (0: none known) and ``enough`` (∞: none known)."""
    if np.isinf(enough):
        return 2.0 * too_little
    middle = np.sqrt(too_little * enough)
    return middle if middle > 0 else enough / 2.0


def pairs_towards(
    declared: DeclaredReleases, towards: str, parties: Parties, *, where: str
) -> list[tuple[int, Party]]:
    """The pairs that a target is about: one unit of every class of units, with each observer that is meant.

    Args:
        declared: releases with the noise that is judged.
        towards: an observer by name, or one of `OBSERVER_KINDS`.
        parties: of the network.
        where: the topology, as a refusal calls it.

    Returns:
        At least one pair: a device's number and an observer.

    Raises:
        SpecError: there is no such observer.
    """
    if towards not in OBSERVER_KINDS:
        observer = parse_observer(towards, parties, place=FOR)
        members = {observer.index} if observer.kind == "device" else set[int]()
        return [(units.unit, observer) for units in declared.units_outside(members)]
    classes = declared.pair_classes(every_unit=True)
    found = [(pair.unit, pair.observer) for pair in classes if is_of_kind(pair, towards)]
    if not found:
        raise SpecError(FOR, towards, f"stands for nobody in {where}")
    return found


def charge_of(declared: DeclaredReleases, spec: Spec, unit: int, observer: Party) -> PairCharge:
    """How the accountant charges one unit of device ``unit`` towards ``observer``.

    Args:
        declared: the releases with the noise that is judged.
        spec: it says whether the unit is the device, a record or a person (`main_unit`).
        unit: number of the device.
        observer: one party.
    """
    kind, neighbours = main_unit(spec), spec.privacy.neighbours
    by_filter = spec.control is not None
    return PairCharge.of(declared, kind, unit, (observer,), neighbours=neighbours, by_filter=by_filter)
