"""The tiered protocol, round by round: H2FDP, HFL, HFL-DP, PEDPFL, DP-FedAvg (docs/concepts.md).

State in, state out. Everything random comes from addressed streams, so a round is a function of the
plan, the state and its number: a resumed run replays it to the bit.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, Self

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from sfumato.engine.local import LocalEngine, LocalTask, UpdateChunk
from sfumato.errors import EnvelopeError
from sfumato.federation.partition import Partition
from sfumato.learning.batches import BatchPlan, plan_epochs, plan_steps
from sfumato.learning.local_training import LocalSGD
from sfumato.learning.norms import row_norms, scale_factors
from sfumato.learning.server_optimizer import ServerAdam, ServerOptimizer, ServerSGD, ServerState
from sfumato.mechanisms.clipping import FlatClip
from sfumato.mechanisms.noise import gaussian
from sfumato.protocols.base import PilotNorms, RoundFacts, need_tensors
from sfumato.protocols.examination import Examination
from sfumato.random import Stream, generator
from sfumato.schedule.learning_rate import learning_rate
from sfumato.schedule.rounds import Aggregation
from sfumato.schedule.tiered import TieredPlan
from sfumato.spec.training import Server

IntArray = npt.NDArray[np.int64]
_FLOAT_BYTES = 4
_ROUNDING = 1e-5
_ULP = 2.0**-23


@dataclass(frozen=True)
class TieredState:
    """What the protocol remembers between rounds.

    Attributes:
        round: how many rounds are done.
        model: the global model, float32 ``[M]``, on the engine's device.
        server: the cloud's optimizer.
    """

    kind: ClassVar[str] = "tiered"

    round: int
    model: Tensor
    server: ServerState

    def pack(self) -> dict[str, Any]:
        """All of it as numbers, and tensors on the CPU, for a checkpoint."""
        return {
            "round": self.round,
            "model": self.model.cpu(),
            "server_rounds": self.server.rounds,
            "server_moments": [moment.cpu() for moment in self.server.moments],
        }

    @classmethod
    def unpack(cls, packed: Mapping[str, Any], device: str) -> Self:
        """The state that ``packed`` tells, on ``device``; any error at all where it is not one."""
        need_tensors(packed["model"], *packed["server_moments"])
        moments = tuple(moment.to(device) for moment in packed["server_moments"])
        server = ServerState(int(packed["server_rounds"]), moments)
        return cls(int(packed["round"]), packed["model"].to(device), server)


@dataclass(frozen=True)
class _Resent:
    """What devices that send their whole round again at its end did so far in it.

    Attributes:
        updates: their sums, float32 ``[such devices, M]``; added to in place.
        place: each participant's row in it, ``[P]``; -1 for those that do not.
    """

    updates: Tensor
    place: IntArray


class TieredProtocol:
    """Plays a plan.

    Args:
        plan: resolved and calibrated.
        engine: trains devices.
        partition: who holds which rows.
        parameters: M, length of the model's flat vector.
    """

    metrics: ClassVar[tuple[str, ...]] = ("accuracy", "loss")

    def __init__(self, plan: TieredPlan, engine: LocalEngine, partition: Partition, parameters: int) -> None:
        self._plan = plan
        self._engine = engine
        self._partition = partition
        self._parameters = parameters
        self._server = server_optimizer(plan.spec.training.server)
        self._device = torch.device(engine.speed.device)

    def initial(self, model: Tensor) -> TieredState:
        """The state before the first round, from the initial model ``[M]``."""
        model = model.to(self._device)
        return TieredState(0, model, self._server.initial(model))

    def play(self, state: TieredState) -> tuple[TieredState, RoundFacts]:
        """Play round ``state.round``.

        Raises:
            EnvelopeError: a message exceeds what the plan declared; nothing of the round is kept.
        """
        plan, number = self._plan, state.round
        chosen = draw_participants(plan, number)
        leaf_of = np.searchsorted(plan.tree.first_device, chosen, side="right") - 1
        batches = self._batches(chosen, number)
        count = torch.as_tensor(plan.participants.count, dtype=torch.float32, device=self._device)[:, None]
        models = state.model.repeat(plan.tree.leaf_count, 1)
        resent = self._to_resend(leaf_of)
        clipped, up, down = 0.0, 0, 0
        for index, aggregation in enumerate(plan.aggregations):
            # one aggregation takes it all: with epochs the steps differ from device to device
            piece = batches if len(plan.aggregations) == 1 else _steps_of(batches, aggregation)
            sums, changed = self._collect(models, chosen, leaf_of, piece, number, index, resent)
            fresh = torch.from_numpy(plan.ledger.steps[index].fresh).to(self._device)[:, None]
            models = self._aggregate(
                torch.where(fresh, state.model, models) + sums / count, aggregation, number, index
            )
            clipped += changed
            sent, received = self._bytes(aggregation, len(chosen))
            up, down = up + sent, down + received
        server, model = self._server.step(state.server, state.model, models[0] - state.model)
        messages = len(chosen) * len(plan.aggregations)
        present = np.bincount(leaf_of, minlength=plan.tree.leaf_count).astype(np.float64)
        facts = RoundFacts(
            participants=chosen,
            clip_fraction=clipped / messages if messages and plan.spec.privacy.clip else float("nan"),
            noise_std=math.sqrt(sum(plan.noise_with(present))) * plan.unit(number),
            bytes_up=up,
            bytes_down=down,
        )
        return TieredState(number + 1, model, server), facts

    def model(self, state: TieredState) -> Tensor:
        """The global model."""
        return state.model

    def keepsakes(self, state: TieredState) -> dict[str, Tensor]:
        """Nothing: the global model is all there is."""
        return {}

    def is_finite(self, state: TieredState) -> bool:
        """Whether the global model has not blown up."""
        return bool(torch.isfinite(state.model).all())

    def scores(self, state: TieredState, examination: Examination) -> dict[str, float]:
        """Accuracy and loss of the global model on the test set."""
        score = examination.score(state.model)
        return {"accuracy": score.accuracy, "loss": score.loss}

    def pilot(self, model: Tensor, rounds: int) -> PilotNorms:
        """Norms of un-noised, unclipped messages while the mean of all devices' updates trains ``model``.

        With ``clip: {kind: step}`` the norms are those of mini-batch gradients, else of whole messages.
        """
        training, clip = self._plan.spec.training, self._plan.spec.privacy.clip
        per_step = clip is not None and clip.kind == "step"
        norms: list[Tensor] = []
        model = model.to(self._device)
        for number in range(min(rounds, training.rounds)):
            chosen = draw_participants(self._plan, number)
            rate = learning_rate(training, number)
            task = LocalTask(LocalSGD(rate, training.momentum), FlatClip(1e30))
            batches = self._pilot_batches(chosen, number, first_step_only=per_step)
            together = torch.zeros(len(chosen), dtype=torch.int64)
            total = torch.zeros_like(model)
            for chunk in self._engine.train(task, model[None], together, batches):
                assert chunk.norms is not None  # a clip was set
                norms.append(chunk.norms.cpu() / rate if per_step else chunk.norms.cpu())
                total += chunk.updates.sum(dim=0)
            model = model + total / max(1, len(chosen))
        what = "mini-batch gradients" if per_step else "messages (updates of a whole round)"
        found = torch.cat(norms) if norms else torch.zeros(0)
        return PilotNorms(what, found, min(rounds, training.rounds))

    def _pilot_batches(self, chosen: IntArray, number: int, *, first_step_only: bool) -> BatchPlan:
        """Batches of a pilot round, from a stream of their own."""
        since = max(a.since for a in self._plan.aggregations)
        return self._draw_batches(chosen, Stream.PILOT, number, 1 if first_step_only else since)

    def _batches(self, chosen: IntArray, number: int) -> BatchPlan:
        return self._draw_batches(chosen, Stream.BATCHES, number, self._plan.aggregations[-1].step)

    def _draw_batches(self, chosen: IntArray, stream: Stream, number: int, steps: int) -> BatchPlan:
        """So many steps for everybody chosen, or the epochs that the spec asks for instead."""
        training = self._plan.spec.training
        rng = generator(self._plan.spec.seed, stream, number)
        rows = [self._partition.indices(int(device)) for device in chosen]
        if training.local_epochs is not None:
            return plan_epochs(rows, epochs=training.local_epochs, batch_size=training.batch_size, rng=rng)
        return plan_steps(rows, steps=steps, batch_size=training.batch_size, rng=rng)

    def _to_resend(self, leaf_of: IntArray) -> _Resent | None:
        """Nothing done yet, by the participants under leaves that resend; ``None`` where nobody does."""
        resends = self._plan.ledger.steps[-1].fresh[leaf_of]
        if not resends.any():
            return None
        place = np.where(resends, np.cumsum(resends) - 1, -1)
        return _Resent(torch.zeros(int(resends.sum()), self._parameters, device=self._device), place)

    def _collect(
        self,
        models: Tensor,
        chosen: IntArray,
        leaf_of: IntArray,
        piece: BatchPlan,
        number: int,
        index: int,
        resent: _Resent | None,
    ) -> tuple[Tensor, float]:
        """Train everybody chosen and sum their (noised) messages leaf by leaf.

        Args:
            models: the model each leaf's devices start from, ``[leaves, M]``.
            chosen: the devices, ``[P]``.
            leaf_of: their leaves, ``[P]``.
            piece: their batches until this aggregation.
            number: of the round.
            index: of the aggregation.
            resent: where devices repeat the whole round at its end, what they have so far; added to.

        Returns:
            Sums ``[leaves, M]``, and how many messages clipping changed.
        """
        facts, unit = self._plan.ledger.steps[index], self._plan.unit(number)
        sums, clipped = torch.zeros_like(models), 0.0
        for chunk in self._engine.train(self._task(number), models, torch.from_numpy(leaf_of), piece):
            updates, leaves, devices = chunk.updates, leaf_of[chunk.rows], chosen[chunk.rows]
            clipped += float((chunk.steps_clipped if chunk.clipped is None else chunk.clipped.float()).sum())
            if resent is not None:
                self._remember(resent, chunk, again=bool(facts.fresh.any()))
            self._keep_within(updates, facts.bound[leaves] * unit, models, number, index)
            starts = np.flatnonzero(np.diff(leaves, prepend=-1))
            for start, stop in zip(starts, [*starts[1:], len(leaves)], strict=True):
                leaf = int(leaves[start])
                sums[leaf] += updates[start:stop].sum(dim=0)
                std = float(facts.device_std[leaf]) * unit
                if std > 0:
                    for device in devices[start:stop]:
                        sums[leaf] += self._noise(std, (number, index, self._plan.tree.depth, int(device)))
        return sums, clipped

    def _remember(self, resent: _Resent, chunk: UpdateChunk, *, again: bool) -> None:
        """Add a chunk to what its devices did in the round; with ``again``, make that their message."""
        members = np.flatnonzero(resent.place[chunk.rows] >= 0)
        rows = torch.from_numpy(resent.place[chunk.rows][members]).to(self._device)
        here = torch.from_numpy(members).to(self._device)
        resent.updates.index_add_(0, rows, chunk.updates[here])
        if again:
            chunk.updates[here] = self._whole_round(resent.updates[rows])

    def _whole_round(self, whole: Tensor) -> Tensor:
        """A device's whole round as one message; clipped as one where whole messages are."""
        clip = self._plan.spec.privacy.clip
        if clip is None or clip.kind == "step":
            return whole
        return FlatClip(clip.norm).clip_(whole).vectors

    def _task(self, number: int) -> LocalTask:
        training, clip = self._plan.spec.training, self._plan.spec.privacy.clip
        step_clip = clip.norm if clip is not None and clip.kind == "step" else None
        update_clip = FlatClip(clip.norm) if clip is not None and clip.kind == "update" else None
        return LocalTask(LocalSGD(learning_rate(training, number), training.momentum, step_clip), update_clip)

    def _aggregate(self, values: Tensor, aggregation: Aggregation, number: int, index: int) -> Tensor:
        """Average up to the aggregating tier, each node adding its noise; broadcast down: ``[leaves, M]``."""
        tree, unit = self._plan.tree, self._plan.unit(number)
        facts = self._plan.ledger.steps[index]
        for tier in range(tree.depth - 1, aggregation.tier - 1, -1):
            if tier < tree.depth - 1:
                parents = tree.tiers[tier + 1].parents
                starts = np.flatnonzero(np.diff(parents, prepend=-1))  # parents ascend
                values = torch.stack(
                    [part.mean(dim=0) for part in torch.tensor_split(values, starts[1:].tolist())]
                )
            for node in np.flatnonzero(facts.node_std[tier]):
                std = float(facts.node_std[tier][node]) * unit
                values[int(node)] += self._noise(std, (number, index, tier, int(node)))
        return values[torch.from_numpy(tree.paths[:, aggregation.tier]).to(self._device)]

    def _noise(self, std: float, key: tuple[int, ...]) -> Tensor:
        return gaussian(self._parameters, std, seed=self._plan.spec.seed, key=key, device=self._device)

    def _keep_within(
        self, messages: Tensor, bounds: npt.NDArray[np.float64], models: Tensor, number: int, index: int
    ) -> None:
        """Refuse to send what the accountant was not told about; take float32 rounding off, in place.

        Clipped steps add up to a message that may exceed the bound of their sum, as every step rounds the
        model it moves. That much is scaled away, so that the bound holds of what is sent; more than that is
        no rounding.

        Args:
            messages: float32 ``[p, M]``.
            bounds: what the schedule declared, ``[p]``.
            models: that the steps started from, ``[leaves, M]``.
            number: of the round.
            index: of the aggregation.

        Raises:
            EnvelopeError: a message is longer than declared, or not finite.
        """
        clip = self._plan.spec.privacy.clip
        if clip is None or not len(messages):
            return
        norms = row_norms(messages)
        allowed = torch.as_tensor(bounds, dtype=torch.float32, device=self._device)
        if bool((norms <= allowed).all()):
            return
        rounding = _ROUNDING * allowed
        if clip.kind == "step":
            steps = self._plan.aggregations[index].step + 1
            rounding = rounding + _ULP * steps * torch.linalg.vector_norm(models, dim=1).max()
        if not bool((norms <= allowed + rounding).all()):
            worst = int((norms / allowed).nan_to_num(nan=math.inf).argmax())
            raise EnvelopeError(
                f"round {number + 1}, {self._plan.ledger.steps[index].name}: a message has norm "
                f"{float(norms[worst]):.6g}, but the schedule declared at most {float(allowed[worst]):.6g}; "
                "nothing of this round was sent"
            )
        messages.mul_(scale_factors(norms / allowed, 1.0)[:, None])

    def _bytes(self, aggregation: Aggregation, participants: int) -> tuple[int, int]:
        """Bytes up and down for one aggregation: float32 vectors, one message a link.

        At the global step idle devices receive the broadcast too.
        """
        tree = self._plan.tree
        between = sum(tree.tiers[t].size for t in range(aggregation.tier + 1, tree.depth))
        receivers = tree.device_count if aggregation.tier == 0 else participants
        message = self._parameters * _FLOAT_BYTES
        return (participants + between) * message, (receivers + between) * message


