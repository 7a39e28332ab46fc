"""The rule by which training rows are divided over devices, as ``data.partition`` spells it out."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from sfumato.data.flwr_partitioners import FLOWER_PREFIX
from sfumato.errors import SpecError

# Beyond it the sums inside NumPy's sampler overflow, and the proportions are equal long before.
_LARGEST_ALPHA = 1e9


@dataclass(frozen=True)
class PartitionRule:
    """How to divide examples over parts; the fields are the keys of ``data.partition``.

    Attributes:
        kind: ``"iid"``, ``"labels"``, ``"dirichlet"``, ``"natural"``, ``"two-level"`` or
            ``"flwr:NAME"``, a partitioner of flwr-datasets.
        labels_per_device: labels each device holds (labels).
        alpha: concentration of the Dirichlet distribution (dirichlet).
        min_examples: dirichlet: no device gets fewer (default 1, or 0 with empty devices allowed);
            natural: groups with fewer are left out. Of an edge it asks as much for each of its devices.
        groups_per_device: natural: groups each device holds, the rest stay unused; ``None`` divides
            all groups.
        size_sigma: iid: sizes spread as a lognormal of this sigma; 0 makes them equal.
        empty_devices: ``"refuse"`` or ``"allow"`` devices without examples; in two-level rules the
            outer one decides.
        edge: two-level: how to divide over edges, each weighed by its devices.
        device: two-level: how to divide an edge's examples over its devices.
        options: ``flwr:NAME``: arguments of the partitioner; number of devices, seed and the
            column of labels are supplied.
        place: where the rule stands in the spec, for messages.

    Raises:
        SpecError: a field is missing, out of range, or not for this kind.
    """

    kind: str = "iid"
    labels_per_device: int | None = None
    alpha: float | None = None
    min_examples: int | None = None
    groups_per_device: int | None = None
    size_sigma: float = 0.0
    empty_devices: str = "refuse"
    edge: PartitionRule | None = None
    device: PartitionRule | None = None
    options: Mapping[str, Any] = field(default_factory=dict)
    place: str = "data.partition"

    def __post_init__(self) -> None:
        kind = "flwr" if self.kind.startswith(FLOWER_PREFIX) else self.kind
        if kind not in _FIELDS:
            allowed = ", ".join([*(name for name in _FIELDS if name != "flwr"), "flwr:NAME"])
            raise SpecError(f"{self.place}.kind", self.kind, f"one of {allowed}")
        for name in ("labels_per_device", "alpha", "edge", "device"):
            if name in _FIELDS[kind] and getattr(self, name) is None:
                raise SpecError(f"{self.place}.{name}", None, f"needed for kind: {self.kind}")
        for name in _OPTIONAL:
            given = getattr(self, name)
            is_set = given not in (None, {}) and not (name == "size_sigma" and given == 0)
            if is_set and name not in _FIELDS[kind]:
                raise SpecError(f"{self.place}.{name}", given, f"nothing: not for kind: {self.kind}")
        self._refuse_under("labels_per_device", 1)
        self._refuse_under("groups_per_device", 1)
        self._refuse_under("min_examples", 0)
        self._refuse_under("size_sigma", 0)
        if self.alpha is not None and not 0 < self.alpha <= _LARGEST_ALPHA:
            raise SpecError(f"{self.place}.alpha", self.alpha, "a positive number up to 1e9")
        if self.empty_devices not in ("refuse", "allow"):
            raise SpecError(f"{self.place}.empty_devices", self.empty_devices, "refuse or allow")
        for name in ("edge", "device"):
            inner = getattr(self, name)
            if inner is not None and inner.kind not in _INNER:
                raise SpecError(f"{self.place}.{name}.kind", inner.kind, f"one of {', '.join(_INNER)}")

    def _refuse_under(self, name: str, least: int) -> None:
        value = getattr(self, name)
        if value is not None and not value >= least:
            raise SpecError(f"{self.place}.{name}", value, f"at least {least}")


_FIELDS: Mapping[str, frozenset[str]] = {
    "iid": frozenset({"size_sigma"}),
    "labels": frozenset({"labels_per_device"}),
    "dirichlet": frozenset({"alpha", "min_examples"}),
    "natural": frozenset({"min_examples", "groups_per_device"}),
    "two-level": frozenset({"edge", "device"}),
    "flwr": frozenset({"options"}),
}
_OPTIONAL = sorted(frozenset().union(*_FIELDS.values()))
_INNER = ("iid", "labels", "dirichlet", "natural")
