"""How many examples every device holds, dealt out again by ``data.partition``, the seed and the zones."""

from __future__ import annotations

from typing import TypeAlias

import numpy as np
import numpy.typing as npt

from sfumato.verify import read
from sfumato.verify.read import Array, Json
from sfumato.verify.spec_settings import tree_shape, worker_count

CLASS_COUNTS: dict[str, tuple[int, ...]] = {
    "digits": (142, 146, 141, 147, 144, 146, 145, 143, 139, 144),
    "mnist": (5923, 6742, 5958, 6131, 5842, 5421, 5918, 6265, 5851, 5949),
    "fashion-mnist": (6_000,) * 10,
    "emnist": (24_000,) * 10,
    "cifar10": (5_000,) * 10,
    "cifar100": (500,) * 100,
}
"""Training examples of every label of the data sets that are known by name."""
FEMNIST = 814_277
"""Examples of a data set without a test split; how many each label has is not tabulated."""
EMNIST_DIGITS = 341_873
"""Training examples of EMNIST's digits by writer; how many each label has is not tabulated."""
Pool: TypeAlias = tuple[int, Array | None]
"""How many examples there are, and how many of each label where that is known."""


def examples_held(spec: Json) -> tuple[Array | None, str]:
    """The number of training examples that every device holds, if the spec determines it.

    The data set must be synthetic or in the table of built-in sets; the seed of the spec fixes every draw of
    the rule of partition.

    Returns:
        The numbers ``[devices]`` and "", or ``None`` and the key of the spec on which they depend.
    """
    data, topology = spec["data"], spec["topology"]
    places = [worker_count(topology)] if topology["kind"] == "groups" else tree_shape(topology)[2]
    pool = pool_of_examples(data, sum(places))
    rule = data.get("partition") or {"kind": "iid"}
    if pool is None:
        return None, f"data.source: {data['source']}"
    levels = (rule["edge"], rule["device"]) if rule["kind"] == "two-level" else (rule,)
    floor = 0 if rule.get("empty_devices", "refuse") == "allow" else 1
    draws = _Partition(read.count(spec.get("seed", 0)), floor)
    weights = places if len(levels) == 2 else [1] * sum(places)
    pools = draws.pools(levels[0], pool, np.array(weights), 0, 0)
    if pools is not None and len(levels) == 2:
        edges = enumerate(zip(pools, places, strict=True))
        inner = [draws.pools(levels[1], own, np.ones(n, np.int64), 1, edge) for edge, (own, n) in edges]
        pools = None if None in inner else [one for own in inner for one in own or ()]
    if pools is None:
        return None, f"data.partition of {data['source']}"
    sizes = np.array([count for count, _ in pools], dtype=np.float64)
    zones = topology.get("zones")
    if zones and (sizes != sizes[0]).any():
        order = draws.zones(zones, len(sizes))
        return (None, f"topology.zones: {zones['kind']}") if order is None else (sizes[order], "")
    return sizes, ""


