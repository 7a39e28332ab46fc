"""The points of a sweep, their objectives, and the Pareto front among them."""

from __future__ import annotations

import itertools
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from sfumato.report import formatting as text
from sfumato.report.pareto.axis import ACCURACY, SCORES, UNITS
from sfumato.report.results.series import Mean
from sfumato.run_folder.metrics_table import EPSILON_PREFIX

_MOST_WITHOUT_ACCURACY = 6


@dataclass(frozen=True)
class SweptPoint:
    """One point of a sweep.

    Attributes:
        labels: its values, one for each swept key.
        seeds: number of finished seeds.
        objectives: means over seeds, by name: a score (``accuracy``, a share; or another of `SCORES`),
            ``epsilon:OBSERVER``, ``energy_j``, ``delay_s``; NaN where nothing was measured.
        raw_to_trusted_edge: how many devices send raw updates to a trusted edge, such as ``100 of 100``.
        reports: paths of the reports of its runs relative to the page, by seed.
    """

    labels: tuple[str, ...]
    seeds: int
    objectives: Mapping[str, Mean]
    raw_to_trusted_edge: str = "–"
    reports: Mapping[int, str] = field(default_factory=dict)

    @property
    def known_raw(self) -> str:
        """``raw_to_trusted_edge``; "" where it is not known, or there are no edges."""
        return "" if self.raw_to_trusted_edge == "–" else self.raw_to_trusted_edge


@dataclass(frozen=True)
class ParetoPage:
    """The content of the page of a sweep.

    Attributes:
        title: the spec's name.
        facts: properties that all points share, as text.
        keys: short names of the swept keys.
        points: points with results, in the grid's order.
        failures: points without results, and the errors.
        notices: sentences on figures that cannot be compared.
        guess: the accuracy of guessing, 0 to 1; NaN where it is not known or differs.
        silent: the score of a run without noise that is otherwise like all points; NaN without such a run.
        silent_name: of that run, with its number of seeds.
        silent_command: shell command, for the folder that holds the sweep, that trains such a run; "" where
            points differ in more than noise.
        tested: number of test examples of every point; 0 where that is not known or differs.
        unit: whose ε the points have (``device``, ``record`` or ``person``); "" where that is not known or
            differs.
    """

    title: str
    facts: Sequence[str]
    keys: tuple[str, ...]
    points: tuple[SweptPoint, ...]
    failures: tuple[tuple[str, str], ...]
    notices: Sequence[str] = ()
    guess: float = math.nan
    silent: float = math.nan
    silent_name: str = ""
    silent_command: str = ""
    tested: int = 0
    unit: str = ""

    @property
    def measured(self) -> tuple[str, ...]:
        """A tuple of the names of the objectives of which at least one point has a value.

        Scores come first, energy and delay last.
        """
        names = dict.fromkeys(name for point in self.points for name in point.objectives)
        order = sorted(names, key=lambda name: (name not in SCORES, name in UNITS))
        return tuple(n for n in order if any(not math.isnan(value_of(point, n)) for point in self.points))

    def describe_point(self, point: SweptPoint) -> str:
        """A point as text: ``key = value`` of every swept key."""
        return ", ".join(f"{key} = {label}" for key, label in zip(self.keys, point.labels, strict=True))


def note_on_trust(points: Sequence[SweptPoint], name: str) -> str:
    """A phrase on devices towards whose trusted own edge ε is ∞, which the objective leaves out; else "".

    Args:
        points: whose devices are counted.
        name: the objective; only of ``epsilon:edge`` and ``epsilon:own-edge`` is anything left out.
    """
    if name.removeprefix(EPSILON_PREFIX) not in ("edge", "own-edge"):
        return ""
    known = dict.fromkeys(point.known_raw for point in points if point.known_raw)
    some = [raw for raw in known if not raw.startswith("0 of ")]
    raw = text.join_names(some).replace(" and ", " or ")
    trusting = sum(point.known_raw in some for point in points)
    where = "" if trusting == len(points) else f", at {trusting} of {len(points)} points"
    return f"∞ for {raw} devices towards their own edge, which they trust{where}" if some else ""


def mixes_observers(swept: ParetoPage, name: str) -> bool:
    """Whether the objective is ε towards edges of points that differ in whom devices trust.

    A trusted own edge is left out, so that the value of one point is towards the own edge and that of another
    towards another edge: no score may be set against it.
    """
    trusts = {point.known_raw for point in swept.points}
    return name.removeprefix(EPSILON_PREFIX) in ("edge", "own-edge") and len(trusts) > 1


