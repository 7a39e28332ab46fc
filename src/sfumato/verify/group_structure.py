"""Overlapping groups as the facts have them: members, steps, observers, draws."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from sfumato.verify import read
from sfumato.verify.parties import Party, kind_and_index, require_index_below
from sfumato.verify.read import Json, UnknownKindError


class CheckedGroupStructure:
    """Overlapping groups: who is in which group when, who receives what, and who is drawn."""

    def __init__(self, ledger: Json) -> None:
        self.ledger = ledger
        self.kind = str(ledger["kind"])
        self.every = read.count(ledger["merge_every"])
        self.intervals = self.kind in ("dp-ogl+", "dp-ogl-local") and self.every > 1
        self.raw_inside = self.kind == "dp-ogl+" and self.every > 1
        rounds = read.count(ledger["rounds"])
        begun = -(-rounds // self.every) if self.raw_inside else rounds // self.every
        self.steps = begun if self.intervals else rounds
        length = self.every if self.intervals else 1
        self.era_starts = [(read.count(era["first_epoch"]) - 1) // length + 1 for era in ledger["eras"]]
        self.groups = len(ledger["eras"][0]["groups"])
        self.workers = read.count(ledger["devices"])
        self.inside = [self._membership(era["groups"]) for era in ledger["eras"]]
        # workers that are in the same groups in every era count together
        rows = np.concatenate(self.inside, axis=1)
        kinds, self.kind_of, self.sizes = np.unique(rows, axis=0, return_inverse=True, return_counts=True)
        self.kind_of = self.kind_of.reshape(-1)
        self.kinds = np.split(kinds, len(self.inside), axis=1)
        self.devices_add_noise = self._groups_with_noisy_workers(ledger["noise_added_by"])

    def _groups_with_noisy_workers(self, stated: Any) -> list[bool]:
        """For each group, whether its workers add the noise (else its master does).

        Args:
            stated: "master" or "devices" for all groups, or a list of these.

        Raises:
            ValueError: it is something else.
            UnknownKindError: workers add the noise of dp-ogl+.
        """
        owners = [stated] * self.groups if isinstance(stated, str) else list(stated)
        if len(owners) != self.groups or not set(owners) <= {"master", "devices"}:
            raise ValueError(f"noise_added_by: {stated!r}: must be master or devices, for every group")
        if self.raw_inside and "devices" in owners:
            no_rule = "this checker has no rule for dp-ogl+ where devices add it"
            raise UnknownKindError(f"noise_added_by: {no_rule}")
        return [owner == "devices" for owner in owners]

    def trusts(self, unit: int, observer: Party) -> bool:
        """Whether ``unit`` sends updates without noise to ``observer``: to a master that adds the noise."""
        kind, _, group = observer
        return kind == "master" and self.is_near(unit, observer) and not self.devices_add_noise[group]

    def is_near(self, unit: int, party: Party) -> bool:
        """Whether, in any era, ``unit`` is in the group of a master or shares one with another worker."""
        kind, _, index = party
        theirs = (inside[index] if kind == "device" else np.eye(self.groups)[index] for inside in self.inside)
        return any((inside[unit] * one).any() for inside, one in zip(self.inside, theirs, strict=True))

    @property
    def raw_workers(self) -> int:
        """How many workers send updates without noise to some master in any era."""
        raw = [~np.array(self.devices_add_noise) & inside for inside in self.inside]
        return int(np.logical_or.reduce(raw).any(axis=1).sum())

    def _membership(self, groups: Sequence[Sequence[int]]) -> npt.NDArray[np.bool_]:
        """Whether each worker is in each group, ``[workers, groups]``."""
        found = np.zeros((self.workers, self.groups), dtype=np.bool_)
        for group, members in enumerate(groups):
            found[list(members), group] = True
        return found

    @property
    def pair_count(self) -> int:
        """Number of ordered pairs of a worker and an observer: a master, or another worker."""
        return self.workers * (self.groups + self.workers - 1)

    def party_named(self, name: str) -> Party:
        """The party (kind, tier, index) of an observer's name, such as ``master:3``.

        Raises:
            ValueError: there is no such party.
        """
        kind, index = kind_and_index(name)
        if kind not in ("device", "master"):
            raise ValueError(f"there is no party {name!r}")
        require_index_below(name, index, self.workers if kind == "device" else self.groups)
        return (kind, 0 if kind == "device" else 1, index)

    def era_of_step(self, step: int) -> int:
        """The index of the era in which a step lies; steps (releases of a group) count from 1."""
        return sum(start <= step for start in self.era_starts) - 1

    def merges(self, step: int) -> bool:
        """Whether workers start step ``step`` (from 1) from the mean of their groups' models."""
        period = 1 if self.intervals or self.kind == "ms-fedavg" else self.every
        return (step - 1) % period == 0

    def message_bound(self, group: int) -> float:
        """Bound of the L2 norm of one worker's contribution to a release of a group."""
        if self.kind == "ms-fedavg":
            return 1.0
        intervals = math.sqrt(self.every) if self.intervals else 1.0
        return float(self.ledger["clip_per_group"][group]) * intervals

    def received_releases(self, coalition: Sequence[Party]) -> list[int]:
        """For each group, how many of its first releases the coalition receives, ``[groups]``."""
        found = [0] * self.groups
        ends = [start - 1 for start in self.era_starts[1:]] + [self.steps]
        for inside, start, end in zip(self.inside, self.era_starts, ends, strict=True):
            for kind, _, index in coalition if start <= self.steps else ():
                for group in np.flatnonzero(inside[index]).tolist() if kind == "device" else [index]:
                    found[group] = max(found[group], min(end, self.steps))
        return found

    def masters_in(self, coalition: Sequence[Party]) -> dict[int, bool]:
        """For the groups whose master is in ``coalition``, whether it sees single messages in any era."""
        found = {}
        for kind, _, group in coalition:
            if kind == "device":
                continue
            single = self.ledger["transport"] == "plain"
            for inside in self.inside if not single else ():
                below = sum(bool(inside[i, group]) for kind, _, i in coalition if kind == "device")
                thresholds = self.ledger["shares_that_unmask"]
                single |= bool(thresholds) and below >= read.count(thresholds[group])
            found[group] = single
        return found

    def releases_upstream(self, unit: int, seen: Sequence[int]) -> list[int]:
        """How many first releases of each group the first ``seen[g]`` releases of all groups g depend on.

        The unit does not count as a link: only other workers carry models from group to group. At least
        ``seen``.
        """
        until = np.array(seen)
        others = self.sizes.copy()
        others[self.kind_of[unit]] -= 1
        for step in range(self.steps, 1, -1):
            if self.merges(step):
                inside = self.kinds[self.era_of_step(step)][others > 0]
                near = inside[(inside & (until >= step)).any(axis=1)].any(axis=0)
                until[near] = np.maximum(until[near], step - 1)
        return [int(n) for n in until]

    def _rate_and_cohort(self, group: int, size: int) -> tuple[float, int | None]:
        """The rate at which a worker of a group of ``size`` is drawn, and the number drawn.

        That number is ``None`` under Poisson draws and where everybody is drawn.
        """
        cohort = self.ledger.get("cohort_per_group")
        if not cohort:
            return float(self.ledger["poisson_rate_per_group"][group]), None
        count = read.count(cohort[group])
        return count / size, count if count < size else None

    def _least_survivors(self, group: int, era: int) -> int | None:
        """Fewest messages that a released sum of a group holds in an era; ``None`` where none may be lost."""
        listed = self.ledger.get("least_survivors_per_group")
        return read.count(listed[era][group]) if listed else None