def pool_of_examples(data: Json, devices: int) -> Pool | None:
    """Training examples of a synthetic or built-in set for ``devices`` devices: in all and by label.

    Numbers by label are ``None`` if not known. The result is ``None`` for any other data set, and where the
    spec names a column of groups or sites, or holds rows out within groups.
    """
    source = str(data["source"])
    if any(data.get(key) is not None for key in ("group_column", "site_column", "test_within")):
        return None
    if source == "synthetic":
        total = read.count(data["examples_per_device"]) * devices
        return total, np.array([total // 10 + (label < total % 10) for label in range(10)], dtype=np.float64)
    if source == "femnist":
        return FEMNIST - int(FEMNIST * read.figure(data.get("test_fraction") or 0.1) + 0.5), None
    if source == "emnist-digits":
        return EMNIST_DIGITS, None
    counts = CLASS_COUNTS.get(source)
    return None if counts is None else (sum(counts), np.array(counts, dtype=np.float64))


class _Partition:
    """The draws of a rule of partition: every part gets so many examples, heavier parts more."""

    def __init__(self, seed: int, floor: int) -> None:
        self.seed, self.floor = seed, floor

    def _generator(self, *address: int) -> np.random.Generator:
        """NumPy's generator for the seed and this address, the same as the run used."""
        seed = np.random.SeedSequence(entropy=self.seed, spawn_key=address)
        return np.random.Generator(np.random.Philox(seed))

    def pools(
        self, rule: Json, pool: Pool, weights: npt.NDArray[np.int64], level: int, place: int
    ) -> list[Pool] | None:
        """The pool that each part (an edge or a device) gets of ``pool``, in order.

        ``None`` where counts of labels do not determine it.

        Args:
            rule: the rule of ``data.partition``.
            pool: what is parted.
            weights: number of devices of each part, ``[parts]``.
            level: of the draw, 0 for edges or 1 for devices.
            place: index of the edge whose devices are dealt to; 0 at level 0.
        """
        total, counts = pool
        rng = self._generator(1, level, place, 0)
        floor = self.floor if rule.get("min_examples") is None else read.count(rule["min_examples"])
        sigma = read.figure(rule.get("size_sigma", 0.0))
        if rule["kind"] == "iid":
            if sigma == 0:
                sizes = np.diff(np.cumsum(weights) * total // weights.sum(), prepend=0)
            else:
                floors = min(floor, total // int(weights.sum())) * weights
                shares = np.cumsum(weights * rng.lognormal(0.0, sigma, len(weights)))
                rest = total - int(floors.sum())
                cuts = np.floor(shares / shares[-1] * rest).astype(np.int64)
                cuts[-1] = rest
                sizes = np.diff(cuts, prepend=0) + floors
            return [(int(size), None) for size in sizes]
        if counts is None or rule["kind"] not in ("labels", "dirichlet"):
            return None
        if rule["kind"] == "labels":
            table = self._labels(read.count(rule["labels_per_device"]), counts, weights, rng)
        else:
            shards = weights if rule.get("shards") is None else np.ones(read.count(rule["shards"]), np.int64)
            table = self._dirichlet(read.figure(rule["alpha"]), counts, shards, rng)
            _fill_up_to_floors(table, floor * shards)
            table = table[: len(weights)]
        return [(int(own.sum()), own.astype(np.float64)) for own in table]

    @staticmethod
    def _labels(
        each: int, counts: Array, weights: npt.NDArray[np.int64], rng: np.random.Generator
    ) -> npt.NDArray[np.int64]:
        """Examples by part and label, int64 ``[parts, labels]``, where each part holds ``each`` labels.

        A label is cut among the parts that hold it in proportion to their ``weights``.

        Args:
            each: number of labels in a part.
            counts: of examples by label; labels without any are left out.
            weights: of the parts, ``[parts]``.
            rng: that the labels are dealt by.
        """
        present = rng.permutation(np.flatnonzero(counts))
        table = np.zeros((len(weights), len(counts)), np.int64)
        needed = np.full(len(weights), each, np.int64)
        for left, label in zip(range(len(present), 0, -1), present, strict=True):
            order = rng.permutation(len(weights))
            steps = (np.cumsum(needed[order]) + rng.integers(left)) // left
            holders = order[np.diff(steps, prepend=0) > 0]
            needed[holders] -= 1
            held = weights[holders]
            cuts = np.cumsum(held) * int(counts[label]) // max(int(held.sum()), 1)
            table[holders, label] = np.diff(cuts, prepend=0)
        return table

    @staticmethod
    def _dirichlet(
        alpha: float, counts: Array, weights: npt.NDArray[np.int64], rng: np.random.Generator
    ) -> npt.NDArray[np.int64]:
        """Examples by part and label, ``[parts, labels]``: each label is divided by Dirichlet(``alpha``).

        A part that has its share of all examples, by ``weights``, gets no further label. ``counts``: examples
        of each label; ``weights``: devices of each part.
        """
        table, weight = np.zeros((len(weights), len(counts)), np.int64), int(weights.sum())
        for label in rng.permutation(np.flatnonzero(counts)):
            free = np.flatnonzero(table.sum(axis=1) * weight < weights * int(counts.sum()))
            shares = np.cumsum(rng.dirichlet(alpha * weights[free] * (len(weights) / weight)))
            cuts = np.floor(shares / shares[-1] * counts[label] + 0.5).astype(np.int64)
            table[free, label] = np.diff(cuts, prepend=0)
        return table

    def zones(self, zones: Json, count: int) -> npt.NDArray[np.int64] | None:
        """For each of ``count`` devices, the number of its share of the partition, by ``topology.zones``.

        ``[count]``, int64; ``zones``: that section of the spec. ``None`` where the data decide.
        """
        kind = zones["kind"]
        if kind == "random":
            return self._generator(23, 0).permutation(count)
        if kind == "distance":
            return np.argsort(self._generator(23, 1).random(count))
        if kind == "compute":
            return np.argsort(self._generator(23, 2).standard_normal(count))
        return read.counts([i for members in zones["members"] for i in members]) if kind == "list" else None


def _fill_up_to_floors(table: npt.NDArray[np.int64], floors: npt.NDArray[np.int64]) -> None:
    """Move examples in ``table`` ``[parts, labels]``, in place, until every row sums to its floor at least.

    They are taken from the largest label of the row with most to spare.

    Raises:
        ValueError: there are fewer examples than the floors need.
    """
    spare = table.sum(axis=1) - floors
    if spare.sum() < 0:
        raise ValueError(f"data.partition.min_examples: {floors.sum()} examples are needed")
    for part in np.flatnonzero(spare < 0):
        while spare[part] < 0:
            donor = int(np.argmax(spare))
            label = int(table[donor].argmax())
            moved = min(-int(spare[part]), int(spare[donor]), int(table[donor, label]))
            for row, more in ((donor, -moved), (part, moved)):
                table[row, label] += more
                spare[row] += more
