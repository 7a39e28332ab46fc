"""Who there is: overlapping groups of workers, each with a master, as arrays, never an object a worker.

Groups and workers are numbered from 0. Groups that share a worker are neighbours in the *group graph*;
what one group learns reaches the next through the workers they share.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import pairwise
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from sfumato.arguments import ErrorPlace
from sfumato.errors import SpecError
from sfumato.network.tree import MOST_SITES, whole_share
from sfumato.random import Stream, generator
from sfumato.spec.base import closest_hint
from sfumato.spec.limits import MAX_GROUPS, MAX_MEMBERSHIPS, MAX_WORKERS
from sfumato.spec.topology import Trust
from sfumato.user_text import decimal

if TYPE_CHECKING:
    from scipy import sparse

IntArray = npt.NDArray[np.int64]
FloatArray = npt.NDArray[np.float64]
BoolArray = npt.NDArray[np.bool_]
_PARTY = re.compile(r"(?<![\w:-])(device:|record:|person:|master:|group )(\d+)\b")


@dataclass(frozen=True, eq=False)
class Groups:
    """Which worker is in which groups.

    Attributes:
        workers: N, how many there are.
        members: the workers of every group, group after group, ascending inside a group.
        offsets: ``[M + 1]``; group m holds ``members[offsets[m]:offsets[m + 1]]``.
        group_names: what the masters are called ``[M]``; empty: by their numbers.
        worker_names: what the workers are called ``[N]``; empty: by their numbers.
    """

    workers: int
    members: IntArray
    offsets: IntArray
    group_names: tuple[str, ...] = ()
    worker_names: tuple[str, ...] = ()

    @property
    def count(self) -> int:
        """M, the number of groups."""
        return len(self.offsets) - 1

    @cached_property
    def sizes(self) -> IntArray:
        """Workers of each group ``[M]``: public constants."""
        return np.diff(self.offsets)

    def members_of(self, group: int) -> IntArray:
        """The numbers of the workers of ``group``, ascending ``[size]``; a view of `members`."""
        return self.members[self.offsets[group] : self.offsets[group + 1]]

    def positions(self, groups: IntArray, workers: IntArray) -> IntArray:
        """The index in `members` of each pair of a group and a worker in it; all three arrays are ``[n]``."""
        ascending = np.repeat(np.arange(self.count), self.sizes) * self.workers + self.members
        return np.searchsorted(ascending, groups * self.workers + workers).astype(np.int64)

    def groups_of(self, worker: int) -> IntArray:
        """The numbers of the groups that ``worker`` is in, ascending, ``[groups it is in]``."""
        return self._by_worker[0][self._by_worker[1][worker] : self._by_worker[1][worker + 1]]

    @cached_property
    def memberships(self) -> IntArray:
        """The number of groups that each worker is in ``[N]``."""
        return np.diff(self._by_worker[1])

    @cached_property
    def shared(self) -> sparse.csr_array:
        """How many workers each pair of groups shares, ``[M, M]``, sparse; the diagonal holds the sizes."""
        from scipy import sparse

        belongs = sparse.csr_array(
            (np.ones(len(self.members), np.int64), self.members, self.offsets),
            shape=(self.count, self.workers),
        )
        return sparse.csr_array(belongs @ belongs.T)

    @cached_property
    def distances(self) -> FloatArray:
        """Links between each pair of groups in the group graph ``[M, M]``; infinite without a path."""
        from scipy.sparse import csgraph

        steps: FloatArray = csgraph.shortest_path(
            self.shared.astype(np.float64), unweighted=True, directed=False
        )
        return steps

    @cached_property
    def classes(self) -> MembershipClasses:
        """The classes of workers in the same groups, who receive the same models."""
        flat, offsets = self._by_worker
        numbers: dict[bytes, int] = {}
        class_of = np.empty(self.workers, dtype=np.int64)
        first: list[int] = []
        for worker in range(self.workers):
            key = flat[offsets[worker] : offsets[worker + 1]].tobytes()
            number = numbers.setdefault(key, len(numbers))
            if number == len(first):
                first.append(worker)
            class_of[worker] = number
        return MembershipClasses(
            class_of,
            np.bincount(class_of, minlength=len(first)).astype(np.int64),
            tuple(self.groups_of(worker) for worker in first),
        )

    @cached_property
    def _by_worker(self) -> tuple[IntArray, IntArray]:
        """The groups of every worker, worker after worker, and where each worker's begin ``[N + 1]``."""
        groups = np.repeat(np.arange(self.count, dtype=np.int64), self.sizes)
        order = np.argsort(self.members, kind="stable")
        counts = np.bincount(self.members, minlength=self.workers)
        return groups[order], np.concatenate([[0], np.cumsum(counts)]).astype(np.int64)

    def as_lists(self) -> tuple[tuple[int, ...], ...]:
        """The workers of every group, as a spec with ``structure: list`` lists them."""
        return tuple(tuple(self.members_of(group).tolist()) for group in range(self.count))

    @property
    def device_count(self) -> int:
        """N, the number of workers, which are the devices of this topology."""
        return self.workers

    @property
    def has_public(self) -> bool:
        """Always false: a model of a group is not public."""
        return False

    def titled(self, text: str) -> str:
        """``text`` with the topology's names: ``device:3`` becomes that worker's name; see `titled` here."""
        return titled(text, self.group_names, self.worker_names)

    def group_title(self, group: int) -> str:
        """The name that the topology gives ``group``, or its number as text."""
        return self.group_names[group] if self.group_names else str(group)

    @property
    def site_names(self) -> tuple[str, ...]:
        """A tuple of the names of the workers; empty where they have none."""
        return self.worker_names

    @property
    def device_names(self) -> tuple[str, ...]:
        """A tuple of the names of the workers, which are the devices here; empty where they have none."""
        return self.worker_names

    def find_node(self, name: str, *, place: ErrorPlace) -> tuple[int, int]:
        """The tier, 1, and the group of the master called ``name``; SpecError at ``place`` if none."""
        return 1, self.find_master(name, place=place)

    def find_master(self, name: str, *, place: ErrorPlace) -> int:
        """The group of the master ``name``, a given name or ``master:M``; SpecError at ``place`` if none."""
        if name in self.group_names:
            return self.group_names.index(name)
        kind, _, number = name.partition(":")
        found = decimal(number)
        if kind == "master" and found is not None and found < self.count:
            return found
        if name in self.worker_names:
            raise SpecError(place, name, f"is a worker; must be master:0 to master:{self.count - 1}")
        names = (*self.group_names, *self.worker_names)
        listed = [", ".join(names[:MOST_SITES])] if names else []
        listed += [f"{len(names) - MOST_SITES:,} more names"] if len(names) > MOST_SITES else []
        also = f"; named are {', '.join(listed)}{closest_hint(name, names)}" if names else ""
        raise SpecError(place, name, f"must be master:0 to master:{self.count - 1}{also}")