def pareto_front(points: Sequence[SweptPoint], objectives: Sequence[str]) -> tuple[bool, ...]:
    """Whether each point is on the Pareto front: no other is as good in every objective and better in one.

    A point without a value of one of the objectives is not on the front. With several seeds, means are
    compared. One truth value a point, in their order; ``objectives``: names, compared as `cost_of` gives
    them.
    """
    costs = np.array([[cost_of(point, name) for name in objectives] for point in points])
    costs = costs.reshape(len(points), len(objectives))
    no_worse = (costs[:, None, :] <= costs[None, :, :]).all(axis=2)
    beats = no_worse & (costs[:, None, :] < costs[None, :, :]).any(axis=2)
    return tuple((~beats.any(axis=0) & ~np.isnan(costs).any(axis=1)).tolist())


def cost_of(point: SweptPoint, name: str) -> float:
    """The value of the objective ``name``, to be minimised: scores of which more is better change their sign.

    Rounded to six significant digits: smaller differences are within the tolerance of calibration. NaN where
    it was not measured.
    """
    value = value_of(point, name)
    return float(f"{-value if is_higher_better(name) else value:.6g}")


def is_higher_better(name: str) -> bool:
    """Whether the objective ``name`` is a score of which more is better; False for ε and costs."""
    return name in SCORES and SCORES[name].higher_is_better


def value_of(point: SweptPoint, name: str) -> float:
    """The mean over seeds of the objective ``name`` of a point; NaN where it was not measured."""
    return point.objectives[name].value if name in point.objectives else math.nan


def planes(swept: ParetoPage) -> list[tuple[str, str]]:
    """Pairs of objectives to draw, (across, up): the score against the rest; without a score, all pairs.

    Objectives that are the same at all points are left out: there is nothing to trade for them. So is ε
    towards edges where it is towards other edges at one point than at another (`mixes_observers`).
    """
    names = [name for name in varied_objectives(swept) if not mixes_observers(swept, name)]
    score = next((name for name in names if name in SCORES), None)
    if score is not None:
        return [(name, score) for name in names if name != score]
    return list(itertools.combinations(names, 2))[:_MOST_WITHOUT_ACCURACY]


def varied_objectives(swept: ParetoPage) -> list[str]:
    """A list of names: scores, and the objectives that differ between points and repeat no other's values.

    All that are measured if there is only one point.
    """
    return [
        name
        for name in swept.measured
        if name in SCORES
        or len(swept.points) == 1
        or (len({value_of(point, name) for point in swept.points}) > 1 and repeated_by(swept, name) is None)
    ]


def repeated_by(swept: ParetoPage, name: str) -> str | None:
    """The earlier objective that has the values of ``name`` at every point; ``None`` where none has."""
    before = swept.measured[: swept.measured.index(name)]
    same = (
        other for other in before if all(_have_equal_values(point, name, other) for point in swept.points)
    )
    return next(same, None) if len(swept.points) > 1 else None


def _have_equal_values(point: SweptPoint, one: str, other: str) -> bool:
    """Whether two objectives of a point are equal, to six digits, or both missing."""
    values = value_of(point, one), value_of(point, other)
    return all(map(math.isnan, values)) or f"{values[0]:.6g}" == f"{values[1]:.6g}"


def describe_objective(point: SweptPoint, name: str) -> str:
    """The objective ``name`` of a point as text with its unit, and ± half of its 95 % interval over seeds.

    The latter only where it is known; of an accuracy it is in points.
    """
    half_width = point.objectives[name].half_width if name in point.objectives else math.nan
    if math.isnan(half_width):
        return shown_value(point, name)
    spread = f"{100 * half_width:.1f} points" if name == ACCURACY else _objective_as_text(half_width, name)
    return f"{shown_value(point, name)} ± {spread}"


def shown_value(point: SweptPoint, name: str) -> str:
    """The objective ``name`` of a point as text with its unit, rounded as readers see it.

    "–" of energy and delay that were not measured.
    """
    return _objective_as_text(value_of(point, name), name)


def _objective_as_text(value: float, name: str) -> str:
    """A value of an objective as text, with its unit."""
    if name in SCORES:
        return SCORES[name].text(value)
    return text.epsilon(value) if name.startswith(EPSILON_PREFIX) else text.quantity(value, UNITS[name])
