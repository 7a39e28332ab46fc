"""Partitioners of flwr-datasets (extra ``hub``), by class name."""

from __future__ import annotations

import inspect
from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from sfumato.errors import MissingExtraError, SpecError
from sfumato.random import Stream, sequence


def flower_partition(
    name: str,
    labels: NDArray[np.integer[Any]],
    groups: NDArray[np.int64] | None,
    devices: int,
    options: Mapping[str, Any],
    *,
    seed: int,
    place: str,
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Divide rows over devices by a partitioner of Flower (``flwr_datasets.partitioner``).

    Args:
        name: of a class in ``flwr_datasets.partitioner``.
        labels: of the training rows [N]; the partitioner sees them as column ``label``.
        groups: natural group of each row [N], seen as column ``group``.
        devices: how many parts it must make.
        options: arguments of the class; ``num_partitions``, ``seed`` and ``partition_by: label`` are supplied
            where it takes them and the options do not.
        seed: of the run.
        place: key of the spec that holds the rule, for messages.

    Returns:
        Row numbers, device after device, and how many rows each device has [devices].

    Raises:
        MissingExtraError: flwr-datasets is not installed.
        SpecError: there is no such partitioner, it refuses its arguments, or it makes another number of
            parts.
    """
    try:
        import datasets
        from flwr_datasets import partitioner as flower
    except ImportError as error:
        raise MissingExtraError(f"{place}.kind: flwr:{name}", "hub") from error
    known = [entry for entry in flower.__all__ if not entry.startswith("Vertical") and entry != "Partitioner"]
    if name not in known:
        raise SpecError(f"{place}.kind", f"flwr:{name}", f"flwr: and one of {', '.join(known)}")
    maker = getattr(flower, name)
    supplied = {
        "num_partitions": devices,
        "partition_by": "label",
        "seed": int(sequence(seed, Stream.PARTITION).generate_state(1)[0]),
    }
    taken = inspect.signature(maker).parameters
    arguments = {key: value for key, value in supplied.items() if key in taken} | dict(options)
    columns = {"label": labels, "row": np.arange(len(labels))} | ({} if groups is None else {"group": groups})
    try:
        dealer = maker(**arguments)
        dealer.dataset = datasets.Dataset.from_dict(columns)
        made = dealer.num_partitions
        parts = [np.asarray(dealer.load_partition(n)["row"], np.int64) for n in range(min(made, devices))]
    except (TypeError, ValueError, KeyError) as error:
        raise SpecError(f"{place}.options", dict(options), f"what {name} accepts: {error}") from error
    if made != devices:
        raise SpecError(
            f"{place}.kind", f"flwr:{name}", f"a partitioner that makes {devices:,} parts; this made {made:,}"
        )
    return np.concatenate(parts), np.array([len(part) for part in parts])
