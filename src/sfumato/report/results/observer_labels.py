"""Names of classes of units, and of observers by their relation to a unit, from the ids of ``privacy.json``.

A run of a million devices has a few classes of devices (same trust, same size, same noise on the path to the
cloud). The relation of an observer to a unit is, for example, its own edge, a peer, a cabinet in the same
region, or the cloud.
"""

from __future__ import annotations

import abc
import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from sfumato.network.groups import BoolArray, Groups
from sfumato.privacy.observers import ObserverKind
from sfumato.report.formatting import how_many, join_names, pluralise, whole
from sfumato.report.results.network import GroupNetwork, Network, parties_in_words
from sfumato.user_text import decimal


@dataclass(frozen=True)
class Row:
    """A class of units.

    Attributes:
        order: the sort key.
        title: names the class.
        detail: describes it further.
    """

    order: tuple[int, str]
    title: str
    detail: str


@dataclass(frozen=True)
class Column:
    """How observers are placed towards a unit.

    Attributes:
        order: the sort key: the cloud and the public first, then from near to far.
        title: in words.
        kind: for programs.
        in_a_sentence: the title as a sentence says it after "towards"; empty where it is the same.
    """

    order: tuple[int, str]
    title: str
    kind: ObserverKind = "asked-for"
    in_a_sentence: str = ""

    @property
    def is_coalition(self) -> bool:
        """Whether the column is of several observers who pool what they know."""
        return self.order[0] == _COALITION

    @property
    def towards(self) -> str:
        """The phrase that follows an ε: ``towards their own edge``."""
        return f"towards {self.in_a_sentence or self.title}"


class ObserverLabels(abc.ABC):
    """Names classes of units and relations of observers: the rows and columns of the matrix."""

    def row(self, unit: str, sites: Sequence[str] = ()) -> Row:
        """The row of the matrix for ``unit``, a device, or a record or person of it.

        ``sites``: names of the sites of all units that the guarantee stands for; () without names.
        """
        kind = unit.partition(":")[0]
        if kind not in _WITHIN_DEVICES:
            return self._row(unit, sites)
        of_device = self._row(_device_of(unit), sites)
        order = (of_device.order[0], f"{of_device.order[1]} {kind}")
        return Row(order, f"one {kind} of {of_device.title}", of_device.detail)

    @abc.abstractmethod
    def _row(self, unit: str, sites: Sequence[str]) -> Row:
        """`row` of a device; subclasses say by what devices are classed."""

    def column(self, unit: str, observer: str) -> Column:
        """The column of the matrix for the relation of ``observer`` to ``unit``.

        ``unit``: a device, or a record or person of one; ``observer``: a party, or several joined by commas.
        """
        unit = _device_of(unit)
        if observer == "cloud":
            return Column((-2, ""), "cloud", "cloud", "the cloud")
        if observer == "public":
            return Column((-1, ""), "public", "public", "the public")
        if "," in observer:
            return Column((_COALITION, observer), f"coalition {self._coalition_text(observer)}")
        return self._party_column(unit, observer)

    def _coalition_text(self, coalition: str) -> str:
        """The members of a coalition, given as names joined by commas, as text with " + "."""
        return coalition.replace(",", " + ")

    def observer_title(self, observer: str) -> str:
        """A single observer in words, such as ``edge 0``."""
        return parties_in_words(observer)

    @abc.abstractmethod
    def _party_column(self, unit: str, observer: str) -> Column:
        """The column for a single party, neither cloud nor public, by its relation to ``unit``."""


def labels_for(network: Network) -> ObserverLabels:
    """The object that puts units and observers into rows and columns of the matrix, by network.

    `PlainLabels` where the shape of the network is not known.
    """
    if network.family is None:
        return PlainLabels()
    return network.family.labels(network)


def watched_title(network: Network, observer: str) -> str:
    """An observer that a run watches, in words: over groups a worker has its groups, as by `GroupLabels`.

    ``observer``: names joined by commas.
    """
    if isinstance(network.shape, GroupNetwork) and "," not in observer:
        return labels_for(network).observer_title(observer)
    return parties_in_words(network.titled(observer))


@dataclass(frozen=True)
class PlainLabels(ObserverLabels):
    """Labels for a network whose shape is not known: units by id, observers by kind."""

    def _row(self, unit: str, sites: Sequence[str]) -> Row:
        """A row for this unit alone, as the network's shape is not known."""
        return Row((index_of(unit) or 0, unit), unit, "")

    def _party_column(self, unit: str, observer: str) -> Column:
        """A column for all observers of the kind of ``observer``, as the network's shape is not known."""
        return column_of_observer_kind(observer)


def group_labels(network: Network, shape: GroupNetwork) -> ObserverLabels:
    """The object that puts workers and masters of overlapping groups into rows and columns of the matrix."""
    return GroupLabels(shape.groups, shape.trusted)


