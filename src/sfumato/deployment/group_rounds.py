"""The rounds of deployed groups: every master asks its workers, and every group's model follows.

No party of the protocol sees the models of all groups. Whoever writes a run folder of them does; so does what
calls this, which is in one process with all masters. docs/deployment-groups.md says for what that is right.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Sequence
from typing import ClassVar

import numpy as np
import torch
from torch import Tensor

from sfumato.deployment.carrier import Carrier
from sfumato.deployment.cloud import AskingParty
from sfumato.deployment.group_terms import GroupTerms
from sfumato.deployment.played_rounds import Machines, PlayedRounds
from sfumato.errors import RunError
from sfumato.protocols.base import RoundStats
from sfumato.protocols.groups.base import GroupedProtocol
from sfumato.protocols.groups.state import GroupedState
from sfumato.protocols.tree.state import DeployedState


class DeployedGroupRounds(PlayedRounds[GroupedState]):
    """Plays the rounds of groups with real parties.

    Args:
        terms: of the run.
        masters: of all groups, in their order; of one, where they are on machines of their own.
        carrier: of frames between masters and workers.
        simulated: the protocol that would play the same plan.
        sources: where all parties' secret choices come from, for the run folder.
        on: whose machines the parties are on, for the run folder.
    """

    metrics: ClassVar[tuple[str, ...]] = GroupedProtocol.metrics

    def __init__(
        self,
        terms: GroupTerms,
        masters: Sequence[AskingParty],
        carrier: Carrier,
        simulated: GroupedProtocol,
        sources: Collection[str],
        on: Machines,
    ) -> None:
        super().__init__(terms, [one.number for one in masters], carrier, simulated, sources, on)
        self._terms, self._masters = terms, masters

    def initial(self, model: Tensor) -> DeployedState:
        """The state before the first round: every group of a master here has the initial model ``[P]``."""
        models = model.repeat(len(self._masters), 1)
        return self._state(0, models, self._server.initial(models))

    def run_round(self, state: DeployedState) -> tuple[DeployedState, RoundStats]:
        """Run round ``state.round`` with the parties; returns the state after it, and its measurements.

        The models ``[M, P]`` of the state are those of the groups of the M masters here.

        Raises:
            RunError: somebody did not answer, or parties of other terms began the run.
            SfumatoError: a party refuses.
        """
        self._require_session(state)
        plan, number, server, models = self._terms.plan, state.round, state.server, state.model
        up, down, sends = self._carrier.bytes_up, self._carrier.bytes_down, plan.sends_in(number)
        if sends:
            server, models = self._server.step(server, models, self._averages(number, models))
        stats = RoundStats(
            participants=np.arange(plan.groups.workers, dtype=np.int64),
            clip_fraction=math.nan,
            noise_std=self._noise_std(number) if sends else 0.0,
            energy_j=math.nan,
            delay_s=math.nan,
            bytes_up=self._carrier.bytes_up - up,
            bytes_down=self._carrier.bytes_down - down,
        )
        return self._state(number + 1, models, server), stats

    def _averages(self, number: int, models: Tensor) -> Tensor:
        """What the releases of round ``number`` come to, float32 ``[M, P]``; ``models`` are asked with.

        Raises:
            RunError: a worker did not answer its master.
        """
        asked = zip(self._masters, models.numpy(), strict=True)
        self._carrier.carry([data for master, model in asked for data in master.ask(number, model)])
        averages = []
        for master in self._masters:
            if master.released is None:
                names = ", ".join(map(self._terms.name, master.missing))
                raise RunError(
                    f"round {number + 1}: {self._terms.name(master.number)}: no answer from {names}"
                )
            grid = self._terms.grid(self._terms.asked_in(number, master.number))
            averages.append(torch.from_numpy(master.released / grid.scale).float())
        return torch.stack(averages)

    def _noise_std(self, number: int) -> float:
        """Root mean square over groups of the noise std of a group's average after round ``number``."""
        terms = self._terms
        grids = [terms.grid(terms.asked_in(number, master.number)) for master in self._masters]
        declared = terms.plan.model_noise_std(number)[[terms.group(one.number) for one in self._masters]]
        return float(np.sqrt(np.mean((declared * [grid.inflation for grid in grids]) ** 2)))

    def _simulated_state(self, state: DeployedState) -> GroupedState:
        """What a simulation remembers in the place of ``state``."""
        return GroupedState(state.round, state.model, server=state.server)

    def _steps(self) -> list[float]:
        """The coarsest step of a group's grid, alone: the releases of all groups are one aggregation."""
        terms = self._terms
        return [max(1 / terms.grid(terms.asked_in(0, master.number)).scale for master in self._masters)]
