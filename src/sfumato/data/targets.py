"""What a model learns to predict where it is no class: numbers, sets of labels, the next token."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from sfumato.data.columns import Columns
from sfumato.errors import DataError


def targets_of(columns: Columns, values: NDArray[Any], name: str) -> NDArray[np.float32]:
    """Targets ``[N, K]`` of a regression or of label sets.

    Args:
        columns: says which task it is.
        values: as stored, ``[N]`` or ``[N, K]``.
        name: of the source, for messages.

    Raises:
        DataError: a value is no finite number, or of a label set neither 0 nor 1.
    """
    if values.dtype.kind not in "iufb" or values.ndim not in (1, 2):
        what = f"{values.dtype} of shape {values.shape}"
        raise DataError(f"{name}: labels of task {columns.task} must be numbers [N] or [N, K], not {what}")
    with np.errstate(over="ignore"):
        found = np.asarray(values, np.float32).reshape(len(values), -1)
    bad = np.flatnonzero(~np.isfinite(found).all(axis=1))
    if len(bad):
        raise DataError(
            f"{name}: row {bad[0] + 1:,}: every label must be a finite number with task regression"
        )
    if columns.task == "multi-label":
        bad = np.flatnonzero(~np.isin(found, (0.0, 1.0)).all(axis=1))
        if len(bad):
            got = found[bad[0]].tolist()
            raise DataError(
                f"{name}: row {bad[0] + 1:,}: got {got}; labels of task multi-label must be 0 or 1"
            )
    return found


def token_ids(
    features: NDArray[np.float32] | NDArray[np.int64], vocabulary: int, name: str
) -> NDArray[np.int64]:
    """Features as token ids ``[N, T]``.

    Raises:
        DataError: examples are no sequences, or a value is no whole number below ``vocabulary``.
    """
    if features.ndim != 2:
        raise DataError(f"{name}: token ids must have the shape [N, T], not {features.shape}")
    found = features.astype(np.int64)
    bad = (found != features) | (found < 0) | (found >= vocabulary)
    if bad.any():
        row, place = np.argwhere(bad)[0].tolist()
        raise DataError(
            f"{name}: row {row + 1:,}, place {place + 1:,}: got {features[row, place]:g}; with "
            f"data.vocabulary every feature must be a token id, a whole number from 0 to {vocabulary - 1:,}"
        )
    return found
