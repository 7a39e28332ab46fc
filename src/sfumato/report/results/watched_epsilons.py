"""ε towards watched observers: the lines on a terminal, and the budget that adaptive control was given."""

from __future__ import annotations

import math
from typing import NamedTuple

from sfumato.privacy.guarantee import Guarantee
from sfumato.report.formatting import at_delta, epsilon
from sfumato.report.results.series import Series
from sfumato.report.results.spec_sections import clip_kind_of
from sfumato.report.results.summary import kind_within_devices, of_main_unit
from sfumato.run_folder.metrics_table import EPSILON_PREFIX


class SpentBudget(NamedTuple):
    """The budget of ε towards a watched observer in adaptive control.

    Attributes:
        given: before the run; the guarantee.
        spent: by the rounds played.
    """

    given: float
    spent: float


def budgets(series: Series) -> dict[str, SpentBudget]:
    """The `SpentBudget` towards each watched observer, by its name; {} without adaptive control.

    What was spent is that of the seed that spent the most. Observers towards whom no row counts are left out;
    the budget is the largest ε of the rows that may be about them.
    """
    first = series.first
    if not first.spec_dict.get("control"):
        return {}
    found = {}
    for observer in series.observers:
        spent = float(series.worst(EPSILON_PREFIX + observer)[1][-1])
        rows = [row for row in of_main_unit(first.privacy.guarantees) if _is_about(row, observer)]
        if given := [row.epsilon for row in rows if spent == math.inf or not row.is_raw]:
            found[observer] = SpentBudget(max(given), spent)
    return found


def _is_about(row: Guarantee, observer: str) -> bool:
    """Whether a row may be about pairs with ``observer``.

    A row stands for all pairs like it, so one of an edge may be about any edge, and the largest ε of all of
    them is taken: no budget is stated too small.
    """
    if "," in observer or observer in ("cloud", "public"):
        return row.observer == observer
    kinds = ("peer", "other-device") if observer.startswith("device:") else ("own-edge", "other-edge")
    return row.relation.kind in kinds


def epsilon_lines(series: Series) -> list[str]:
    """A list with one line: the largest ε towards every watched observer, over the seeds.

    [] where none is watched. With adaptive control it has the budgets, which are the guarantees, and what of
    them was spent.
    """
    first, names = series.first, series.network
    spent = {name: float(series.worst(EPSILON_PREFIX + name)[1][-1]) for name in series.observers}
    given = budgets(series)
    controlled = bool(first.spec_dict.get("control"))
    shown = {name: budget.given for name, budget in given.items()} if controlled else spent
    if not shown:
        return []
    delta = at_delta(first.privacy.delta)
    kind = kind_within_devices(first.privacy.guarantees)
    if kind is not None:
        values = ", ".join(f"{names.titled(name)} {epsilon(value)}" for name, value in shown.items())
        whole = "; a device as a whole: ∞" if clip_kind_of(first.spec_dict) == "example" else ""
        return [f"ε of a {kind}: {values}{delta}{_spent_in_words(given)}{whole}"]
    # with both units the columns are about devices
    both = " of a device" if first.spec_dict["privacy"].get("unit") == "both" else ""
    values = ", ".join(f"ε {names.titled(name)} {epsilon(value)}" for name, value in shown.items())
    return [f"{values}{both}{delta}{_spent_in_words(given)}"]


def _spent_in_words(given: dict[str, SpentBudget]) -> str:
    """What follows budgets in a line: how much of them the rounds spent; "" without budgets."""
    finite = [budget for budget in given.values() if budget.given < math.inf]
    if not finite:
        return ""
    alike = len({(epsilon(one.given), epsilon(one.spent)) for one in finite}) == 1
    if alike:
        return f": the budget; the rounds spent {epsilon(finite[0].spent)} of it"
    each = ", ".join(f"{epsilon(one.spent)} of {epsilon(one.given)}" for one in finite)
    return f": the budgets; the rounds spent {each}"
