"""A run over overlapping groups, resolved again from its folder: its releases, and ε of any two workers."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property

import numpy as np

from sfumato.claims.dp_ogl_counts import claims_pair, paper_counts, paper_epsilon, paper_sources
from sfumato.claims.dp_ogl_theorem2 import Theorem2
from sfumato.errors import SfumatoError
from sfumato.network.groups import IntArray
from sfumato.privacy.groups.releases import GroupReleases
from sfumato.privacy.groups.vector_clocks import UNREACHED
from sfumato.privacy.guarantee import Guarantee
from sfumato.privacy.observers import Party
from sfumato.privacy.release import Exposure
from sfumato.run_folder.reader import SPEC_FILE, RunFolder
from sfumato.schedule.groups import GroupPlan
from sfumato.schedule.resolve.groups import resolve_groups
from sfumato.spec.load import load_spec
from sfumato.user_text import decimal

MOST_WORKERS = 120  # drawn one by one
_MOST_CLASSES = 60
_THEOREM_2 = "Theorem 2"


@dataclass(frozen=True)
class WorkerPair:
    """The privacy of one worker towards another.

    Attributes:
        epsilon: the rigorous ε; ∞ without a guarantee.
        releases: number of releases that it charges.
        bound: name of the bound: ``flow``, ``cut`` or ``min-cost``.
        hops: number of groups between the two, on paths that do not use the target: 0 if they share one;
            ``None`` without a path.
        claimed: ε by the name of a published claim, if the paper claims one for the pair.
    """

    epsilon: float
    releases: int
    bound: str
    hops: int | None
    claimed: Mapping[str, float]


@dataclass(frozen=True)
class GroupedRun:
    """A run over groups, with its plan resolved again from the spec in the folder.

    Attributes:
        plan: the resolved plan.
        delta: δ of every ε.
        rows: the guarantees in privacy.json.
    """

    plan: GroupPlan
    delta: float
    rows: tuple[Guarantee, ...]
    _pairs: dict[tuple[int, int], WorkerPair] = field(default_factory=dict, init=False, repr=False)

    @property
    def releases(self) -> GroupReleases:
        """What the plan declares to be released, by group."""
        return self.plan.releases

    def worker_title(self, worker: int) -> str:
        """The name of a worker as the topology gives it, otherwise its number."""
        names = self.plan.groups.worker_names
        return names[worker] if names else str(worker)

    @cached_property
    def drawn_workers(self) -> IntArray:
        """Numbers of the workers in the figures, ascending, int64 ``[drawn]``: all if they are few.

        Otherwise one of each class (the same groups); of very many classes only some, evenly spaced.
        """
        if self.releases.device_count <= MOST_WORKERS:
            return np.arange(self.releases.device_count)
        firsts = np.sort(self.releases.kinds.first)
        if len(firsts) > _MOST_CLASSES:
            firsts = firsts[np.unique(np.linspace(0, len(firsts) - 1, _MOST_CLASSES).round().astype(int))]
        return np.asarray(firsts, dtype=np.int64)

    @property
    def draws_every_worker(self) -> bool:
        """Whether the figures show every worker."""
        return len(self.drawn_workers) == self.releases.device_count

    def groups_of(self, worker: int) -> tuple[int, ...]:
        """A tuple of the indices of the groups that ``worker`` is in, in any round."""
        return tuple(self.plan.union_of_eras.groups_of(worker).tolist())

    @cached_property
    def claims(self) -> Mapping[str, str]:
        """Name of each published claim about pairs that applies to this run, to its method of composition.

        {} where the paper claims nothing.
        """
        sources = paper_sources(self.releases)
        if sources and self._theorem_2 is not None:
            sources[self._theorem_2.source] = _THEOREM_2
        return sources

    @cached_property
    def _theorem_2(self) -> Theorem2 | None:
        """What Theorem 2 of the paper claims of this run; ``None`` where it does not apply."""
        return Theorem2.of(self.plan)

    def pair(self, unit: int, observer: int) -> WorkerPair:
        """The privacy of worker ``unit`` towards worker ``observer``, both by index.

        Computed once for each pair of classes of workers, by the first pair that is asked for.
        """
        kinds = self.releases.kinds
        key = int(kinds.of[unit]), int(kinds.of[observer])
        if key not in self._pairs:
            self._pairs[key] = self._compute_pair(unit, observer)
        return self._pairs[key]

    def _compute_pair(self, unit: int, observer: int) -> WorkerPair:
        """The rigorous and the claimed ε of ``unit`` towards ``observer``, and the groups between them."""
        exposures = self.releases.exposures(unit, (Party("device", 0, observer),))
        row = self._guarantees_by_exposures.get(_exposure_key(exposures))
        if row is not None:
            found = row.epsilon, row.releases, row.bound
        else:
            neighbours = self.plan.spec.privacy.neighbours
            judged = [
                (self.releases.bound_epsilon(e, delta=self.delta, neighbours=neighbours), e.bound_name)
                for e in exposures
            ]
            best, name = min(judged, key=lambda pair: pair[0].epsilon)
            found = best.epsilon, best.releases, name
        claimed = {}
        if self.claims and claims_pair(self.releases, unit, observer):
            counts = paper_counts(self.releases, unit, observer)
            claimed = {
                name: paper_epsilon(self.releases, counts, method, self.delta)
                for name, method in self.claims.items()
                if method != _THEOREM_2
            }
            if self._theorem_2 is not None:
                claimed[self._theorem_2.source] = self._theorem_2.epsilon(unit, observer, self.delta)
        return WorkerPair(*found, self._hops(unit, observer), claimed)

    def _hops(self, unit: int, observer: int) -> int | None:
        """The least number of links between a group of ``unit`` and one of ``observer``.

        ``None`` without a path.
        """
        mine, theirs = self.groups_of(unit), self.groups_of(observer)
        if self.plan.eras:  # links of any round, the worker's own included
            away = float(self.plan.union_of_eras.distances[np.ix_(mine, theirs)].min())
            return int(away) if math.isfinite(away) else None
        between = self.releases.hops_between(int(self.releases.kinds.of[unit]))
        nearest = int(between[np.ix_(mine, theirs)].min(initial=UNREACHED))
        return None if nearest == UNREACHED else nearest

    @cached_property
    def _guarantees_by_exposures(self) -> dict[object, Guarantee]:
        """`_exposure_key` of a pair of workers to the row of privacy.json about it.

        Of several rows with one key it is the first. Rows about others than two workers of the run are left
        out.
        """
        found: dict[object, Guarantee] = {}
        for row in self.rows:
            unit, observer = _device_number(row.unit), _device_number(row.observer)
            if unit is None or observer is None:
                continue
            if max(unit, observer) < self.releases.device_count and unit != observer:
                exposures = self.releases.exposures(unit, (Party("device", 0, observer),))
                found.setdefault(_exposure_key(exposures), row)
        return found


def grouped_run(run: RunFolder) -> GroupedRun | None:
    """The grouped run in a folder; ``None`` if its spec cannot be resolved any more.

    ``run``: over groups; its δ is used, or that of the spec where the folder has none.
    """
    try:
        plan = resolve_groups(load_spec(run.path / SPEC_FILE))
    except (SfumatoError, OSError):
        return None
    delta = run.privacy.delta
    return GroupedRun(plan, delta if 0 < delta < 1 else plan.spec.privacy.delta, run.privacy.guarantees)


def _device_number(name: str) -> int | None:
    """The number in ``device:N``; ``None`` for another party."""
    kind, _, number = name.partition(":")
    return decimal(number) if kind == "device" else None


def _exposure_key(exposures: tuple[Exposure, ...]) -> object:
    """A key that is equal for pairs whose charged releases differ only in the names of groups."""
    return tuple(exposure.without_names for exposure in exposures)