@dataclass(frozen=True, eq=False)
class MembershipClasses:
    """Workers by the set of groups they are in.

    Attributes:
        class_of: of every worker ``[N]``.
        counts: workers of each class.
        groups: the groups of each class, ascending.
    """

    class_of: IntArray
    counts: IntArray
    groups: tuple[IntArray, ...]

    def averaging(self, groups: int) -> FloatArray:
        """The matrix ``[classes, M]`` that gives each class the mean of its groups' models; ``groups``: M."""
        matrix = np.zeros((len(self.groups), groups))
        for row, own in zip(matrix, self.groups, strict=True):
            row[own] = 1.0 / len(own)
        return matrix


def all_together(workers: int) -> Groups:
    """One group that holds all workers."""
    return _checked([np.arange(workers)], workers, "topology.devices")


def clusters(workers: int, count: int) -> Groups:
    """M = ``count`` disjoint groups: group m holds workers floor(mN/M) to floor((m+1)N/M) - 1 of N."""
    starts = _starts(workers, count)
    return _checked([np.arange(a, b) for a, b in pairwise(starts)], workers)


def ring(workers: int, count: int) -> Groups:
    """M = ``count`` groups in a ring: group m holds workers floor(mN/M) to floor((m+1)N/M), modulo N.

    So neighbours share one worker; if there are only two groups, they share two.
    """
    starts = _starts(workers, count)
    return _checked([np.arange(a, b + 1) % workers for a, b in pairwise(starts)], workers)


