"""What every protocol offers to who plays it: state in, state out, and what is measured of a state."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, ClassVar, Protocol, Self, TypeVar

import numpy as np
import numpy.typing as npt
from torch import Tensor

from sfumato.distributed.ranks import Ranks
from sfumato.protocols.evaluator import Evaluator

IntArray = npt.NDArray[np.int64]
FloatArray = npt.NDArray[np.float64]


class State(Protocol):
    """What a protocol remembers between rounds; frozen.

    Attributes:
        kind: names the class in a checkpoint.
    """

    kind: ClassVar[str]

    @property
    def round(self) -> int:
        """The number of rounds that are done."""

    @property
    def is_shared(self) -> bool:
        """Whether other ranks (processes) hold parts of it: the vectors of devices that they trained."""

    def whole(self) -> Self:
        """The whole state on rank 0, with other ranks' parts, for a checkpoint; every rank must call it."""

    def divided_among(self, ranks: Ranks) -> Self:
        """This rank's share of a state that every rank has: devices' vectors are divided among ``ranks``."""

    def pack(self) -> dict[str, Any]:
        """The whole state as numbers and CPU tensors by name, for a checkpoint; only of a `whole` state."""

    @classmethod
    def unpack(cls, packed: Mapping[str, Any], device: str) -> Self:
        """The inverse of `pack`, with tensors on ``device``; for other ``packed`` any exception may come."""


S = TypeVar("S", bound=State)


@dataclass(frozen=True)
class RoundStats:
    """What happened in one round.

    Attributes:
        participants: devices that are known to have taken part: somebody learnt what they sent, alone or in a
            sum. None, where real devices draw that by themselves.
        clip_fraction: share of messages (or of gradients) that clipping changed; simulator-only. NaN without
            clipping or without participants.
        noise_std: standard deviation a coordinate of all the noise that is in the global average this round
            (in groups, root mean square over their models).
        energy_j: of all transmissions, over all hops, J.
        delay_s: that all messages of the round took, s; computing is not in it.
        bytes_up: sent towards the cloud, over all hops.
        bytes_down: sent towards the devices, over all hops.
        extra: further columns of the metrics, by name.
    """

    participants: IntArray
    clip_fraction: float
    noise_std: float
    energy_j: float
    delay_s: float
    bytes_up: int
    bytes_down: int
    extra: Mapping[str, float] = field(default_factory=dict)


@dataclass(frozen=True)
class PilotNorms:
    """Norms of what devices would send, neither clipped nor noised. Not accounted: they leak.

    Attributes:
        what: what the norms are of.
        norms: ``[messages]``, on the CPU.
        rounds: rounds looked at.
    """

    what: str
    norms: Tensor
    rounds: int


class FederatedProtocol(Protocol[S]):
    """Plays a plan. Everything random comes from addressed streams: a round is a function of plan and state.

    Attributes:
        metrics: the columns that `scores` fills.
        ranks: which share what devices remember (`State.divided_among`); `ALONE` where each has all of it.
    """

    metrics: ClassVar[tuple[str, ...]]
    ranks: Ranks

    def initial(self, model: Tensor) -> S:
        """Make the state before the first round, from the initial model, a flat vector ``[P]``."""

    def run_round(self, state: S) -> tuple[S, RoundStats]:
        """Run round ``state.round`` (from 0).

        Returns:
            The state after it, and its measurements: participants, clipped share, noise, costs.

        Raises:
            EnvelopeError: a message exceeds what the plan declared; nothing of the round is kept.
        """

    def rounds_expected(self, state: S) -> int:
        """The number of rounds of the whole training, as far as is known; after its end, the rounds done."""

    def spent(self, state: S) -> FloatArray | None:
        """μ² (of Gaussian DP) that a privacy filter has charged so far, ``[devices, observers]``.

        ``None`` where the plan declares every round: the accountant then needs their number only.
        """

    def model(self, state: S) -> Tensor:
        """The one model that a finished run keeps, a flat vector ``[P]``."""

    def artifacts(self, state: S) -> dict[str, Tensor]:
        """What a finished run keeps beside the model: tensors by file name; {} if nothing."""

    def realised_facts(self, state: S) -> dict[str, Any]:
        """What was settled only during the run (survivors, settings, …), as JSON for ``ledger.json``.

        {} where the plan settles everything. ``state``: after the last round that was done.
        """

    def is_finite(self, state: S) -> bool:
        """Whether every coordinate of the models is a finite number."""

    def scores(self, state: S, examination: Evaluator) -> dict[str, float]:
        """Score the models on the test set; returns by column of the metrics (``accuracy``, ``loss`` ...)."""

    def pilot(self, model: Tensor, rounds: int) -> PilotNorms:
        """Train ``model`` ``[P]`` for ``rounds`` rounds without clip and noise; returns norms of messages.

        They tell of raw data and serve to choose a clip norm.
        """


def check_tensors(*tensors: Tensor | None) -> None:
    """Raise `ValueError` if an argument is neither a tensor nor ``None``."""
    if not all(tensor is None or isinstance(tensor, Tensor) for tensor in tensors):
        raise ValueError("its parts do not fit each other")
