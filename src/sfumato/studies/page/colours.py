"""The colours of settings on a page: one for each setting, and different ones within a panel."""

from __future__ import annotations

import itertools
from collections import Counter

from sfumato.report.figures.figure import PALETTE
from sfumato.studies.grids import StudyPlan, points_of, setting_text


def colour_numbers(plan: StudyPlan, axis: str) -> dict[str, int]:
    """The number of the colour of every setting, as text, of the axes called ``axis`` that panels draw.

    A setting has one number in all panels of lines or bars; two settings of one panel have different ones.
    A number that few settings have is taken first, and one beyond the palette where it has none left.
    """
    panels = []
    for panel in plan.study.panels:
        name = plan.study.grid_name(panel.grid)
        if panel.lines == axis:
            points = [point for point in points_of(plan.axes(name)) if point.matches(panel.where)]
            panels.append(list(dict.fromkeys(setting_text(point.settings[axis]) for point in points)))
    found: dict[str, int] = {}
    for setting in itertools.chain.from_iterable(panels):
        if setting not in found:
            beside = itertools.chain.from_iterable(panel for panel in panels if setting in panel)
            taken = {found[other] for other in beside if other in found}
            free = [number for number in range(len(PALETTE)) if number not in taken]
            beyond = next(number for number in itertools.count(len(PALETTE)) if number not in taken)
            used = Counter(found.values())
            found[setting] = min(free or [beyond], key=lambda number: (used[number], number))
    return found
