"""ε towards the watched observers over the rounds of a run: from the plan alone, where it says all."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from typing import cast

from sfumato.accounting import PrivacyReport, pair_guarantee
from sfumato.privacy.guarantee import Guarantee
from sfumato.privacy.losses import gaussian
from sfumato.privacy.observers import Party
from sfumato.protocols.base import FloatArray
from sfumato.run_folder.metrics_table import EPSILON_PREFIX
from sfumato.schedule.base import Plan
from sfumato.schedule.control.budget import Budget
from sfumato.schedule.rows.observers import parse_coalition
from sfumato.schedule.rows.watch import (
    WatchedObserver,
    largest_charges,
    rounds_to_account,
    watched_observers,
)
from sfumato.schedule.tree import TreePlan


@dataclass(frozen=True, eq=False)
class WatchedEpsilons:
    """The columns ``epsilon:OBSERVER`` of the metrics.

    A plan declares every round, whatever is drawn and whatever the models become, so ε after a number of
    rounds does not depend on training. It is computed once, when that round is done: all at once would let a
    run of very many rounds wait, with nothing saved. What a privacy filter charges is known round by round.

    Attributes:
        plan: of the run.
        watched: the observers, each with the units whose largest ε is stated.
        accounted: rounds (from 1) after which ε is stated; after the last one it always is.
    """

    plan: Plan
    watched: tuple[WatchedObserver, ...]
    accounted: frozenset[int]
    _known: dict[tuple[str, int], float] = field(default_factory=dict, init=False, repr=False)

    @classmethod
    def of(cls, plan: Plan, privacy: PrivacyReport | None) -> WatchedEpsilons:
        """The ε to follow in a run of ``plan``; none if ``privacy`` is ``None``.

        Rows of ``privacy`` are used where they have the pair, so that their ε is not computed again.
        """
        if privacy is None:
            return cls(plan, (), frozenset())
        known = {(row.unit, row.observer): row for row in privacy.guarantees}

        def pair(unit: str, observer: str) -> Guarantee:
            """The guarantee of ``unit`` towards ``observer``, such as ``device:0`` and ``edge:1``."""
            found = known.get((unit, observer))
            return found or pair_guarantee(plan, unit, observer, delta=privacy.delta)

        return cls(plan, watched_observers(plan, pair), rounds_to_account(plan))

    def unknown(self) -> dict[str, float]:
        """Every column with the value NaN, for a row of metrics in which ε is not stated."""
        return dict.fromkeys(self._columns(), float("nan"))

    def after(self, done: int, *, played: int, spent: FloatArray | None) -> dict[str, float]:
        """ε by name of the column after ``done`` rounds; NaN where a filter's charge by then is not known.

        Args:
            done: number of rounds.
            played: how many have been played, at least ``done``.
            spent: what a filter has charged in those, as of `FederatedProtocol.spent`; ``None`` without one.
        """
        return {
            column: self._after(one, done) if spent is None else self._of_spent(one, done, played, spent)
            for column, one in zip(self._columns(), self.watched, strict=True)
        }

    def _columns(self) -> Iterable[str]:
        """Names of the columns: ``epsilon:OBSERVER`` for each observer."""
        return [f"{EPSILON_PREFIX}{one.observer}" for one in self.watched]

    def _after(self, watched: WatchedObserver, done: int) -> float:
        """ε towards ``watched`` after ``done`` rounds by the plan; computed once."""
        known = watched.observer, done
        if known not in self._known:
            coalition = parse_coalition(watched.observer, self.plan.parties)
            self._known[known] = epsilon_after(self.plan, watched.devices, coalition, done)
        return self._known[known]

    def _of_spent(self, watched: WatchedObserver, done: int, played: int, spent: FloatArray) -> float:
        """ε towards ``watched`` from what a filter has charged in the ``played`` rounds.

        NaN for fewer rounds (``done`` < ``played``): what was spent by then is not kept.
        """
        if done < played:
            return float("nan")
        coalition = parse_coalition(watched.observer, self.plan.parties)
        return epsilon_of_spent(self.plan, spent, watched.devices, coalition)


def epsilon_after(plan: Plan, devices: Sequence[int], coalition: tuple[Party, ...], rounds: int) -> float:
    """The largest ε of several units after the first ``rounds`` rounds, at the spec's δ.

    ``devices`` and ``coalition``: as of `largest_charges`.
    """
    charges = largest_charges(plan, plan.releases.after(rounds), devices, coalition)
    return max(charge.epsilon(plan.spec.privacy.delta) for charge in charges)


def epsilon_of_spent(
    plan: Plan, spent: FloatArray, devices: Sequence[int], coalition: tuple[Party, ...]
) -> float:
    """The largest ε of units for a budget spent under adaptive control; ∞ where one has no filter.

    Args:
        plan: before the first round, with a ``control`` section.
        spent: μ² charged so far, ``[devices, observers]``.
        devices: the units, each with all others of its class.
        coalition: the observers towards these units, who pool what they know.
    """
    budget = Budget.of(cast("TreePlan", plan))  # the checks of a spec allow control on trees only
    state = replace(budget.fresh(), spent=spent)
    square = max(budget.most_spent(state, device, coalition) for device in devices)
    if plan.spec.privacy.unit_within_device and plan.spec.privacy.neighbours != "replace":
        square *= 4  # as if all data of the device were replaced
    return gaussian.epsilon(delta=plan.spec.privacy.delta, mu=math.sqrt(square))
