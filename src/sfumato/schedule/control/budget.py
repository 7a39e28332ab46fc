"""What adaptive control may spend: the budget of every pair of a unit and an observer, as mu squared.

Every class of single observers has a budget, and so has every coalition that ``watch`` names. A filter that
holds all of them (`privacy.privacy_filter`) charges each round as it was played.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import numpy.typing as npt

from sfumato.privacy.observers import Party
from sfumato.privacy.privacy_filter import GaussianFilter, squared_mu_of_exposure
from sfumato.privacy.tree.pair_classes import TreePairs
from sfumato.privacy.tree.releases import TreeReleases
from sfumato.schedule.control.adaptive import draws_devices_independently
from sfumato.schedule.rows.watch import watched_coalitions
from sfumato.schedule.tree import TreePlan

FloatArray = npt.NDArray[np.float64]
IntArray = npt.NDArray[np.int64]


@dataclass(frozen=True)
class BudgetedPair:
    """The budget of units of one kind towards one observer.

    Attributes:
        kind: of the units' leaf, as `leaf_kinds` numbers them.
        unit: one of them.
        coalition: the observer, towards that unit.
        bound: flow or cut, whichever the budget is smaller under.
        budget: mu squared.
    """

    kind: int
    unit: int
    coalition: tuple[Party, ...]
    bound: str
    budget: float


@dataclass(frozen=True)
class BudgetedCoalition:
    """A coalition that ``watch`` names. All devices of a leaf that are no members stand alike to it.

    Attributes:
        coalition: who pools knowledge.
        units: for each leaf a device that is no member; -1 where all are members.
        bounds: for each leaf flow or cut, whichever the budget is smaller under.
        budgets: for each leaf, mu squared; infinite without a unit.
    """

    coalition: tuple[Party, ...]
    units: tuple[int, ...]
    bounds: tuple[str, ...]
    budgets: tuple[float, ...]

    @classmethod
    def of(cls, plan: TreePlan, coalition: tuple[Party, ...]) -> BudgetedCoalition:
        """The budgets towards ``coalition``: what one unit of each leaf would spend without control."""
        members, first = _devices_in(coalition), plan.tree.first_device
        units = tuple(
            next((device for device in range(first[leaf], first[leaf + 1]) if device not in members), -1)
            for leaf in range(plan.tree.leaf_count)
        )
        smallest = [
            _smallest_bound(_squares_by_bound(plan, plan.releases, unit, coalition))
            if unit >= 0
            else ("flow", np.inf)
            for unit in units
        ]
        return cls(coalition, units, *(tuple(column) for column in zip(*smallest, strict=True)))

    def costs(self, plan: TreePlan, declared: TreeReleases) -> FloatArray:
        """μ² that the releases ``declared`` cost one device of each leaf towards the coalition, ``[leaves]``.

        Computed by the bound (flow or cut) of the leaf's budget; 0 where the budget is infinite, ∞ without
        noise. ``plan``: of the run, for its neighbouring relation.
        """
        return np.array(
            [
                _squares_by_bound(plan, declared, unit, self.coalition)[bound] if np.isfinite(budget) else 0.0
                for unit, bound, budget in zip(self.units, self.bounds, self.budgets, strict=True)
            ]
        )


@dataclass(frozen=True)
class Budget:
    """What may be spent on every pair of a unit and an observer.

    Attributes:
        plan: without control.
        held: every class of pairs of a unit and a single observer.
        together: the coalitions in ``watch``.
    """

    plan: TreePlan
    held: tuple[BudgetedPair, ...]
    together: tuple[BudgetedCoalition, ...]

    @classmethod
    def of(cls, plan: TreePlan) -> Budget:
        """The budget of every pair of unit and observer: what ``plan`` would spend without control."""
        declared, kinds, held = plan.releases, leaf_kinds(plan), []
        for pair in TreePairs(declared, apart=_has_budget_per_edge(plan)).of():
            coalition = (pair.observer,)
            kind = int(kinds[plan.tree.leaf_of(pair.unit)])
            bound, budget = _smallest_bound(_squares_by_bound(plan, declared, pair.unit, coalition))
            held.append(BudgetedPair(kind, pair.unit, coalition, bound, budget))
        watched = watched_coalitions(plan.spec, plan.parties)
        return cls(plan, tuple(held), tuple(BudgetedCoalition.of(plan, coalition) for coalition in watched))

    @cached_property
    def columns(self) -> dict[int, list[BudgetedPair]]:
        """For each kind of leaf, the budgeted pairs of its units, in the order of the filter's columns."""
        found: dict[int, list[BudgetedPair]] = {}
        for held in self.held:
            found.setdefault(held.kind, []).append(held)
        return found

    @cached_property
    def kinds(self) -> IntArray:
        """The kind of the leaf of every device, as `leaf_kinds` numbers them, ``[devices]``."""
        return np.repeat(leaf_kinds(self.plan), self.plan.tree.devices)

    def fresh(self) -> GaussianFilter:
        """Make a privacy filter with the budgets, ``[devices, observers]``, and nothing spent.

        Columns are single observers, by kind of the device's leaf (`columns`), then the coalitions in
        ``watch``. A budget is infinite where no ε is promised.
        """
        alone = {kind: [held.budget for held in several] for kind, several in self.columns.items()}
        together = [np.array(held.budgets) for held in self.together]
        return GaussianFilter.fresh(
            self._with_coalitions(self._table_by_device(alone, np.inf), together, np.inf)
        )

    def charge(self, played: TreePlan, devices: IntArray) -> FloatArray:
        """μ² that one round of ``played`` costs each of ``devices``, ``[len(devices), observers]``.

        Columns as of `fresh`; 0 where the budget is infinite.
        """
        declared = played.releases.after(1)
        per_kind = {
            kind: [
                _squares_by_bound(self.plan, declared, held.unit, held.coalition)[held.bound]
                if np.isfinite(held.budget)
                else 0.0
                for held in columns
            ]
            for kind, columns in self.columns.items()
        }
        together = [coalition.costs(self.plan, declared) for coalition in self.together]
        return self._with_coalitions(self._table_by_device(per_kind, 0.0), together, 0.0)[devices]

    def spent(self, state: GaussianFilter, unit: int, coalition: Sequence[Party]) -> float:
        """μ² spent on device ``unit`` towards ``coalition`` in ``state``; ∞ where no finite budget holds."""
        column = self._column(unit, coalition)
        return float("inf") if column is None else float(state.spent[unit, column])

    def most_spent(self, state: GaussianFilter, unit: int, coalition: Sequence[Party]) -> float:
        """The largest μ² spent on any device of the kind of ``unit``, in the column of ``coalition``.

        The column holds, for each device, what it spent towards the observer that is placed towards it as
        ``coalition`` is towards ``unit``. ``state``: the filter. ∞ where no finite budget holds.
        """
        column = self._column(unit, coalition)
        alike = self.kinds == self.kinds[unit]
        return float("inf") if column is None else float(state.spent[alike, column].max())

    def _column(self, unit: int, coalition: Sequence[Party]) -> int | None:
        """The filter's column for a unit and a coalition; ``None`` where no filter holds.

        That is where the budget is infinite, or several observers are not a coalition in ``watch``.
        """
        if len(coalition) != 1:
            return self._column_together(unit, frozenset(coalition))
        asked = self._relation(unit, coalition[0])
        for column, held in enumerate(self.columns[int(self.kinds[unit])]):
            if self._relation(held.unit, held.coalition[0]) == asked:
                return column if np.isfinite(held.budget) else None
        return None

    def pair_in_words(self, unit: int, column: int) -> str:
        """Name the pair of row ``unit`` (a device) and ``column`` of the filter: ``device:N towards PARTY``.

        As the rows of an account name it: for a single observer N is the first unit of its kind.
        """
        if column >= self._width:
            coalition = self.together[column - self._width].coalition
            return f"device:{unit} towards {','.join(map(self.plan.releases.party_name, coalition))}"
        held = self.columns[int(self.kinds[unit])][column]
        return f"device:{held.unit} towards {self.plan.releases.party_name(held.coalition[0])}"

    def _relation(self, unit: int, observer: Party) -> tuple[object, ...]:
        """A hashable key, equal for observers placed alike towards units of a kind, in edges under a cloud.

        The observer's kind, whether its edge is the unit's own, and else the kind of its edge.
        """
        tree, kinds = self.plan.tree, leaf_kinds(self.plan)
        if observer.kind == "public" or (observer.kind == "node" and observer.tier == 0):
            return (observer.kind,)
        leaf = tree.leaf_of(observer.index) if observer.kind == "device" else observer.index
        own = leaf == tree.leaf_of(unit)
        return (observer.kind, own, None if own else int(kinds[leaf]))

    def _column_together(self, unit: int, coalition: frozenset[Party]) -> int | None:
        """The filter's column of a coalition of several for ``unit``; ``None`` where no filter holds."""
        leaf = self.plan.tree.leaf_of(unit)
        for column, held in enumerate(self.together, start=self._width):
            if frozenset(held.coalition) == coalition and np.isfinite(held.budgets[leaf]):
                return column
        return None

    @property
    def _width(self) -> int:
        """Number of columns of single observers; those of coalitions follow."""
        return max(map(len, self.columns.values()))

    def _with_coalitions(
        self, alone: FloatArray, of_leaves: Sequence[FloatArray], of_members: float
    ) -> FloatArray:
        """Add a column for every coalition in ``watch`` to ``alone`` ``[devices, observers]``.

        Args:
            alone: values towards single observers.
            of_leaves: for each coalition, a value for each leaf, ``[leaves]``, which its devices get.
            of_members: the value of the coalition's members, who are no units.
        """
        columns = [np.repeat(values, self.plan.tree.devices) for values in of_leaves]
        for column, held in zip(columns, self.together, strict=True):
            column[sorted(_devices_in(held.coalition))] = of_members
        return np.column_stack([alone, *columns])

    def _table_by_device(self, rows: dict[int, list[float]], empty: float) -> FloatArray:
        """A table ``[devices, observers]`` from a row for each kind of leaf; short rows end in ``empty``."""
        table = np.full((max(rows) + 1, self._width), empty)
        for kind, values in rows.items():
            table[kind, : len(values)] = values
        return table[self.kinds]


