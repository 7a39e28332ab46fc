"""Overlapping groups: ε of every worker towards every other, and per-worker privacy (PwP) over epochs.

``rigorous`` is the account's own ε, the least that it proves. Theorem 1 of the DP-OGL paper is composed in
three ways: its figures take Opacus's Rényi divergences, and its text does not say whether ε is read before or
after the conversion at δ: ``claimed`` is after it, ``claimed, Rényi`` before it, at the best order of the
conversion. The theorem's own 2π²α/σ² is the third.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Literal

import numpy as np

from sfumato.claims.dp_ogl_counts import (
    BY_RDP,
    BY_TEXT,
    PaperCount,
    claims_pair,
    paper_counts,
    paper_divergence,
    paper_epsilon,
    paper_sources,
)
from sfumato.privacy.groups.per_worker import per_worker
from sfumato.privacy.groups.releases import GroupReleases
from sfumato.report.results.grouped_run import GroupedRun
from sfumato.schedule.resolve.groups import resolve_groups
from sfumato.spec.document import Spec
from sfumato.studies.measures.base import SPREAD, Measurement, Measurements

RIGOROUS, CLAIMED, BEFORE, TEXT = "rigorous", "claimed", "claimed, Rényi", "claimed, 2π²α/σ²"
RELEASES, COUNTED = "releases", "releases by the paper's count"
PAPERS_OWN = (CLAIMED, BEFORE, TEXT, COUNTED)
"""The series that are computed by the paper's formulas; `RIGOROUS` and `RELEASES` are the account's own."""
_MOMENTS = 8


def pairs_of_workers(spec: Spec, _: str) -> Measurements:
    """ε of every worker towards every other after the last epoch: rigorous and as claimed.

    Series ``SERIES, mean``, ``SERIES, least`` and ``SERIES, largest`` are of all pairs, ``SERIES, least in a
    common group`` is of pairs that share a group, none where the series has no such pair. ``releases`` is how
    many the rigorous ε charges, ``releases by the paper's count`` how many Theorem 1 counts. Pairs of which
    the paper claims nothing have no claimed series. The second argument is not used.
    """
    workers = _Workers(spec)
    found = []
    for unit in range(workers.count):
        for observer in range(workers.count):
            if unit != observer:
                for series, epsilon in workers.of_pair(unit, observer).items():
                    found.append(Measurement(epsilon, series, unit=unit, observer=observer))
    by_series: dict[str, list[float]] = {}
    for one in found:
        by_series.setdefault(one.series, []).append(one.value)
    for series, values in by_series.items():
        mean = sum(values) / len(values)
        summary = {"mean": mean, "least": min(values), "largest": max(values)}
        found += [Measurement(value, f"{series}, {what}") for what, value in summary.items()]
        together = [one.value for one in found if one.series == series and workers.share_group(one)]
        if together:
            found.append(Measurement(min(together), f"{series}, least in a common group"))
    return found


def per_worker_over_epochs(spec: Spec, threat_model: str) -> Measurements:
    """The paper's per-worker privacy after up to `_MOMENTS` evenly spaced epochs, the last one included.

    After each: the mean over the workers that have a curious observer, and the std, in the series of the
    rigorous ε (`RIGOROUS`) and in those of what Theorem 1 claims. Without a guarantee the mean is infinite
    and the std is NaN.

    Args:
        spec: over groups.
        threat_model: ``1``: every other worker is curious; ``2``: those that share no group with the unit.

    Returns:
        Measurements with the epoch as ``at``: of each series ``SERIES`` the mean, of ``SERIES, sd`` the std;
        none where nobody has a curious observer.
    """
    workers = _Workers(spec)
    rounds = workers.releases.rounds
    epochs = sorted({max(1, round(rounds * i / _MOMENTS)) for i in range(1, _MOMENTS + 1)})
    model: Literal[1, 2] = 2 if threat_model == "2" else 1
    neighbours = workers.run.plan.spec.privacy.neighbours
    rigorous = per_worker(
        workers.releases, epochs, threat_model=model, delta=workers.delta, neighbours=neighbours
    )
    found: list[Measurement] = []
    for i, epoch in enumerate(epochs):
        weighted = [(one.epsilon[i], one.stands_for) for one in rigorous]
        found += _spread([value for value, times in weighted for _ in range(times)], RIGOROUS, epoch)
        for series, values in workers.claimed_after(epoch, model).items():
            found += _spread(values, series, epoch)
    return found


def _spread(values: Sequence[float], series: str, epoch: int) -> Measurements:
    """Mean and standard deviation of ``values`` over workers that have an observer (not NaN), at ``epoch``.

    Infinite without a guarantee. ``series``: names the mean; `SPREAD` is added for the deviation. [] if no
    worker has an observer.
    """
    known = np.array([value for value in values if not math.isnan(value)])
    if not len(known):
        return []
    middle = float(known.mean())
    spread = float(known.std()) if math.isfinite(middle) else math.nan
    return [Measurement(middle, series, at=epoch), Measurement(spread, series + SPREAD, at=epoch)]


@dataclass(frozen=True)
class _Workers:
    """A spec over groups with its releases; pairs of workers of the same groups are computed once."""

    spec: Spec
    _pairs: dict[tuple[int, int], Mapping[str, float]] = field(default_factory=dict, init=False, repr=False)

    @cached_property
    def run(self) -> GroupedRun:
        """The resolved plan, with no recorded guarantees."""
        plan = resolve_groups(self.spec)
        return GroupedRun(plan, plan.spec.privacy.delta, ())

    @property
    def releases(self) -> GroupReleases:
        """The declared releases of the groups."""
        return self.run.releases

    @property
    def delta(self) -> float:
        """δ of every ε."""
        return self.run.delta

    @property
    def count(self) -> int:
        """The number of workers."""
        return self.releases.device_count

    def share_group(self, measured: Measurement) -> bool:
        """Whether the two workers that a measurement of a pair is of are in a common group."""
        kinds = self.releases.kinds
        mine, theirs = (set(kinds.groups[int(kinds.of[i])][0]) for i in (measured.unit, measured.observer))
        return bool(mine & theirs)

    def of_pair(self, unit: int, observer: int) -> Mapping[str, float]:
        """By series, ε of ``unit`` towards ``observer`` after the last epoch, and numbers of releases.

        Both are numbers of workers, from 0. The numbers are of releases that ε is charged for.
        """
        kinds = self.releases.kinds
        key = int(kinds.of[unit]), int(kinds.of[observer])
        if key not in self._pairs:
            self._pairs[key] = self._compute_pair(unit, observer)
        return self._pairs[key]

    def _compute_pair(self, unit: int, observer: int) -> Mapping[str, float]:
        """Compute `of_pair`: the rigorous ε and number of releases, and the claims of the paper.

        Without claims where the paper makes none of such pairs.
        """
        pair = self.run.pair(unit, observer)
        rigorous = {RIGOROUS: pair.epsilon, RELEASES: float(pair.releases)}
        by_method = {self.run.claims[name]: epsilon for name, epsilon in pair.claimed.items()}
        if BY_RDP not in by_method:
            return rigorous
        claimed = {CLAIMED: by_method[BY_RDP], TEXT: by_method[BY_TEXT]}
        counts = paper_counts(self.releases, unit, observer)
        return rigorous | _unconverted(self.releases, counts, self.delta) | claimed

    def claimed_after(self, epochs: int, threat_model: int) -> Mapping[str, list[float]]:
        """The claimed PwP of every worker after ``epochs`` epochs, by series; NaN where nobody is curious.

        ``threat_model``: 1 or 2, as of `per_worker_over_epochs`. Workers stand in the order of their kinds,
        not of their numbers. Empty where the paper claims nothing.
        """
        declared = self.releases.after(epochs)
        kinds, found = declared.kinds, dict[str, list[float]]()
        mine = [set(groups[0]) for groups in kinds.groups]
        for kind, unit in enumerate(kinds.first):
            worst: dict[str, float] = {}
            for other, first in enumerate(kinds.first):
                if other == kind and int(kinds.size[kind]) == 1:
                    continue
                if threat_model == 2 and mine[kind] & mine[other]:
                    continue
                observer = int(first) if other != kind else _another(declared, kind, int(unit))
                for series, epsilon in _claims(declared, int(unit), observer, self.delta).items():
                    worst[series] = max(worst.get(series, 0.0), epsilon)
            for series in worst:
                found.setdefault(series, []).extend([worst[series]] * int(kinds.size[kind]))
        return found


def _another(declared: GroupReleases, kind: int, unit: int) -> int:
    """Number of another worker than ``unit`` of kind number ``kind``: it is in the same groups."""
    return next(int(worker) for worker in np.flatnonzero(declared.kinds.of == kind) if worker != unit)


def _claims(declared: GroupReleases, unit: int, observer: int, delta: float) -> dict[str, float]:
    """What Theorem 1 claims for ``unit`` towards ``observer`` at ``delta``, by series; empty if nothing."""
    if not paper_sources(declared) or not claims_pair(declared, unit, observer):
        return {}
    counts = paper_counts(declared, unit, observer)
    claimed = {
        series: paper_epsilon(declared, counts, method, delta)
        for series, method in ((CLAIMED, BY_RDP), (TEXT, BY_TEXT))
    }
    return _unconverted(declared, counts, delta) | claimed


def _unconverted(declared: GroupReleases, counts: Sequence[PaperCount], delta: float) -> dict[str, float]:
    """What Theorem 1 comes to for a pair before its divergence is converted to ε.

    ``delta``: of the ε that is claimed.

    Returns:
        By series: the number of releases that it counts, and the divergence.
    """
    return {
        COUNTED: float(sum(count.charged for count in counts)),
        BEFORE: paper_divergence(declared, counts, delta),
    }
