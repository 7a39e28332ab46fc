"""Rounds of a tree under H2FDP's adaptive control: settings chosen each round from released quantities.

Algorithm 1 of h2fdp.txt: after each round estimate the smoothness, set the step size by `settings.step_size`
(section 5.1), and solve problem P for the interval and the participation (section 5.2). A round is then an
ordinary round of the tree protocol under a plan of its own (schedule/control/adaptive.py). The run ends when
its local steps are done, when fewer are left than a round needs, or when the privacy filter allows no further
round.
"""

from __future__ import annotations

import math
from dataclasses import asdict, replace
from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt
from torch import Tensor

from sfumato.adaptive_control.problem import Gap
from sfumato.data.partition import Partition
from sfumato.distributed.ranks import ALONE
from sfumato.engine.base import Engine
from sfumato.errors import SpecError
from sfumato.protocols.adaptive.diagnosis import diagnose
from sfumato.protocols.adaptive.observations import RoundObservations
from sfumato.protocols.adaptive.seen_models import SeenModels
from sfumato.protocols.adaptive.settings import (
    SPENT,
    SettingsChoice,
    candidates,
    cost_of_estimates,
    step_size,
)
from sfumato.protocols.adaptive.smoothness import SmoothnessEstimator
from sfumato.protocols.adaptive.state import AdaptiveState
from sfumato.protocols.base import PilotNorms, RoundStats
from sfumato.protocols.evaluator import Evaluator
from sfumato.protocols.message_hooks import Listener, ListenerGroup
from sfumato.protocols.tree.rounds import TreeProtocol
from sfumato.radio.costs import TreeCosts
from sfumato.random import Stream, generator
from sfumato.schedule.control.adaptive import (
    RoundSettings,
    local_aggregations,
    noise_constant,
    round_plan,
    work_of_a_round,
)
from sfumato.schedule.control.budget import Budget
from sfumato.schedule.faults.dropouts import Attendance
from sfumato.schedule.participation import draw_participants
from sfumato.schedule.tree import TreePlan

FloatArray = npt.NDArray[np.float64]
FIRST_ROUND_HINT = (
    "raise training.rounds, lower control.max_steps, or give control.estimates less of the budget "
    "(a larger multiplier, or released)"
)


