"""The best of several points of a grid: how a system is tuned before it is compared.

The best has the highest or lowest mean over seeds, and is then compared by the same seeds. By chance the best
of several points looks a little better than it is: a system with more points to choose from has an advantage.
"""

from __future__ import annotations

from collections.abc import Sequence

import pandas as pd

from sfumato.studies.grids import StudyPoint
from sfumato.studies.observations import last_by_seed
from sfumato.studies.study import Best


def best_point(points: Sequence[StudyPoint], rows: pd.DataFrame, best: Best) -> StudyPoint | None:
    """The point with the highest or lowest mean over seeds; ``None`` if none has a value for every seed.

    Of points with equal means it is the first.

    Args:
        points: of a grid.
        rows: of the table, of one measure and series; a NaN (an accuracy that is never reached) rules its
            point out.
        best: ``highest`` or ``lowest``.
    """
    means = []
    for point in points:
        values = last_by_seed(rows[rows["point"] == point.folder_name])
        if len(values) and not values.isna().any():
            means.append((float(values.mean()), point))
    if not means:
        return None
    return (max if best == "highest" else min)(means, key=lambda found: found[0])[1]
