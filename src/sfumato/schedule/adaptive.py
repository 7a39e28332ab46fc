"""Rounds whose step size, interval, participation and noise are chosen on the way, within a preset budget.

The budget of every pair of a unit and an observer is what the same spec without control would spend on it:
``rounds`` rounds of ``local_steps`` steps, everybody taking part, noise as stated. That is what
``account`` reports. A run may divide its local steps into other rounds as it sees fit; a filter
(privacy/filter.py) charges every round as it is, each device only when it takes part (its subnet's cohort is
drawn without looking at data and charged as drawn, so nothing is amplified). No pair passes its budget.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np
import numpy.typing as npt

from sfumato.errors import SpecError
from sfumato.privacy.observers import Party
from sfumato.privacy.privacy_filter import GaussianFilter, squared_mu
from sfumato.privacy.tree.releases import TreeReleases
from sfumato.schedule.aggregation_schedule import Aggregation
from sfumato.schedule.participation import Cohort
from sfumato.schedule.tree import TreePlan
from sfumato.schedule.tree_facts import build_ledger
from sfumato.spec.training import ConstantRate

CONTROLLED_PROTOCOLS = ("h2fdp", "hfl-dp", "hfl")
FloatArray = npt.NDArray[np.float64]
IntArray = npt.NDArray[np.int64]


@dataclass(frozen=True)
class RoundSettings:
    """What control sets for one round.

    Attributes:
        steps: tau, local steps.
        trusted: participants of each trusted edge.
        untrusted: participants of each untrusted edge.
        rate: eta, the step size.
        noise: factor on every source's standard deviation as stated.
    """

    steps: int
    trusted: int
    untrusted: int
    rate: float
    noise: float


def respaced(steps: int, local: int) -> tuple[Aggregation, ...]:
    """``local`` edge aggregations evenly spaced over ``steps`` local steps, and the global one at the end."""
    ends = [round((j + 1) * steps / (local + 1)) for j in range(local + 1)]
    starts = [0, *ends]
    return tuple(Aggregation(end, 0 if j == local else 1, end - starts[j]) for j, end in enumerate(ends))


def local_aggregations(plan: TreePlan) -> int:
    """K_l: edge aggregations a round."""
    return len(plan.aggregations) - 1


def participants(plan: TreePlan, setting: RoundSettings) -> IntArray:
    """Participants of every edge: those set for its kind, all it has where they are fewer; ``[edges]``."""
    wanted = np.where(plan.tree.tiers[-1].trusted, setting.trusted, setting.untrusted)
    return np.minimum(wanted, plan.tree.devices)


def round_plan(plan: TreePlan, setting: RoundSettings) -> TreePlan:
    """The plan of one round under ``setting``: another interval, cohort, step size and noise."""
    count = participants(plan, setting).astype(np.float64)
    aggregations = respaced(setting.steps, local_aggregations(plan))
    cohort = Cohort("fixed", float(np.max(count / plan.tree.devices)), count, count)
    spec = plan.spec
    training = spec.training.model_copy(
        update={
            "local_steps": setting.steps,
            "edge_every": None,
            "learning_rate": ConstantRate(initial=setting.rate),
        }
    )
    spec = spec.model_copy(update={"training": training})
    tree = plan.tree
    noise = plan.noise.scaled(
        np.full(tree.leaf_count, setting.noise), [np.full(tier.size, setting.noise) for tier in tree.tiers]
    )
    ledger = build_ledger(spec, tree, aggregations, cohort, plan.ledger.batches, noise)
    return replace(
        plan, spec=spec, aggregations=aggregations, participants=cohort, noise=noise, ledger=ledger
    )


def check_control(plan: TreePlan) -> None:
    """Refuse what control cannot steer.

    Raises:
        SpecError: the protocol is not H2FDP or a baseline of it on edges under a cloud, the local steps are
            not countable, or another section already settles what control chooses.
    """
    spec, control = plan.spec, plan.spec.control
    if control is None:
        return
    if spec.protocol not in CONTROLLED_PROTOCOLS or plan.tree.depth != 2:
        raise SpecError(
            "control", None, f"is for {', '.join(CONTROLLED_PROTOCOLS)} with edges under the cloud"
        )
    training = spec.training
    if training.participation.kind != "all":
        raise SpecError("training.participation", None, "must be left out: control chooses it")
    if training.local_epochs is not None:
        raise SpecError("training.local_epochs", training.local_epochs, "control divides local_steps")
    if training.global_update == "resend":
        raise SpecError("training.global_update", "resend", "must be increment with control")
    if any(hop != "plain" for hop in spec.transport.values()):
        raise SpecError("transport", dict(spec.transport), "must be plain with control")
    least, total = local_aggregations(plan) + 1, training.rounds * plan.aggregations[-1].step
    trusted, orbits = plan.tree.tiers[-1].trusted, plan.ledger.leaf_classes
    if spec.privacy.noise.kind != "none" and set(orbits[trusted]) & set(orbits[~trusted]):
        raise SpecError(
            "privacy.noise",
            None,
            "must not be the same at trusted and untrusted edges: control has different numbers take part",
        )
    if control.max_steps < least:
        raise SpecError(
            "control.max_steps",
            control.max_steps,
            f"must be at least {least}: a round has {least - 1} edge aggregations before the global one",
        )
    if total < least:
        raise SpecError("training.rounds", training.rounds, f"must give at least {least} local steps in all")


def strength(plan: TreePlan) -> float:
    """c2^2 q^2 ln(1/delta) / epsilon^2 of (15), solved for from the multiplier, whatever stated the noise.

    (15) with Lemma 3.2 is a standard deviation of ``2 eta tau G`` times the root of that times the number of
    global aggregations.
    """
    steps = plan.ledger.steps[-1]
    largest = max(float(plan.noise.device[:, 0].max()), *(float(n[:, 0].max()) for n in plan.noise.node))
    ratio = largest * float(steps.message_norm.max()) / (2 * plan.aggregations[-1].step)
    return ratio**2 / plan.spec.training.rounds


@dataclass(frozen=True)
class BudgetedPair:
    """An observer that units of one kind are held against.

    Attributes:
        kind: of the units' leaf, as `TieredLedger.leaf_classes` numbers them.
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
class Budget:
    """What may be spent on every pair of a unit and an observer.

    Attributes:
        plan: without control.
        held: every class of pairs of a unit and a single observer.
    """

    plan: TreePlan
    held: tuple[BudgetedPair, ...]

    @classmethod
    def of(cls, plan: TreePlan) -> Budget:
        """What ``plan``, played as it stands, would spend."""
        ledger, orbits = plan.ledger, plan.ledger.leaf_classes
        held = []
        for pair in ledger.pair_classes():
            coalition = (pair.observer,)
            kind = int(orbits[plan.tree.leaf_of(pair.unit)])
            costs = _costs(plan, ledger, pair.unit, coalition)
            bound = min(costs, key=lambda name: (costs[name], name != "flow"))
            held.append(BudgetedPair(kind, pair.unit, coalition, bound, costs[bound]))
        return cls(plan, tuple(held))

    @cached_property
    def columns(self) -> dict[int, list[BudgetedPair]]:
        """The observers of each kind of unit, in the order of the filter's columns."""
        found: dict[int, list[BudgetedPair]] = {}
        for held in self.held:
            found.setdefault(held.kind, []).append(held)
        return found

    @cached_property
    def kinds(self) -> IntArray:
        """The kind of every device, ``[devices]``."""
        return np.repeat(self.plan.ledger.leaf_classes, self.plan.tree.devices)

    def fresh(self) -> GaussianFilter:
        """A filter with nothing spent; towards an observer trusted with raw updates there is no limit."""
        return GaussianFilter.fresh(
            self._spread({kind: [h.budget for h in held] for kind, held in self.columns.items()}, np.inf)
        )

    def charge(self, played: TreePlan, devices: IntArray) -> FloatArray:
        """What one round of ``played`` costs each of ``devices``, mu squared, ``[devices, observers]``."""
        ledger = played.ledger.after(1)
        per_kind = {
            kind: [
                _costs(self.plan, ledger, held.unit, held.coalition)[held.bound]
                if np.isfinite(held.budget)
                else 0.0
                for held in columns
            ]
            for kind, columns in self.columns.items()
        }
        return self._spread(per_kind, 0.0)[devices]

    def spent(self, state: GaussianFilter, unit: int, coalition: Sequence[Party]) -> float:
        """mu squared spent on ``unit`` towards one observer; infinite towards whom no filter holds."""
        if len(coalition) != 1:
            return float("inf")
        asked = self._relation(unit, coalition[0])
        for column, held in enumerate(self.columns[int(self.kinds[unit])]):
            if self._relation(held.unit, held.coalition[0]) == asked:
                return float(state.spent[unit, column]) if np.isfinite(held.budget) else float("inf")
        return float("inf")

    def pair(self, unit: int, column: int) -> str:
        """Whom a column is about, as the rows of an account name them."""
        held = self.columns[int(self.kinds[unit])][column]
        return f"device:{held.unit} towards {self.plan.ledger.party_name(held.coalition[0])}"

    def _relation(self, unit: int, observer: Party) -> tuple[object, ...]:
        """Equal for observers that stand alike to units of one kind, in a tree of edges under a cloud."""
        tree, orbits = self.plan.tree, self.plan.ledger.leaf_classes
        if observer.kind == "public" or (observer.kind == "node" and observer.tier == 0):
            return (observer.kind,)
        leaf = tree.leaf_of(observer.index) if observer.kind == "device" else observer.index
        own = leaf == tree.leaf_of(unit)
        return (observer.kind, own, None if own else int(orbits[leaf]))

    def _spread(self, rows: dict[int, list[float]], empty: float) -> FloatArray:
        width = max(map(len, rows.values()))
        table = np.full((max(rows) + 1, width), empty)
        for kind, values in rows.items():
            table[kind, : len(values)] = values
        return table[self.kinds]


def _costs(plan: TreePlan, ledger: TreeReleases, unit: int, coalition: tuple[Party, ...]) -> dict[str, float]:
    neighbours = plan.spec.privacy.neighbours
    return {e.bound_name: squared_mu(e, neighbours) for e in ledger.exposures(unit, coalition)}