class AdaptiveProtocol:
    """Runs a plan whose spec has a ``control`` section.

    Args:
        plan: resolved and calibrated, without control.
        engine: trains devices.
        partition: who holds which rows.
        parameters: M.
        listener: hears every message, average and model.
    """

    metrics: ClassVar[tuple[str, ...]] = TreeProtocol.metrics

    def __init__(
        self,
        plan: TreePlan,
        engine: Engine,
        partition: Partition,
        parameters: int,
        listener: Listener | None = None,
    ) -> None:
        assert plan.spec.control is not None  # the registry chooses this class by it
        self._plan, self._control = plan, plan.spec.control
        self._engine, self._partition, self._parameters = engine, partition, parameters
        self._listener, self.ranks = listener, ALONE
        self._stated = self._tree_protocol(plan)  # with the settings of the spec
        self._budget = Budget.of(plan)
        trusted, clip = plan.tree.tiers[-1].trusted, plan.spec.privacy.clip
        self._gap = Gap(
            parameters=parameters,
            clip=clip.norm if clip is not None else 1.0,
            strength=noise_constant(plan),
            trusted=int(trusted.sum()),
            untrusted=int((~trusted).sum()),
            local_aggregations=local_aggregations(plan),
        )
        self._choice = SettingsChoice(
            plan=plan,
            control=self._control,
            budget=self._budget,
            costs=TreeCosts.of(plan.spec, plan.tree, parameters),
            gap=self._gap,
            local=local_aggregations(plan),
            total=plan.spec.training.rounds * work_of_a_round(plan),
        )
        self._smoothness = SmoothnessEstimator(plan, self._control, engine, partition)

    def initial(self, model: Tensor) -> AdaptiveState:
        """The state before the first round, from the initial model ``[M]``; tau_0 is drawn at random.

        Raises:
            SpecError: not even one round fits into the budget.
        """
        least, most = self._choice.local + 1, min(self._control.max_steps, self._choice.total)
        rng = generator(self._plan.spec.seed, Stream.SCHEDULE, 0)
        steps = int(rng.integers(least, most + 1))
        smoothness = self._control.bounds.smoothness or self._control.smoothness
        s_t, s_u = (int(several[-1]) for several in candidates(self._plan, self._control))
        settings = RoundSettings(steps, s_t, s_u, step_size(self._plan, 0, steps, smoothness), 1.0)
        inner = self._stated.initial(model)
        privacy_filter = self._budget.fresh()
        settings, ended = self._choice.with_noise(settings, 0, 0, privacy_filter)
        if ended:
            hint = f"; {FIRST_ROUND_HINT}" if ended.startswith(SPENT) else ""
            raise SpecError("control", None, f"leaves no first round: {ended}{hint}")
        seen = SeenModels.start(inner.model)
        return AdaptiveState(inner, 0, settings, smoothness, ended, privacy_filter.spent, seen, ())

    def rounds_expected(self, state: AdaptiveState) -> int:
        """An estimate of the number of rounds of the whole training.

        Rounds done, plus the local steps left divided by those of the next round, rounded down but at least
        1; once training has ended, the rounds done.
        """
        if state.ended:
            return state.round
        return state.round + max(1, (self._choice.total - state.steps) // state.settings.steps)

    def run_round(self, state: AdaptiveState) -> tuple[AdaptiveState, RoundStats]:
        """Run round ``state.round``, then choose the settings of the next one.

        Returns:
            The state after the round, and its measurements: participants, noise, costs and metrics columns.

        Raises:
            EnvelopeError: a message exceeds what the plan declared; nothing of the round is kept.
        """
        number, settings = state.round, state.settings
        played = round_plan(self._plan, settings, number)
        leaf_of = played.tree.leaves_of(np.arange(played.tree.device_count))
        observations = RoundObservations(
            self._choice.local, played.tree.depth, leaf_of, np.zeros(played.tree.leaf_count)
        )
        listener = observations if self._listener is None else ListenerGroup((observations, self._listener))
        inner, stats = self._tree_protocol(played, listener).run_round(state.inner)
        drawn = draw_participants(played, number)  # charged even where they dropped out
        charge = self._budget.charge(played, drawn) + cost_of_estimates(self._control)
        privacy_filter = replace(self._budget.fresh(), spent=state.spent).after(charge, drawn)
        done = state.steps + settings.steps
        length = settings.rate * settings.steps
        seen = state.seen.after(inner.model, length=length, noise_std=stats.noise_std)
        after = replace(state, seen=seen)
        smoothness = self._smoothness.estimate(after, inner.model, stats.participants)
        following, ended = self._choice.next(number + 1, done, settings, smoothness, privacy_filter)
        columns = diagnose(state, observations, played, self._gap, self._plan.spec.training.rounds)
        columns |= self._settings_columns(state)
        after = replace(
            after,
            inner=inner,
            steps=done,
            settings=following,
            smoothness=smoothness,
            ended=ended,
            spent=privacy_filter.spent,
            history=(*state.history, settings),
        )
        return after, replace(stats, extra={**stats.extra, **columns})

    def _settings_columns(self, state: AdaptiveState) -> dict[str, float]:
        """The settings that were chosen for round ``state.round``, by name of their columns in the metrics.

        NaN for the mean number of participants of trusted (or untrusted) edges where there are no such edges.
        """
        settings = state.settings
        return {
            "interval": float(settings.steps),
            "participants_trusted": float(np.mean(settings.trusted)) if self._gap.trusted else math.nan,
            "participants_untrusted": float(np.mean(settings.untrusted)) if self._gap.untrusted else math.nan,
            "step_size": settings.rate,
            "noise_factor": settings.noise,
            "smoothness": state.smoothness,
        }

    def spent(self, state: AdaptiveState) -> FloatArray:
        """μ² (of Gaussian DP) that the privacy filter has charged so far, ``[devices, observers]``."""
        return state.spent

    def model(self, state: AdaptiveState) -> Tensor:
        """The global model ``[M]`` of a state, flat."""
        return state.inner.model

    def artifacts(self, state: AdaptiveState) -> dict[str, Tensor]:
        """Always an empty dict: a finished run in a tree keeps no tensors beside the global model."""
        return {}

    def realised_facts(self, state: AdaptiveState) -> dict[str, Any]:
        """Why training ended, every round's settings, and who survived each, as JSON for ``ledger.json``."""
        facts = {"ended": state.ended, "settings": [asdict(setting) for setting in state.history]}
        played = [round_plan(self._plan, setting, n) for n, setting in enumerate(state.history)]
        attendance = Attendance.of_rounds(self._plan, played)
        return facts if attendance is None else facts | attendance.to_dict()

    def is_finite(self, state: AdaptiveState) -> bool:
        """Whether every coordinate of the global model is a finite number."""
        return self._stated.is_finite(state.inner)

    def scores(self, state: AdaptiveState, examination: Evaluator) -> dict[str, float]:
        """Score the global model by ``examination``: ``accuracy`` (0 to 1), ``loss`` (nats) and others."""
        return self._stated.scores(state.inner, examination)

    def pilot(self, model: Tensor, rounds: int) -> PilotNorms:
        """Norms of messages of ``rounds`` rounds from ``model`` ``[M]``, without noise, clips and control."""
        return self._stated.pilot(model, rounds)

    def _tree_protocol(self, plan: TreePlan, listener: Listener | None = None) -> TreeProtocol:
        """Make the protocol without control that plays one round by ``plan``.

        ``listener`` hears its messages; ``None``: nobody.
        """
        return TreeProtocol(plan, self._engine, self._partition, self._parameters, listener)