@dataclass(frozen=True)
class GroupLabels(ObserverLabels):
    """Labels for groups: workers by number and sizes of their groups, observers by distance in groups.

    Where some masters are trusted, workers also by how many of theirs are, and own masters by whether they
    are.

    Attributes:
        groups: of the network, in any round.
        trusted: whose masters are trusted, ``[M]``.
    """

    groups: Groups
    trusted: BoolArray

    def _row(self, unit: str, sites: Sequence[str]) -> Row:
        """The row of all workers in equally many groups of the same sizes as ``unit``, such as ``device:3``.

        Only those of ``sites`` are counted and named, if there are any; a unit that is no worker has its own
        row.
        """
        key = self._row_key(self._groups_of(unit))
        held, trust = key
        if not held:
            return Row((1 << 60, unit), unit, "")
        count = len(sites) or self._worker_counts[key]
        title = f"{how_many(count, 'worker')} in {how_many(len(held), 'group')}"
        sizes = join_names([whole(size) for size in sorted(set(held))])
        detail = f"of {sizes} workers{' each' if len(held) > 1 else ''}{trust}"
        if self.groups.worker_names and count <= MOST_NAMES:
            names = list(sites) or self._worker_names_of(key)
            title, detail = join_names(names), f"in {how_many(len(held), 'group')} {detail}"
        return Row((len(held), f"{held}{trust}{'|'.join(sites)}"), title, detail)

    def _worker_names_of(self, key: tuple[tuple[int, ...], str]) -> list[str]:
        """Names of all workers whose groups have this `_row_key`, ascending by number.

        Workers have names in this network.
        """
        classes = self.groups.classes
        of = [number for number, groups in enumerate(classes.groups) if self._row_key(groups.tolist()) == key]
        return [self.groups.worker_names[worker] for worker in np.flatnonzero(np.isin(classes.class_of, of))]

    def _coalition_text(self, coalition: str) -> str:
        """The titles of a coalition's members, joined by " + "; ``coalition``: names joined by commas."""
        return super()._coalition_text(self.groups.titled(coalition))

    def observer_title(self, observer: str) -> str:
        """A master by its name; a worker with its groups, as ``worker 26 of group 1``."""
        name = parties_in_words(self.groups.titled(observer)).replace("device", "worker")
        mine = self._groups_of(observer) if observer.startswith("device:") else []
        listed = join_names(list(map(str, mine)))
        return f"{name} of {pluralise('group', len(mine))} {listed}" if mine else name

    def _party_column(self, unit: str, observer: str) -> Column:
        """The column for the master or worker ``observer``, by its distance in groups from ``unit``.

        Masters of other groups are one column, however far.
        """
        mine, theirs = self._groups_of(unit), self._groups_of(observer)
        if not mine:
            return column_of_observer_kind(observer)
        if observer.startswith("master:"):
            master = index_of(observer)
            if master not in mine:
                return Column((500, ""), "other masters", "other-edge")
            if self._all_alike:
                return Column((1, ""), "own master", "own-edge", "their own master")
            if self.trusted[master]:
                words = "own master, trusted with raw updates"
                return Column((2, ""), words, "own-edge", "their own master")
            words = "own master, not trusted"
            return Column((1, ""), words, "own-edge", f"their {words}")
        if not theirs:
            return column_of_observer_kind(observer)
        nearest = float(self.groups.distances[np.ix_(mine, theirs)].min())
        if math.isinf(nearest):
            return Column((400, ""), "workers out of reach", "other-device")
        if nearest == 0:
            return Column((0, ""), "workers of the same group", "peer")
        return Column(
            (10 + int(nearest), ""), f"workers {how_many(int(nearest), 'group')} away", "other-device"
        )

    def _groups_of(self, name: str) -> list[int]:
        """Indices of the groups of the worker ``device:N``; [] where there is no such worker."""
        index = index_of(name)
        known = name.startswith("device:") and index is not None and index < self.groups.workers
        return self.groups.groups_of(index).tolist() if known and index is not None else []

    @property
    def _all_alike(self) -> bool:
        """Whether all masters are trusted, or none."""
        return bool(self.trusted.all() or not self.trusted.any())

    def _row_key(self, groups: Sequence[int]) -> tuple[tuple[int, ...], str]:
        """Key of the row for workers in ``groups``: ascending sizes of these, and words on trusted masters.

        The words are "" where all masters are trusted, or none.
        """
        trust = f", {int(self.trusted[groups].sum())} of {len(groups)} masters trusted"
        sizes = tuple(sorted(int(self.groups.sizes[group]) for group in groups))
        return sizes, "" if self._all_alike else trust

    @cached_property
    def _worker_counts(self) -> dict[tuple[tuple[int, ...], str], int]:
        """Row key to the number of workers that have it."""
        counts: dict[tuple[tuple[int, ...], str], int] = {}
        classes = self.groups.classes
        for groups, size in zip(classes.groups, classes.counts, strict=True):
            key = self._row_key(groups.tolist())
            counts[key] = counts.get(key, 0) + int(size)
        return counts


_WITHIN_DEVICES = ("record", "person")
_COALITION = 9_003  # in the order of columns
MOST_NAMES = 4  # of devices, in the label of a class


def _device_of(unit: str) -> str:
    """``device:N`` of ``record:N`` or ``person:N``; another ``unit`` unchanged."""
    kind, _, number = unit.partition(":")
    return f"device:{number}" if kind in _WITHIN_DEVICES else unit


def column_of_observer_kind(observer: str) -> Column:
    """The column for all observers of the kind of ``observer``, where the unit's place is not known.

    ``edges`` for ``edge:3``, ``other devices`` for ``device:3``.
    """
    kind = observer.partition(":")[0]
    title = "other devices" if kind == "device" else pluralise(kind) if ":" in observer else observer
    return Column((9_002, title), title)


def index_of(name: str) -> int | None:
    """The index in a party's name: 3 of ``edge:3``; ``None`` where there is none, as in ``cloud``."""
    return decimal(name.partition(":")[2])
