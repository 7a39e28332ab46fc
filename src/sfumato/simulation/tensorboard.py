"""A run's metrics as TensorBoard scalars (extra ``tensorboard``)."""

from __future__ import annotations

from pathlib import Path

import pandas as pd

from sfumato.errors import MissingExtraError
from sfumato.simulation.tracking import scalars_of


def write_scalars(metrics: pd.DataFrame, folder: Path) -> Path:
    """Write every column of ``metrics`` as a TensorBoard scalar over rounds; returns ``folder``.

    The names are those of `scalars_of`. Rounds already in ``folder`` are replaced.

    Raises:
        MissingExtraError: the ``tensorboard`` package is not installed.
    """
    try:
        from torch.utils.tensorboard import SummaryWriter
    except ImportError:
        raise MissingExtraError("tensorboard", "tensorboard") from None
    rows = [{str(name): float(value) for name, value in row.items()} for row in metrics.to_dict("records")]
    first = min((int(row["round"]) for row in rows), default=0)
    with SummaryWriter(str(folder), purge_step=first) as writer:
        for row in rows:
            for name, value in scalars_of(row).items():
                writer.add_scalar(name, value, int(row["round"]))
    return folder