def leaf_kinds(plan: TreePlan) -> IntArray:
    """A number for every leaf ``[leaves]``, equal only where devices are charged alike in every round.

    These are the accountant's classes of leaves; but every leaf has its own number where control sets
    participants leaf by leaf (``control.per_edge``), or draws devices independently (``control.draw``).
    """
    return np.arange(plan.tree.leaf_count) if _has_budget_per_edge(plan) else plan.releases.leaf_classes


def _has_budget_per_edge(plan: TreePlan) -> bool:
    """Whether every edge has a budget of its own: alike edges may have different participants."""
    return draws_devices_independently(plan) or (
        plan.spec.control is not None and bool(plan.spec.control.per_edge)
    )


def _devices_in(coalition: Sequence[Party]) -> set[int]:
    """The devices in ``coalition``."""
    return {party.index for party in coalition if party.kind == "device"}


def _smallest_bound(costs: dict[str, float]) -> tuple[str, float]:
    """The name of the bound with the smallest μ² (flow where they are equal), and that μ².

    ``costs``: μ² by the bound's name, one or more.
    """
    bound = min(costs, key=lambda name: (costs[name], name != "flow"))
    return bound, costs[bound]


def _squares_by_bound(
    plan: TreePlan, declared: TreeReleases, unit: int, coalition: tuple[Party, ...]
) -> dict[str, float]:
    """Compute mu² of ``unit`` towards ``coalition`` in ``declared`` under each bound, by the bound's name."""
    neighbours = plan.spec.privacy.neighbours
    return {e.bound_name: squared_mu_of_exposure(e, neighbours) for e in declared.exposures(unit, coalition)}
