"""How many records, or persons, every party holds, where these are the unit.

These numbers are public: under the relations of records and persons, zero-out and replace, no guarantee hides
them (`statement.words.RELATIONS`). Where a device may be removed they are not told.
They follow from the probabilities of `ledger.json`: a party with n records draws each into a local step with
probability min(1, B/n), for batches of B records in expectation.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from sfumato.network.tree import Tree
from sfumato.report.formatting import how_many, whole
from sfumato.report.results.network import Network
from sfumato.run_folder.reader import RunFolder


class HeldCounts(NamedTuple):
    """Counts of what devices hold.

    Attributes:
        unit: record or person.
        counts: of every device; () where they are not known.
    """

    unit: str = "record"
    counts: tuple[int, ...] = ()

    def in_words(self, place: str) -> str:
        """A sentence with the number in all and at each ``place`` (device or site); "" where not known."""
        if not self.counts:
            return ""
        return f"They train on {how_many(sum(self.counts), self.unit)}, {self.each} at each {place}."

    @property
    def each(self) -> str:
        """How many each device has, such as "287 or 288"; "" where not known."""
        if not self.counts:
            return ""
        least, most = min(self.counts), max(self.counts)
        between = "or" if most == least + 1 else "to"
        return whole(least) if least == most else f"{whole(least)} {between} {whole(most)}"

    def by_site(self, network: Network) -> dict[str, int]:
        """The number at each named site: a device, or a leaf of the tree with devices that stay under it.

        By name; {} where the counts or the network are not known, or nothing has a name.
        """
        shape = network.shape
        if isinstance(shape, str):
            return {}
        if isinstance(shape, Tree) and not shape.device_names:
            ends = [] if network.trees else shape.devices.cumsum().tolist()
            starts = [0, *ends[:-1]]
            sums = [sum(self.counts[start:end]) for start, end in zip(starts, ends, strict=False)]
            return dict(zip(shape.site_names, sums, strict=False)) if self.counts else {}
        named = shape if isinstance(shape, Tree) else shape.groups
        return dict(zip(named.device_names, self.counts, strict=False))


NOT_KNOWN = HeldCounts()


def held_by(rates: Sequence[float] | None, batch_size: object, unit: str) -> HeldCounts:
    """How many records or persons each device holds, from the probability with which it draws each.

    Args:
        rates: of every device, for one local step; ``None`` where records are not drawn one by one.
        batch_size: expected number of records in a local step, the same on every device.
        unit: ``privacy.unit``.

    Returns:
        Without counts where devices are the unit, or a rate is 1: such a device has at most ``batch_size``
        records, and more is not known. A device with rate 0 holds none.
    """
    kind = "person" if unit == "person" else "record"
    if unit not in ("record", "person") or rates is None or not isinstance(batch_size, int):
        return HeldCounts(kind)
    if any(rate >= 1 for rate in rates):
        return HeldCounts(kind)
    return HeldCounts(kind, tuple(round(batch_size / rate) if rate > 0 else 0 for rate in rates))


def held_in_run(run: RunFolder, unit: str) -> HeldCounts:
    """How many records or persons each device of a run holds, from the probabilities in its ledger.

    ``unit`` and when counts are not known: as of `held_by`.
    """
    rates = (run.ledger.get("batches") or {}).get("rate_per_device")
    return held_by(rates, run.spec_dict["training"].get("batch_size"), unit)