def string(workers: int, count: int) -> Groups:
    """A `ring` of ``count`` groups that is not closed: the last does not hold worker 0 of ``workers``."""
    starts = _starts(workers, count)
    return _checked([np.arange(a, min(b + 1, workers)) for a, b in pairwise(starts)], workers)


def by_label(label_counts: npt.NDArray[np.integer], count: int) -> Groups:
    """``count`` groups by labels: a worker that holds examples of label y is in group y mod M.

    Args:
        label_counts: how many examples of each label every worker holds ``[N, labels]``.
        count: M, the number of groups.

    Raises:
        SpecError: more groups than labels, too many memberships, or a group of fewer than two.
    """
    workers, labels = label_counts.shape
    if count > labels:
        raise SpecError("topology.groups", count, f"must be at most {labels}, the number of labels")
    _require_few(int((label_counts > 0).sum()))
    held = [label_counts[:, group::count].any(axis=1) for group in range(count)]
    return _checked([np.flatnonzero(own) for own in held], workers)


def listed(
    groups: Sequence[Sequence[int]], workers: int | None = None, *, place: str = "topology.groups"
) -> Groups:
    """The groups with the given members, checked.

    Args:
        groups: the workers of each.
        workers: how many there are; ``None``: one more than the largest number.
        place: key path, for errors.

    Raises:
        SpecError: an empty list, a worker that is not there or listed twice, or a group that is too small.
    """
    if not groups or not all(len(group) for group in groups):
        empty = next((f"[{number}]" for number, group in enumerate(groups) if not len(group)), "")
        raise SpecError(f"{place}{empty}", [], "must list at least two workers a group")
    if len(groups) > MAX_GROUPS:
        raise SpecError(place, len(groups), f"must be at most {MAX_GROUPS:,} groups")
    _require_few(sum(map(len, groups)), place)
    total = 1 + max(max(group) for group in groups) if workers is None else workers
    if total > MAX_WORKERS:
        raise SpecError(place, total - 1, f"workers are numbered from 0, at most {MAX_WORKERS:,}")
    for number, group in enumerate(groups):
        unknown = next((worker for worker in group if not 0 <= worker < total), None)
        if unknown is not None:
            raise SpecError(
                f"{place}[{number}]",
                unknown,
                f"is no worker: topology.devices makes them 0 to {total - 1}",
            )
        if len(set(group)) != len(group):
            raise SpecError(f"{place}[{number}]", list(group), "must name every worker once")
    return _checked([np.asarray(group) for group in groups], total, f"{place}[]")


def titled(text: str, group_names: Sequence[str], worker_names: Sequence[str]) -> str:
    """``text`` with names in place of numbers: for a message that people read.

    A name replaces ``master:M`` and ``device:N``, and N in ``record:N`` and ``person:N``, M in ``group M``.
    Numbers without a name stay. ``group_names``, ``worker_names``: by number; empty where there are none.
    """
    if not (group_names or worker_names):
        return text

    def title(found: re.Match[str]) -> str:
        kind, number = found[1], int(found[2])
        names = group_names if kind in ("master:", "group ") else worker_names
        if number >= len(names):
            return found[0]
        return f"{kind}{names[number]}" if kind in ("record:", "person:", "group ") else names[number]

    return _PARTY.sub(title, text)


def named(groups: Groups, group_names: Sequence[str], worker_names: Sequence[str]) -> Groups:
    """``groups`` with names for masters and workers; either may be empty.

    Raises:
        SpecError: not one name for each, or a worker is called like a group.
    """
    for key, names, count, what in (
        ("group_names", group_names, groups.count, "group"),
        ("worker_names", worker_names, groups.workers, "worker"),
    ):
        if names and len(names) != count:
            raise SpecError(f"topology.{key}", f"{len(names)} names", f"must be {count}, one for each {what}")
    both = set(group_names) & set(worker_names)
    if both:
        raise SpecError("topology.worker_names", min(both), "must not be the name of a group, too")
    return replace(groups, group_names=tuple(group_names), worker_names=tuple(worker_names))