def draw_participants(plan: TieredPlan, number: int) -> IntArray:
    """Devices that take part in round ``number``, ascending."""
    tree, participants = plan.tree, plan.participants
    if participants.kind == "all":
        return np.arange(tree.device_count, dtype=np.int64)
    rng = generator(plan.spec.seed, Stream.PARTICIPATION, number)
    if participants.kind == "poisson":
        return np.flatnonzero(rng.random(tree.device_count) < participants.rate).astype(np.int64)
    count = int(participants.count[0])
    chosen = [
        first + np.sort(rng.choice(size, size=count, replace=False))
        for first, size in zip(tree.first_device[:-1], tree.devices, strict=True)
    ]
    return np.concatenate(chosen).astype(np.int64)


def server_optimizer(server: Server) -> ServerOptimizer:
    """The optimizer that ``training.server`` asks for."""
    if server.optimizer == "adam":
        return ServerAdam(server.learning_rate, server.beta1, server.beta2, server.epsilon)
    return ServerSGD(server.learning_rate, server.momentum)


def _steps_of(batches: BatchPlan, aggregation: Aggregation) -> BatchPlan:
    """The part of a round's batches that falls between two aggregations."""
    first = aggregation.step - aggregation.since
    steps = (batches.steps - first).clamp(0, aggregation.since)
    span = slice(first, aggregation.step)
    return BatchPlan(batches.rows[:, span].contiguous(), batches.counts[:, span].contiguous(), steps)
