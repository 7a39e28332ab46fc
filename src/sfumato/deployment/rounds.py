"""The rounds of a deployment, as what plays a session has them: the cloud asks, the model follows."""

from __future__ import annotations

import math
from collections.abc import Collection
from typing import Any, ClassVar

import numpy as np
import torch
from torch import Tensor

from sfumato.deployment.carrier import Carrier
from sfumato.deployment.cloud import CloudParty
from sfumato.deployment.played_rounds import Machines, PlayedRounds
from sfumato.deployment.terms import DeploymentTerms
from sfumato.errors import RunError
from sfumato.protocols.base import RoundStats
from sfumato.protocols.tree.rounds import TreeProtocol
from sfumato.protocols.tree.state import DeployedState, TreeState
from sfumato.schedule.integer_grid import IntegerGrid


class DeployedRounds(PlayedRounds[TreeState]):
    """Plays the rounds of a tree with real parties; all else is as in a simulation.

    Args:
        terms: of the run.
        cloud: the state machine of the cloud.
        carrier: of frames between the cloud and all other parties.
        simulated: the protocol that would play the same plan.
        sources: where all parties' secret choices come from, for the run folder.
        on: whose machines the parties are on, for the run folder.
    """

    metrics: ClassVar[tuple[str, ...]] = TreeProtocol.metrics

    def __init__(
        self,
        terms: DeploymentTerms,
        cloud: CloudParty,
        carrier: Carrier,
        simulated: TreeProtocol,
        sources: Collection[str],
        on: Machines,
    ) -> None:
        super().__init__(terms, [cloud.number], carrier, simulated, sources, on)
        self._terms, self._cloud = terms, cloud

    def initial(self, model: Tensor) -> DeployedState:
        """The state before the first round, from the initial model ``[M]``."""
        state = self._simulated.initial(model)
        return self._state(state.round, state.model, state.server)

    def run_round(self, state: DeployedState) -> tuple[DeployedState, RoundStats]:
        """Run round ``state.round`` with the parties; returns the state after it, and its measurements.

        Raises:
            RunError: somebody did not answer, or parties of other terms began the run.
            SfumatoError: a party refuses.
        """
        self._require_session(state)
        plan, carrier = self._terms.plan, self._carrier
        up, down = carrier.bytes_up, carrier.bytes_down
        carrier.carry(self._cloud.ask(state.round, state.model.numpy()))
        released = self._cloud.released
        if released is None:
            names = ", ".join(map(self._terms.name, self._cloud.missing))
            raise RunError(f"round {state.round + 1}: no answer from {names}")
        grid = self._terms.grid(self._terms.at(state.round))
        change = torch.from_numpy(released / grid.scale).float()
        server, model = self._server.step(state.server, state.model, change)
        stats = RoundStats(
            # where devices draw by themselves whether they take part, nobody tells who did
            participants=np.arange(0 if plan.is_sampled else plan.tree.device_count, dtype=np.int64),
            clip_fraction=math.nan,
            noise_std=self._noise_std(grid),
            energy_j=math.nan,
            delay_s=math.nan,
            bytes_up=carrier.bytes_up - up,
            bytes_down=carrier.bytes_down - down,
        )
        return self._state(state.round + 1, model, server), stats

    def _noise_std(self, grid: IntegerGrid) -> float:
        """Std of all noise in a coordinate of the global average; NaN where only devices could know it.

        That is so where devices add noise and which of them take part is drawn, or they may drop out.
        """
        plan = self._terms.plan
        varies = self._terms.devices_may_be_lost or plan.is_sampled
        if varies and plan.noise.device.any():
            return math.nan
        return math.sqrt(sum(plan.global_noise)) * grid.unit * grid.inflation

    def _simulated_state(self, state: DeployedState) -> TreeState:
        """What a simulation remembers in the place of ``state``."""
        return state

    def _steps(self) -> list[float]:
        """The step of every aggregation's grid: all have the same."""
        terms = self._terms
        return [1 / terms.grid(terms.at(0)).scale] * (terms.last + 1)

    def realised_facts(self, state: DeployedState) -> dict[str, Any]:
        """The facts of `PlayedRounds.realised_facts`, without who took part where that is drawn.

        Nobody may learn it: ``participations`` is ``None`` then.
        """
        drawn = {"participations": None} if self._terms.plan.is_sampled else {}
        return drawn | super().realised_facts(state)
