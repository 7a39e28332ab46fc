"""The settings of the next round: problem P (section 5.2), and noise that the privacy filter allows."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt

from sfumato.adaptive_control.per_edge_problem import EdgeCosts, EdgeProblem
from sfumato.adaptive_control.problem import Costs, Gap, Weights, minimise
from sfumato.errors import SpecError
from sfumato.privacy.privacy_filter import GaussianFilter
from sfumato.radio.costs import TreeCosts
from sfumato.schedule.control.adaptive import (
    ALL_STEPS_DONE,
    RoundSettings,
    least_participants,
    participants,
    round_plan,
)
from sfumato.schedule.control.budget import Budget
from sfumato.schedule.integer_grid import integer_grid_of
from sfumato.schedule.local_steps import learning_rate
from sfumato.schedule.participation import draw_participants
from sfumato.schedule.tree import TreePlan
from sfumato.spec.control import Control
from sfumato.spec.training import CosineRate

FloatArray = npt.NDArray[np.float64]
IntArray = npt.NDArray[np.int64]
SPENT = "the privacy budget is spent"
_Choice = tuple[int, int | tuple[int, ...], int | tuple[int, ...]]


def step_size(plan: TreePlan, number: int, last_steps: int, smoothness: float) -> float:
    """The step size of round ``number`` (from 0), by the rule ``control.step_size`` of the spec.

    ``scheduled``: that of the spec. ``stable``: that of the spec, but at most 1/beta, with which a
    gradient step on a beta-smooth loss never raises it. ``theorem``: eta_k = gamma_k / sqrt(k + 1), gamma_k =
    min(1/tau_(k-1), 1/K_g) / beta (H2FDP, section 5.1).

    Args:
        plan: of the run; its spec has a section ``control``.
        number: of the round, k.
        last_steps: local steps of the round before, tau_(k-1).
        smoothness: beta, an upper bound of the gradient's Lipschitz constant.
    """
    training, control = plan.spec.training, plan.spec.control
    assert control is not None  # the registry chooses this class by it
    if control.step_size == "theorem":
        return min(1 / last_steps, 1 / training.rounds) / smoothness / math.sqrt(number + 1)
    if isinstance(training.learning_rate, CosineRate):
        number = min(number, training.rounds - 1)  # a controlled run may have more rounds than its cosine
    rate = learning_rate(training, number)
    return rate if control.step_size == "scheduled" else min(rate, 1 / smoothness)


def candidates(plan: TreePlan, control: Control) -> tuple[IntArray, IntArray]:
    """The numbers of participants that control may choose from: for trusted edges, and for untrusted ones.

    Each is an ascending int64 array, from the fewest that are allowed to ``control.max_devices`` or the
    devices of the largest edge of that trust, whichever is less; [1] if no edge has that trust.

    Args:
        plan: of the run.
        control: the section of its spec.
    """
    trusted, devices, least = plan.tree.tiers[-1].trusted, plan.tree.devices, least_participants(plan)
    most = control.max_devices or int(devices.max())
    return tuple(
        np.arange(least, min(most, int(devices[kind].max())) + 1)
        if kind.any()
        else np.ones(1, dtype=np.int64)
        for kind in (trusted, ~trusted)
    )  # type: ignore[return-value]


def cost_of_estimates(control: Control) -> float:
    """μ² that each round costs a device, towards every observer, for its noised estimate of the smoothness.

    0 where ``control`` has the smoothness estimated from released models.
    """
    estimates = control.estimates
    return 0.0 if estimates == "released" else estimates.multiplier**-2


@dataclass(frozen=True, eq=False)
class SettingsChoice:
    """Chooses the settings of a round.

    Attributes:
        plan: without control.
        control: the spec's section.
        budget: what may be spent on every pair.
        costs: of messages.
        gap: constants of the optimality gap.
        local: K_l, edge aggregations a round.
        total: local steps of the whole training.
    """

    plan: TreePlan
    control: Control
    budget: Budget
    costs: TreeCosts
    gap: Gap
    local: int
    total: int

    def next(
        self, number: int, done: int, last: RoundSettings, smoothness: float, account: GaussianFilter
    ) -> tuple[RoundSettings, str]:
        """Solve problem P for round ``number`` and set the noise that the privacy filter allows.

        Args:
            number: of the round, from 0.
            done: local steps so far.
            last: settings of the round before.
            smoothness: estimate of beta.
            account: what the filter has charged of each pair of device and observer.

        Returns:
            The settings, and "" or the reason why there is no such round (the settings then mean nothing).
        """
        left = self.total - done
        if left < self.local + 1:
            return last, ALL_STEPS_DONE
        control, choose = self.control, self._for_each_edge if self.control.per_edge else self._for_each_kind
        steps = np.arange(self.local + 1, max(self.local + 1, min(control.max_steps, left)) + 1)
        weights = Weights(
            control.energy, control.delay, control.optimality_gap_weight, control.optimality_gap_scale
        )
        rate = step_size(self.plan, number, last.steps, smoothness)
        tau, s_t, s_u = choose(number, left, steps, weights)
        settings = RoundSettings(tau, s_t, s_u, rate, 1.0)
        return self.with_noise(settings, number, done, account)

    def _for_each_kind(self, number: int, left: int, steps: IntArray, weights: Weights) -> _Choice:
        """Solve problem P with one number of participants a trusted edge, and one an untrusted edge.

        Args:
            number: of the round, from 0.
            left: local steps to go.
            steps: intervals (local steps a round) to choose from, ascending, ``[candidates]``.
            weights: of energy, delay and optimality gap in the objective.

        Returns:
            The interval, participants of every trusted edge, and participants of every untrusted edge.
        """
        s_t, s_u = candidates(self.plan, self.control)
        choice = minimise(
            remaining=left,
            steps=steps,
            s_trusted=s_t,
            s_untrusted=s_u,
            costs=self._predicted_costs(number, s_t, s_u),
            gap=self.gap,
            weights=weights,
        )
        return choice.steps, choice.trusted, choice.untrusted

    def _for_each_edge(self, number: int, left: int, steps: IntArray, weights: Weights) -> _Choice:
        """Solve problem P in full, with a number of participants for every edge.

        Args:
            number: of the round, from 0.
            left: local steps to go.
            steps: intervals (local steps a round) to choose from, ascending, ``[candidates]``.
            weights: of energy, delay and optimality gap in the objective.

        Returns:
            The interval, the participants of each trusted edge, and those of each untrusted edge.
        """
        trusted = self.plan.tree.tiers[-1].trusted
        choice = EdgeProblem(left, self._costs_of_edges(number), trusted, self.gap, weights).minimise(steps)
        each = np.array(choice.participants)
        return choice.steps, tuple(each[trusted].tolist()), tuple(each[~trusted].tolist())

    def with_noise(
        self, settings: RoundSettings, number: int, done: int, account: GaussianFilter
    ) -> tuple[RoundSettings, str]:
        """Set the noise factor of ``settings`` so that budgets and integer ring allow round ``number``.

        Args:
            settings: interval, participants and step size.
            number: of the round, from 0.
            done: local steps so far.
            account: what the privacy filter has charged.

        Returns:
            The settings with noise, and "". Where no noise makes this round possible, settings that must not
            be used, and the reason.
        """
        noised, why = self._within_budget(settings, number, done, account)
        return noised, why or self._why_outside_ring(noised, number)

    def _within_budget(
        self, settings: RoundSettings, number: int, done: int, account: GaussianFilter
    ) -> tuple[RoundSettings, str]:
        """Keep round ``number`` within the budget of the privacy filter.

        With ``control.budget_policy: spread`` the noise is set so that the rest of the budget lasts for the
        rounds that are left; otherwise it stays.

        Args:
            settings: interval, participants and step size.
            number: of the round.
            done: local steps so far.
            account: what the privacy filter has charged.

        Returns:
            The settings with noise, and "" or the reason why even this round would exceed the budget.
        """
        played = round_plan(self.plan, settings, number)
        chosen = draw_participants(played, number)
        charge = self.budget.charge(played, chosen)
        estimate_cost = cost_of_estimates(self.control)
        if self.control.budget_policy == "spread":
            share = (participants(self.plan, settings) / self.plan.tree.devices).repeat(
                self.plan.tree.devices
            )
            later_rounds = (self.total - done) / settings.steps - 1
            expected_rounds = 1 + max(0.0, later_rounds) * share[chosen]
            remaining = account.setting_aside(expected_rounds * estimate_cost, chosen)
            factor = (
                math.inf if remaining is None else remaining.noise_factor(charge, chosen, expected_rounds)
            )
            if factor == 0 or math.isfinite(factor):
                # a hair more, so that rounding never makes it too little
                return replace(settings, noise=factor * (1 + 1e-9) if factor else 1.0), ""
            return settings, self._why_spent(account, charge, chosen)
        charge = charge + estimate_cost
        return settings, "" if account.allows(charge, chosen) else self._why_spent(account, charge, chosen)

    def _why_outside_ring(self, settings: RoundSettings, number: int) -> str:
        """Explain why masked sums in round ``number`` would overflow the integer ring; "" where they fit."""
        if "secure-aggregation" not in self.plan.hops:
            return ""
        played = round_plan(self.plan, settings, number)
        chosen = draw_participants(played, number)
        try:
            for index in range(len(played.aggregations)):
                integer_grid_of(played, number, index, chosen, self.gap.parameters)
        except SpecError as error:
            return error.allowed
        return ""

    def _predicted_costs(self, number: int, s_t: IntArray, s_u: IntArray) -> Costs:
        """Predict energy (J) and delay (s) of a round's global and local aggregations.

        Args:
            number: of the round.
            s_t: numbers of participants of every trusted edge, to choose from.
            s_u: numbers of participants of every untrusted edge, to choose from.

        Returns:
            Four arrays ``[len(s_t), len(s_u)]``, for every pair of numbers.
        """
        counts = np.stack(
            [[participants(self.plan, RoundSettings(1, int(a), int(b), 1.0, 1.0)) for b in s_u] for a in s_t]
        )
        predicted = self.costs.round(number).predicted(counts)
        return Costs(
            predicted.global_energy_j,
            predicted.local_energy_j.sum(axis=-1),
            predicted.global_delay_s,
            predicted.local_delay_s.sum(axis=-1),
        )

    def _costs_of_edges(self, number: int) -> EdgeCosts:
        """Predict energy (J) and delay (s) of an aggregation in round ``number``, for each edge by itself.

        Returns:
            ``energy`` and ``delay``, ``[edges, counts]``: column j is for j + 1 participants, ∞ where the
            edge cannot have so many; and ``energy_above`` and ``delay_above``, what the hop from edges to
            cloud costs.
        """
        devices, most = self.plan.tree.devices, self.control.max_devices
        largest = int(devices.max()) if most is None else min(most, int(devices.max()))
        counts = np.arange(1, largest + 1)[:, None]
        predicted = self.costs.round(number).predicted(np.minimum(counts, devices))
        possible = (counts <= devices) & (counts >= least_participants(self.plan))
        return EdgeCosts(
            energy=np.where(possible, predicted.local_energy_j, np.inf).T,
            delay=np.where(possible, predicted.local_delay_s, np.inf).T,
            energy_above=float(predicted.global_energy_j[0] - predicted.local_energy_j[0].sum()),
            delay_above=float(predicted.global_delay_s[0] - predicted.local_delay_s[0].max()),
        )

    def _why_spent(self, account: GaussianFilter, charge: FloatArray, chosen: IntArray) -> str:
        """A sentence that the budget is spent, and the pair of device and observer that would exceed it most.

        Args:
            account: what the privacy filter has charged.
            charge: μ² of the round, ``[len(chosen), observers]``.
            chosen: numbers of the round's participants.
        """
        pair = self.budget.pair_in_words(*account.tightest(charge, chosen))
        return f"{SPENT}, first that of {pair}"
