"""A row of metrics as scalars with the names that TensorBoard, W&B and MLflow group by."""

from __future__ import annotations

import math
from collections.abc import Mapping


def scalars_of(row: Mapping[str, float]) -> dict[str, float]:
    """What was measured in the round of ``row``: NaN and the round itself are left out.

    Columns keep their names, except that ``epsilon:OBSERVER`` becomes ``epsilon/OBSERVER``.
    """
    return {
        name.replace(":", "/", 1): float(value)
        for name, value in row.items()
        if name != "round" and not math.isnan(value)
    }
