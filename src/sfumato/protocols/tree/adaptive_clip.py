"""Rounds of a tree whose clip norm follows the lengths of updates (`schedule.adaptive_clip`)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, ClassVar, Self

from torch import Tensor

from sfumato.data.partition import Partition
from sfumato.distributed.ranks import Ranks
from sfumato.engine.base import Engine
from sfumato.protocols.base import PilotNorms, RoundStats
from sfumato.protocols.evaluator import Evaluator
from sfumato.protocols.message_hooks import Listener
from sfumato.protocols.tree.indicators import UNCLIPPED, Indicators
from sfumato.protocols.tree.rounds import TreeProtocol
from sfumato.protocols.tree.state import TreeState
from sfumato.schedule.adaptive_clip import adaptive_clip_of, with_clip_norm
from sfumato.schedule.tree import TreePlan

CLIP_NORM = "clip_norm"
"""The column of the metrics for the norm that a round's updates were clipped to."""


@dataclass(frozen=True)
class AdaptedState:
    """What the protocol remembers between rounds.

    Attributes:
        inner: of the rounds with a fixed norm.
        norm: the clip norm of the next round.
    """

    kind: ClassVar[str] = "clip-adapted"

    inner: TreeState
    norm: float

    @property
    def round(self) -> int:
        """The number of rounds that are done."""
        return self.inner.round

    @property
    def is_shared(self) -> bool:
        """Whether other ranks (processes) hold parts of it: vectors of the devices that they trained."""
        return self.inner.is_shared

    def whole(self) -> Self:
        """The whole state on rank 0, with other ranks' parts, for a checkpoint; every rank must call it."""
        return replace(self, inner=self.inner.whole())

    def divided_among(self, ranks: Ranks) -> Self:
        """This rank's share: the vectors of devices are divided among ``ranks`` (processes)."""
        return replace(self, inner=self.inner.divided_among(ranks))

    def pack(self) -> dict[str, Any]:
        """The whole state as numbers and CPU tensors by name, for a checkpoint."""
        return {"inner": self.inner.pack(), "norm": self.norm}

    @classmethod
    def unpack(cls, packed: Mapping[str, Any], device: str) -> Self:
        """Rebuild the state from what `pack` gave, with tensors on ``device``.

        Raises:
            Exception: of any class, where ``packed`` is no such state.
        """
        return cls(TreeState.unpack(packed["inner"], device), float(packed["norm"]))


class AdaptiveClipProtocol:
    """Runs a plan whose clip is adapted; each round is one of the tree protocol with the norm of the round.

    Args:
        plan: resolved and calibrated.
        engine: trains devices.
        partition: who holds which rows.
        parameters: M, length of the model's flat vector.
        listener: hears every message, average and model, with indicators.
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
        self._plan, self._engine, self._partition = plan, engine, partition
        self._parameters, self._listener = parameters, listener
        self._first = self._tree_protocol(replace(plan, eras=()))
        self.ranks = self._first.ranks

    def initial(self, model: Tensor) -> AdaptedState:
        """The state before the first round, from the initial model ``[M]``."""
        found = adaptive_clip_of(self._plan.spec)
        assert found is not None  # this class is chosen by it
        return AdaptedState(self._first.initial(model), found[0].norm)

    def run_round(self, state: AdaptedState) -> tuple[AdaptedState, RoundStats]:
        """Run round ``state.round`` with the clip norm ``state.norm``, and adapt the norm for the next one.

        Returns:
            The state after the round, and its measurements.

        Raises:
            EnvelopeError: a message exceeds what the plan declared; nothing of the round is kept.
        """
        played = with_clip_norm(self._plan.at(state.round), state.norm)
        inner, stats = self._tree_protocol(played).run_round(state.inner)
        indicators = Indicators.of(played, state.round)
        assert indicators is not None  # as above
        norm = indicators.next_norm(state.norm, stats.extra[UNCLIPPED])
        return AdaptedState(inner, norm), replace(stats, extra={**stats.extra, CLIP_NORM: state.norm})

    def rounds_expected(self, state: AdaptedState) -> int:
        """The number of rounds in the spec."""
        return self._first.rounds_expected(state.inner)

    def spent(self, state: AdaptedState) -> None:
        """``None``: the plan declares every round, so there is no filter."""

    def model(self, state: AdaptedState) -> Tensor:
        """The global model ``[M]`` of a state, flat."""
        return state.inner.model

    def artifacts(self, state: AdaptedState) -> dict[str, Tensor]:
        """Always an empty dict: a finished run in a tree keeps no tensors beside the global model."""
        return {}

    def realised_facts(self, state: AdaptedState) -> dict[str, Any]:
        """Who survived each round and who served as supernode, as JSON; {} where the plan settles both."""
        return self._first.realised_facts(state.inner)

    def is_finite(self, state: AdaptedState) -> bool:
        """Whether every coordinate of the global model is a finite number."""
        return self._first.is_finite(state.inner)

    def scores(self, state: AdaptedState, examination: Evaluator) -> dict[str, float]:
        """Score the global model by ``examination``: ``accuracy`` (0 to 1), ``loss`` (nats) and others."""
        return self._first.scores(state.inner, examination)

    def pilot(self, model: Tensor, rounds: int) -> PilotNorms:
        """Measure norms of un-noised, unclipped messages over ``rounds`` rounds from ``model`` ``[M]``."""
        return self._first.pilot(model, rounds)

    def _tree_protocol(self, plan: TreePlan) -> TreeProtocol:
        """The protocol with a fixed clip norm that plays a round by ``plan``."""
        return TreeProtocol(plan, self._engine, self._partition, self._parameters, self._listener)
