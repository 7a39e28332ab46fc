"""A run's metrics as TensorBoard scalars (extra ``tensorboard``)."""

from __future__ import annotations

import math
from pathlib import Path

import pandas as pd

from sfumato.errors import MissingExtraError


def write_scalars(metrics: pd.DataFrame, folder: Path) -> Path:
    """Writes every column of ``metrics`` as a scalar over rounds; returns ``folder``.

    Columns keep their names, except that ``epsilon:OBSERVER`` becomes ``epsilon/OBSERVER``, so that
    TensorBoard groups them. NaN (not measured in that round) is left out. Rounds already in ``folder`` are
    replaced.

    Raises:
        MissingExtraError: the ``tensorboard`` package is not installed.
    """
    try:
        from torch.utils.tensorboard import SummaryWriter
    except ImportError:
        raise MissingExtraError("tensorboard", "tensorboard") from None
    steps = [int(step) for step in metrics["round"]]
    with SummaryWriter(str(folder), purge_step=min(steps, default=0)) as writer:
        for name in (str(column) for column in metrics.columns if column != "round"):
            tag = name.replace(":", "/", 1)
            for step, value in zip(steps, metrics[name].astype(float), strict=True):
                if not math.isnan(value):
                    writer.add_scalar(tag, value, step)
    return folder
