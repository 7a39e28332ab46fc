"""The protocol of overlapping groups: what DP-OGL, DP-OGL+, dp-ogl-local and MS-FedAvg share.

State in, state out: a round is a function of the plan, the state and its number. A worker in several groups
trains once for each group that samples it; all of these *assignments* train together on the device axis.
What the protocols differ in, the order of the operations of a round, is a function in a file of its own;
`ROUND_FUNCTIONS` holds them by the name of the protocol.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any, ClassVar, TypeAlias

import numpy as np
import torch
from torch import Tensor

from sfumato.data.partition import Partition
from sfumato.engine.base import Engine
from sfumato.protocols.base import PilotNorms, RoundStats
from sfumato.protocols.evaluator import Evaluator
from sfumato.protocols.groups import dp_ogl, dp_ogl_local, dp_ogl_plus, ms_fedavg
from sfumato.protocols.groups.operations import GroupOperations
from sfumato.protocols.groups.state import GroupedState
from sfumato.protocols.message_hooks import Listener
from sfumato.random import Stream, seed_at
from sfumato.run_folder.reader import GROUPS_FILE
from sfumato.schedule.faults.dropouts import lost_sums
from sfumato.schedule.group_participation import group_turnout
from sfumato.schedule.groups import GroupPlan

RoundFunction: TypeAlias = Callable[[GroupOperations, GroupedState], tuple[GroupedState, RoundStats]]
"""Plays one round: from the operations and the state before it to the state after it and its measurements."""

ROUND_FUNCTIONS: dict[str, RoundFunction] = {
    "dp-ogl": dp_ogl.run_round,
    "dp-ogl+": dp_ogl_plus.run_round,
    "dp-ogl-local": dp_ogl_local.run_round,
    "ms-fedavg": ms_fedavg.run_round,
}


class GroupedProtocol:
    """Runs a plan of overlapping groups.

    Args:
        plan: resolved.
        engine: trains workers.
        partition: who holds which rows.
        parameters: P, length of the model's flat vector.
        listener: hears every message, sum and model; the index of a worker's message is its group.
        norms: a pilot's list, which the norms of messages that nobody clips are added to.
    """

    metrics: ClassVar[tuple[str, ...]] = ("accuracy", "loss", "personal_accuracy")

    def __init__(
        self,
        plan: GroupPlan,
        engine: Engine,
        partition: Partition,
        parameters: int,
        listener: Listener | None = None,
        norms: list[Tensor] | None = None,
    ) -> None:
        self._plan = plan
        self._engine = engine
        self._partition = partition
        self._operations = [
            GroupOperations(of_era, engine, partition, parameters, listener, norms) for of_era in plan.by_era
        ]
        self.ranks = self._operations[0].ranks
        self._run_round = ROUND_FUNCTIONS[plan.spec.protocol]

    def initial(self, model: Tensor) -> GroupedState:
        """The state before the first round: every group has the initial model ``[P]``."""
        first = self._operations[0]
        models = model.to(first.device).repeat(self._plan.groups.count, 1)
        return GroupedState(0, models, server=first.server.initial(models))

    def _operations_of(self, number: int) -> GroupOperations:
        """Give the operations of round ``number`` (from 0), with the groups of its era.

        An era is rounds with the same groups.
        """
        return self._operations[self._plan.era_of(number)]

    def _last_operations(self, state: GroupedState) -> GroupOperations:
        """The operations of the last round that was played, or of the first one before any."""
        return self._operations_of(max(0, state.round - 1))

    def personalised(self, state: GroupedState) -> Tensor:
        """The models that workers use: the mean of the models of a worker's groups, float32 ``[classes, P]``.

        Workers in the same groups have the same one: one row for each of `Groups.classes`, by the groups of
        the last round played.
        """
        return self._last_operations(state).mean_of_groups(state.models)

    def rounds_expected(self, state: GroupedState) -> int:
        """The number of rounds in the spec."""
        return self._plan.spec.training.rounds

    def spent(self, state: GroupedState) -> None:
        """``None``: the plan declares every round, so there is no filter."""

    def model(self, state: GroupedState) -> Tensor:
        """The mean of the personalised models of all workers, ``[P]``."""
        last = self._last_operations(state)
        counts = torch.from_numpy(last.plan.groups.classes.counts).float().to(last.device)
        return (counts / counts.sum()) @ self.personalised(state)

    def artifacts(self, state: GroupedState) -> dict[str, Tensor]:
        """The models of all groups, ``[M, P]`` for M groups, by file name."""
        return {GROUPS_FILE: state.models}

    def realised_facts(self, state: GroupedState) -> dict[str, Any]:
        """The number of messages in every group's sum by round, and which sums were lost, as JSON.

        {} where the spec lets no message be lost.
        """
        played = (group_turnout(self._operations_of(number).plan, number) for number in range(state.round))
        turnouts = [turnout for turnout in played if turnout is not None]
        if not turnouts:
            return {}
        drawn, counts = (np.array([getattr(t, name) for t in turnouts]) for name in ("drawn", "counts"))
        return {"survivors": counts.tolist()} | lost_sums(drawn, counts, "master:{}".format)

    def is_finite(self, state: GroupedState) -> bool:
        """Whether every coordinate of the groups' models is a finite number."""
        return bool(torch.isfinite(state.models).all())

    def scores(self, state: GroupedState, examination: Evaluator) -> dict[str, float]:
        """Score the workers' personalised models on the test set of ``examination``: means by column.

        ``accuracy`` and ``loss`` (nats) are on the whole test set, ``personal_accuracy`` on its examples
        weighted by the labels that the worker holds; further measures of the spec follow.
        """
        classes = self._last_operations(state).plan.groups.classes
        found = examination.score_personalised(self.personalised(state), classes)
        return {
            "accuracy": found.accuracy,
            "loss": found.loss,
            "personal_accuracy": found.mean_personal_accuracy,
            **found.measures,
        }

    def pilot(self, model: Tensor, rounds: int) -> PilotNorms:
        """Norms of updates, neither clipped nor noised, of at most ``rounds`` rounds from ``model`` ``[P]``.

        Where a message covers an interval of S rounds, ``rounds`` counts intervals, and norms are divided by
        sqrt(S), as the bound of such a message is sqrt(S) times ``privacy.clip``. Draws are those of another
        seed.
        """
        plan = self._plan
        seed = seed_at(plan.spec.seed, Stream.PILOT)
        silent = replace(
            plan,
            spec=plan.spec.model_copy(update={"seed": seed}),
            clips=np.full_like(plan.clips, np.inf),
            multipliers=np.zeros_like(plan.multipliers),
        )
        each = plan.merge_every if plan.by_interval else 1
        played = min(rounds * each, plan.rounds)
        norms: list[Tensor] = []
        pilot = GroupedProtocol(
            silent, self._engine, self._partition, self._operations[0].parameters, norms=norms
        )
        state = pilot.initial(model)
        for _ in range(played):
            state, _ = pilot.run_round(state)
        what = "messages (updates of a whole round)"
        if each > 1:
            what = f"messages (updates of {each} rounds), over √{each}"
        found = torch.cat(norms) / each**0.5 if norms else torch.zeros(0)
        return PilotNorms(what, found, played)

    def run_round(self, state: GroupedState) -> tuple[GroupedState, RoundStats]:
        """Run round ``state.round`` (from 0).

        Returns:
            The state after it, and its measurements: participants, clipped share, noise, costs.

        Raises:
            EnvelopeError: a message exceeds what the plan declared; nothing of the round is kept.
        """
        return self._run_round(self._operations_of(state.round), state)
