"""The fewest messages in a sum under secure aggregation, in words; as many parties can undo the masks."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from sfumato.network.tree import Tree
from sfumato.report.formatting import join_names
from sfumato.report.results.network import Network
from sfumato.report.results.spec_sections import stated_participation
from sfumato.schedule.participation import threshold_of
from sfumato.spec.faults import Faults

_MOST_SIZES = 3
BY_DEFAULT = "more than 2/3"
"""The share of a session that has a threshold of shares where the spec sets none."""


def least_of_sums(spec: Mapping[str, Any], network: Network) -> str:
    """The fewest messages of devices in a sum, and of how many: ``5 of 6``, or ``3 of 4 or 5 of 6``.

    It is the threshold of `sfumato.schedule.participation.threshold_of`. Where sums have a random size, or
    many sizes, it is the share: ``more than 2/3``. "" where devices do not use secure aggregation.

    Args:
        spec: resolved.
        network: that it describes.
    """
    if not any(hop.startswith("devices_to_") for hop in network.secure):
        return ""
    faults, sizes = _faults(spec), _sizes(spec, network)
    if not sizes or len(sizes) > _MOST_SIZES:
        share = faults.survival_threshold
        return BY_DEFAULT if share is None else f"a share of {share:g}"
    return " or ".join(f"{threshold_of(faults, size)} of {size}" for size in sizes)


def drops_in_words(spec: Mapping[str, Any], network: Network) -> str:
    """A sentence on devices that drop out, and whose noise is counted then; "" where none does.

    ``spec``: resolved; ``network``: that it describes.
    """
    rates = [f"{rate:g}" for rate in _faults(spec).drop_rates if rate]
    if not rates:
        return ""
    often = f"with probability {rates[0]}" if len(rates) == 1 else "with a probability for each phase"
    said = f"In every aggregation a device drops out {often}"
    least = least_of_sums(spec, network)
    if not least:
        return f"{said}: of the noise of others in a sum, that of those who may be missing is not counted."
    return f"{said}. A sum needs at least {least} of its devices; the noise of only so many is counted."


def _faults(spec: Mapping[str, Any]) -> Faults:
    """The section ``faults`` of a resolved spec; its defaults where there is none."""
    return Faults.model_validate(spec.get("faults") or {})


def _sizes(spec: Mapping[str, Any], network: Network) -> list[int]:
    """The sizes of sessions of devices, ascending; [] where they are random or not known."""
    part = stated_participation(spec["training"])
    if part["kind"] == "fixed":
        count = part["count"]
        return sorted(set(count)) if isinstance(count, list) else [count]
    if part["kind"] == "all" and isinstance(network.shape, Tree):
        trees = [tree for _, tree in network.trees] or [network.shape]
        return sorted({int(size) for tree in trees for size in tree.devices})
    return []


def hops_in_words(network: Network) -> str:
    """The hops under secure aggregation, such as "from devices to edge"; "" without any."""
    return join_names([f"from {hop.replace('_to_', ' to ')}" for hop in sorted(network.secure)])
