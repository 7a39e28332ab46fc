"""The rounds of a deployment, as what plays a session has them: the cloud asks, the model follows."""

from __future__ import annotations

import math
from collections.abc import Collection
from typing import Any, ClassVar, Literal, TypeAlias

import numpy as np
import torch
from torch import Tensor

from sfumato.deployment.carrier import Carrier
from sfumato.deployment.cloud import CloudParty
from sfumato.deployment.terms import DeploymentTerms
from sfumato.distributed.ranks import ALONE, Ranks
from sfumato.errors import RunError
from sfumato.protocols.base import PilotNorms, RoundStats
from sfumato.protocols.evaluator import Evaluator
from sfumato.protocols.tree.local_work import server_optimizer
from sfumato.protocols.tree.rounds import TreeProtocol
from sfumato.protocols.tree.state import DeployedState
from sfumato.schedule.integer_grid import IntegerGrid

Machines: TypeAlias = Literal["one machine", "machines of their own"]
"""Where parties are: of one machine, whoever starts them has all keys and rows."""


class DeployedRounds:
    """Plays the rounds of a tree with real parties; all else is as in a simulation.

    Args:
        terms: of the run.
        cloud: asks.
        carrier: of frames between the cloud and everybody else.
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
        self._terms, self._cloud, self._carrier = terms, cloud, carrier
        self._simulated, self._sources, self._on = simulated, sorted(sources), on
        self.ranks: Ranks = ALONE
        self._server = server_optimizer(terms.plan.spec.training.server)
        self._session = terms.session.hex()

    def initial(self, model: Tensor) -> DeployedState:
        """The state before the first round, from the initial model ``[M]``."""
        state = self._simulated.initial(model)
        return DeployedState(state.round, state.model, state.server, session=self._session)

    def run_round(self, state: DeployedState) -> tuple[DeployedState, RoundStats]:
        """Run round ``state.round``.

        Raises:
            RunError: somebody did not answer, or parties of other terms began the run.
            SfumatoError: a party refuses.
        """
        if state.session != self._session:
            other = f"began in the session {state.session[:12]}, and these terms are of {self._session[:12]}"
            raise RunError(f"the run {other}: another spec, version, purpose, label or list of keys")
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
            participants=np.arange(plan.tree.device_count, dtype=np.int64),
            clip_fraction=math.nan,
            noise_std=self._noise_std(grid),
            energy_j=math.nan,
            delay_s=math.nan,
            bytes_up=carrier.bytes_up - up,
            bytes_down=carrier.bytes_down - down,
        )
        return DeployedState(state.round + 1, model, server, session=self._session), stats

    def _noise_std(self, grid: IntegerGrid) -> float:
        """The std of all noise in the global average; NaN where whose noise is in it is not told upwards."""
        plan = self._terms.plan
        varies = self._terms.devices_may_be_lost or plan.is_sampled
        if varies and plan.noise.device.any():
            return math.nan
        return math.sqrt(sum(plan.global_noise)) * grid.unit * grid.inflation

    def rounds_expected(self, state: DeployedState) -> int:
        """As many as the spec asks for."""
        return self._simulated.rounds_expected(state)

    def spent(self, state: DeployedState) -> None:
        """The plan declares every round: there is no table beside it."""

    def model(self, state: DeployedState) -> Tensor:
        """The global model."""
        return state.model

    def artifacts(self, state: DeployedState) -> dict[str, Tensor]:
        """Nothing: the global model is all there is."""
        return {}

    def realised_facts(self, state: DeployedState) -> dict[str, Any]:
        """That the run was deployed: its terms, the grid, whence draws come, on whose machines.

        Who took part is not in it where that is drawn: nobody who reads the run folder is to know.
        """
        terms = self._terms
        step = 1 / terms.grid(terms.at(0)).scale
        return ({"participations": None} if terms.plan.is_sampled else {}) | {
            "sum_steps": [None] * (terms.last + 1),
            "deployed": {"session": self._session, "purpose": terms.purpose, "step": step}
            | {"draws": self._sources, "on": self._on},
        }

    def is_finite(self, state: DeployedState) -> bool:
        """Whether the global model has not blown up."""
        return self._simulated.is_finite(state)

    def scores(self, state: DeployedState, examination: Evaluator) -> dict[str, float]:
        """Accuracy, loss and further metrics of the global model on the test set of the cloud."""
        return self._simulated.scores(state, examination)

    def pilot(self, model: Tensor, rounds: int) -> PilotNorms:
        """Norms of messages cannot be had of real parties: they leak.

        Raises:
            RunError: always.
        """
        raise RunError("a pilot looks at messages without noise: simulate it on public data")
