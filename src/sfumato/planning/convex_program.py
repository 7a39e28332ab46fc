"""The convex programme of a plan: minimise ``w'x`` subject to ``sum_r s_r^2 / (a_r'x + c_r) <= limit``.

There is one constraint a pair. Each term is a number over an affine function: a second-order cone (cvxpy's
``inv_pos``), solved by Clarabel.
"""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from sfumato.errors import MissingExtraError, RunError

FloatArray = npt.NDArray[np.float64]
_PRECISE = {"tol_gap_abs": 1e-12, "tol_gap_rel": 1e-12, "tol_feas": 1e-11}


@dataclass(frozen=True, eq=False)
class Constraint:
    """``sum_r squared_r / (slopes x + fixed)_r <= limit``; shapes as in `noise_response.ReleaseResponse`."""

    squared_sensitivities: FloatArray
    variance_per_intensity: FloatArray
    fixed_variance: FloatArray
    limit: float

    def share_of_limit(self, intensities: FloatArray) -> float:
        """The constraint's left side over its limit, at ``intensities`` ``[sources]``.

        At most 1 where the constraint holds; ∞ if a release has no noise.
        """
        variances = self.variance_per_intensity @ intensities + self.fixed_variance
        with np.errstate(divide="ignore"):
            return float((self.squared_sensitivities / variances).sum()) / self.limit


@dataclass(frozen=True, eq=False)
class Optimum:
    """A solution.

    Attributes:
        intensities: ``x``, one for each source.
        value: of the objective, ``weights x``.
        elasticities: for each constraint, the relative decrease of ``value`` over the relative increase of
            ``limit``.
    """

    intensities: FloatArray
    value: float
    elasticities: FloatArray


def solver() -> Any:
    """The module cvxpy, once it is checked that its solver Clarabel is installed.

    Raises:
        MissingExtraError: one of the two is not installed.
    """
    try:
        import clarabel  # noqa: F401 - cvxpy would fall back on solvers of less precision
        import cvxpy
    except ImportError as error:
        raise MissingExtraError("planning", "plan") from error
    return cvxpy


def minimise_variance(weights: FloatArray, constraints: Sequence[Constraint]) -> Optimum:
    """The intensities of least weighted sum that satisfy all constraints.

    Variables, rows and the objective are scaled to be near 1: the unit is the intensity that, equal for all
    sources, satisfies all constraints.

    Args:
        weights: of each source in the objective ``[sources]``, positive: variance per unit of intensity.
        constraints: at least one.

    Raises:
        MissingExtraError: cvxpy or Clarabel is not installed.
        RunError: the solver finds no solution.
    """
    cp = solver()
    scale = max(constraint.share_of_limit(np.ones(len(weights))) for constraint in constraints)
    matrix, slopes, fixed = _scaled_rows(constraints, scale)
    x = cp.Variable(len(weights), nonneg=True)
    kept = matrix @ cp.inv_pos(slopes @ x + fixed) <= 1
    problem = cp.Problem(cp.Minimize((weights / weights.sum()) @ x), [kept])
    _solve(problem, x)
    found = np.maximum(x.value, 0.0)
    relative = float(weights @ found) / float(weights.sum())
    elasticities = np.maximum(np.atleast_1d(kept.dual_value), 0.0) / relative
    return Optimum(found * scale, relative * scale * float(weights.sum()), elasticities)


def _scaled_rows(
    constraints: Sequence[Constraint], scale: float
) -> tuple[FloatArray, FloatArray, FloatArray]:
    """The constraints as ``matrix @ (1 / (slopes @ x + fixed)) <= 1``, with ``x`` in units of ``scale``.

    ``matrix`` is ``[constraints, rows]``, ``slopes`` ``[rows, sources]`` and ``fixed`` ``[rows]``. Equal rows
    of the last two occur once, whichever constraints they belong to.
    """
    rows: dict[bytes, int] = {}
    slopes: list[FloatArray] = []
    fixed: list[float] = []
    entries: list[dict[int, float]] = []
    for constraint in constraints:
        entry: dict[int, float] = {}
        for square, slope, constant in zip(
            constraint.squared_sensitivities,
            constraint.variance_per_intensity,
            constraint.fixed_variance / scale,
            strict=True,
        ):
            size = float(slope.sum() + constant)
            row = np.append(slope, constant) / size
            number = rows.setdefault(row.round(12).tobytes(), len(rows))
            if number == len(slopes):
                slopes.append(row[:-1])
                fixed.append(float(row[-1]))
            entry[number] = entry.get(number, 0.0) + float(square) / (size * scale * constraint.limit)
        entries.append(entry)
    matrix = np.zeros((len(entries), len(rows)))
    for number, entry in enumerate(entries):
        matrix[number, list(entry)] = list(entry.values())
    return matrix, np.array(slopes), np.array(fixed)


def _solve(problem: Any, x: Any) -> None:
    """Solve ``problem`` with tight tolerances, or else default ones, so that its variable ``x`` has a value.

    Raises:
        RunError: the solver finds no solution.
    """
    cp = solver()
    for settings in (_PRECISE, {}):
        try:
            with warnings.catch_warnings():
                # the certification afterwards corrects a solution that is inaccurate
                warnings.filterwarnings("ignore", "Solution may be inaccurate", UserWarning)
                problem.solve(solver=cp.CLARABEL, **settings)
        except cp.SolverError:
            continue
        if x.value is not None:
            return
    raise RunError(f"the solver found no solution of the convex programme: {problem.status}")
