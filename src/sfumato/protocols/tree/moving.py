"""Rounds of a tree whose devices move, or whose trust changes: each is played on the tree of its round."""

from __future__ import annotations

from dataclasses import replace

from sfumato.data.partition import Partition
from sfumato.engine.base import Engine
from sfumato.protocols.base import RoundStats
from sfumato.protocols.message_hooks import Listener
from sfumato.protocols.tree.rounds import TreeProtocol
from sfumato.protocols.tree.state import TreeState
from sfumato.schedule.tree import TreePlan


class MovingTreeProtocol(TreeProtocol):
    """Runs a plan with several eras; the state is that of one tree, as nothing of it belongs to an edge.

    Args:
        plan: resolved and calibrated.
        engine: trains devices.
        partition: who holds which rows; devices keep theirs.
        parameters: M, length of the model's flat vector.
        listener: hears every message, average and model.
    """

    def __init__(
        self,
        plan: TreePlan,
        engine: Engine,
        partition: Partition,
        parameters: int,
        listener: Listener | None = None,
    ) -> None:
        super().__init__(replace(plan, eras=()), engine, partition, parameters, listener)
        self._whole = plan
        self._era: tuple[TreePlan, TreeProtocol] | None = None  # of the last round that was played

    def run_round(self, state: TreeState) -> tuple[TreeState, RoundStats]:
        """Run round ``state.round`` on the tree of that round.

        Returns:
            The state after it, and its measurements.

        Raises:
            EnvelopeError: a message exceeds what the plan declared; nothing of the round is kept.
        """
        plan = self._whole.at(state.round)
        if self._era is None or self._era[0] is not plan:
            protocol = TreeProtocol(plan, self._engine, self._partition, self._parameters, self._listener)
            self._era = plan, protocol
        return self._era[1].run_round(state)