def union_of(structures: Sequence[Groups]) -> Groups:
    """The union, group by group, of ``structures`` with the same workers and number of groups."""
    first = structures[0]
    members = [
        np.unique(np.concatenate([groups.members_of(group) for groups in structures]))
        for group in range(first.count)
    ]
    return named(_checked(members, first.workers), first.group_names, first.worker_names)


def trusted_masters(groups: Groups, trust: Trust, *, seed: int) -> BoolArray:
    """Which masters may see raw updates, bool ``[M]`` by group; all, unless ``trust`` names some.

    ``trust.trusted`` names masters; ``trust.trusted_aggregators`` lists groups, or is a fraction of them,
    rounded half up and drawn without replacement from the stream TRUST of ``seed``. Either makes trusted.

    Raises:
        SpecError: a master does not exist, or a cloud or edges are trusted where there are none.
    """
    if trust.cloud:
        raise SpecError("trust.cloud", True, "groups have no cloud; use trust.trusted_aggregators")
    if trust.trusted_edges not in (0.0, ()):
        raise SpecError(
            "trust.trusted_edges", trust.trusted_edges, "groups have no edges; use trusted_aggregators"
        )
    by_name = [groups.find_master(name, place="trust.trusted") for name in trust.trusted]
    aggregators = trust.trusted_aggregators
    marks = np.zeros(groups.count, dtype=np.bool_)
    if aggregators is None:
        marks[:] = not by_name
    elif isinstance(aggregators, tuple):
        for master in aggregators:
            if master >= groups.count:
                raise SpecError(
                    "trust.trusted_aggregators", master, f"there are groups 0 to {groups.count - 1}"
                )
        marks[list(aggregators)] = True
    else:
        count = whole_share(aggregators, groups.count)
        marks[generator(seed, Stream.TRUST).choice(groups.count, size=count, replace=False)] = True
    marks[by_name] = True
    return marks


def _require_few(memberships: int, place: str = "topology.groups") -> None:
    """Raise a `SpecError` at ``place`` for more ``memberships`` than a resolved spec can list."""
    if memberships > MAX_MEMBERSHIPS:
        allowed = f"must be at most {MAX_MEMBERSHIPS:,} memberships: a resolved spec lists each"
        raise SpecError(place, memberships, allowed)


def _starts(workers: int, count: int) -> list[int]:
    """First worker of each of ``count`` groups, and one past the last, if workers are divided evenly."""
    if count > workers:
        raise SpecError("topology.groups", count, f"must be at most {workers}, the number of workers")
    return [group * workers // count for group in range(count + 1)]


def _checked(
    groups: Iterable[npt.NDArray[np.integer]], workers: int, place: str = "topology.groups"
) -> Groups:
    """The groups with these members, sorted; ``place`` is the key path for errors.

    Raises:
        SpecError: a group of fewer than two workers, a worker in no group.
    """
    parts = [np.unique(np.asarray(group, dtype=np.int64)) for group in groups]
    for number, part in enumerate(parts):
        if len(part) < 2:
            who = f"only worker {part[0]}" if len(part) else "no worker"
            where = place.replace("[]", f"[{number}]")
            raise SpecError(where, None, f"group {number} would hold {who}; a group needs at least two")
    members = np.concatenate(parts)
    left_out = np.flatnonzero(np.bincount(members, minlength=workers) == 0)
    if len(left_out):
        more = f" (and {len(left_out) - 1:,} more)" if len(left_out) > 1 else ""
        raise SpecError(place.removesuffix("[]"), None, f"worker {left_out[0]}{more} is in no group")
    offsets = np.concatenate([[0], np.cumsum([len(part) for part in parts])]).astype(np.int64)
    return Groups(workers, members, offsets)
