"""Where on a front more of the score begins to cost much more."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TypeAlias

from sfumato.report.formatting import points_between
from sfumato.report.pareto.axis import SCORES, title_with_value
from sfumato.report.pareto.points import ParetoPage, SweptPoint, describe_objective, shown_value
from sfumato.run_folder.headline import ACCURACY

_Front: TypeAlias = list[tuple[SweptPoint, float, float]]
_FEWEST = 3  # points of a front that has a knee
_FLAT = 0.05  # of the front's height: nearer to the chord there is no knee


def knee_sentences(swept: ParetoPage, planes: Sequence[tuple[str, str]]) -> list[str]:
    """For each plane whose front bends, a sentence on the point farthest above the chord between its ends.

    ``planes``: pairs of objectives, (across, up). Costs are on a logarithmic scale, so that a factor of ε or
    of energy counts the same everywhere. Planes that bend at one point share the first sentence.
    """
    said: list[str] = []
    at: list[SweptPoint] = []
    for across, up in planes:
        front = _front_of_plane(swept.points, across, up)
        place = _place_of_knee(front)
        if place is None:
            continue
        point = front[place][0]
        if not any(point is other for other in at):  # of another cost the scores would be the same
            said.append(_knee_sentence(across, up, front, place, several=len(swept.keys) > 1))
        at.append(point)
    return said


def _place_of_knee(front: _Front) -> int | None:
    """Index in the front of the point farthest above the chord between its ends.

    ``None`` for fronts of fewer than `_FEWEST` points, and nearly straight ones.
    """
    if len(front) < _FEWEST:
        return None
    (_, low, least), (_, high, most) = front[0], front[-1]
    rise, width = most - least, math.log(high / low)
    above = [(score - least) / rise - math.log(cost / low) / width for _, cost, score in front]
    place = max(range(len(front)), key=above.__getitem__)
    return place if above[place] >= _FLAT else None


def _knee_sentence(across: str, up: str, front: _Front, place: int, *, several: bool) -> str:
    """A sentence on the score ``up`` at the ends of the front and at its bend, over the cost ``across``.

    ``several``: several keys are swept, so that points of one cost may have several scores.
    """
    score, (last, _, most) = SCORES[up], front[-1]
    less = [
        f"at {describe_objective(one, across)}, {describe_objective(one, up)}"
        f"{f' ({points_between(most, value):.1f} points less)' if score is ACCURACY else ''}"
        for one, _, value in (front[place], front[0])
    ]
    first = f"At {title_with_value(across, describe_objective(last, across))} {score.name} is"
    best = " at best" if several else ""
    return f"{first}{best} {describe_objective(last, up)}; {'; '.join(less)}."


def _front_of_plane(points: Sequence[SweptPoint], across: str, up: str) -> _Front:
    """The (point, cost, score) on a plane's front with finite, positive costs, by rising cost and score.

    Of points whose costs are written alike, the best: one cost has one score in the sentences.
    """
    better = 1.0 if SCORES[up].higher_is_better else -1.0
    known = [(point, point.objectives[across].value, point.objectives[up].value) for point in points
             if across in point.objectives and up in point.objectives]  # fmt: skip
    finite = [entry for entry in known if 0 < entry[1] < math.inf and math.isfinite(entry[2])]
    front: _Front = []
    for entry in sorted(finite, key=lambda entry: (entry[1], -better * entry[2])):
        if front and better * entry[2] <= better * front[-1][2]:
            continue
        if front and shown_value(entry[0], across) == shown_value(front[-1][0], across):
            front.pop()
        front.append(entry)
    return front
