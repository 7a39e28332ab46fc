"""The rounds of a tree: H2FDP, HFL, HFL-DP, PEDPFL, DP-FedAvg (docs/concepts.md).

State in, state out. Everything random comes from addressed streams, so a round is a function of the
plan, the state and its number: a resumed run replays it to the bit.
"""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from sfumato.data.partition import Partition
from sfumato.distributed.ranks import ALONE, filled_in
from sfumato.engine.base import Engine, LocalTask
from sfumato.learning.batches import BatchPlan
from sfumato.mechanisms.clipping import FlatClip
from sfumato.mechanisms.registry import mechanism_of
from sfumato.protocols.base import PilotNorms, RoundStats
from sfumato.protocols.device_vectors import DeviceVectors
from sfumato.protocols.evaluator import Evaluator
from sfumato.protocols.message_hooks import Listener
from sfumato.protocols.sums import Sums
from sfumato.protocols.tree.aggregates import Aggregates, FloatAggregates, IntegerAggregates, RoundOrigin
from sfumato.protocols.tree.control_variates import (
    ControlVariates,
    length_of_steps,
    share_taking_part,
)
from sfumato.protocols.tree.gathering import ranks_of_sums
from sfumato.protocols.tree.indicators import UNCLIPPED, Indicators
from sfumato.protocols.tree.local_work import (
    batches_before,
    batches_from,
    batches_of,
    dropout_draws,
    keep_within_,
    local_task,
    server_optimizer,
    step_noise,
    unclipped_sgd,
)
from sfumato.protocols.tree.resent_rounds import ResentRound
from sfumato.protocols.tree.state import TreeState
from sfumato.protocols.tree.uplinks.base import Received, Uplink, uplink_columns
from sfumato.protocols.tree.uplinks.registry import uplink_of
from sfumato.radio.costs import Cost, TreeCosts
from sfumato.random import Stream
from sfumato.schedule.adaptive_clip import adaptive_clip_of
from sfumato.schedule.faults.dropouts import Attendance
from sfumato.schedule.local_steps import Aggregation
from sfumato.schedule.participation import draw_participants
from sfumato.schedule.tree import TreePlan

IntArray = npt.NDArray[np.int64]


class TreeProtocol:
    """Runs a plan of a tree.

    Args:
        plan: resolved and calibrated.
        engine: trains devices.
        partition: who holds which rows.
        parameters: M, length of the model's flat vector.
        listener: hears every message, average and model.
    """

    metrics: ClassVar[tuple[str, ...]] = ("accuracy", "loss")

    def __init__(
        self,
        plan: TreePlan,
        engine: Engine,
        partition: Partition,
        parameters: int,
        listener: Listener | None = None,
    ) -> None:
        self._plan = plan
        self._engine = engine
        self._partition = partition
        self._parameters = parameters
        self._server = server_optimizer(plan.spec.training.server)
        self._device = torch.device(engine.settings.device)
        self._costs = TreeCosts.of(plan.spec, plan.tree, parameters)
        self._listener = listener
        self._mechanism = mechanism_of(plan.spec)
        self._adapts_clip = adaptive_clip_of(plan.spec) is not None
        self.ranks = ranks_of_sums(engine.ranks, plan, listener)
        self._uplink = uplink_of(plan, self._device, parameters + self._adapts_clip, None, self.ranks)

    def initial(self, model: Tensor) -> TreeState:
        """The state before the first round, from the initial model ``[M]``."""
        model = model.to(self._device)
        compression = self._plan.spec.compression
        memory = None
        if compression is not None and compression.error_feedback:
            memory = DeviceVectors(torch.zeros_like(model), self.ranks)
        variates = ControlVariates.initial(self._plan, model, self.ranks)
        return TreeState(0, model, self._server.initial(model), memory, variates)

    def run_round(self, state: TreeState) -> tuple[TreeState, RoundStats]:
        """Run round ``state.round`` (from 0); returns the state after it, and participants, noise and costs.

        Raises:
            EnvelopeError: a message exceeds what the plan declared; nothing of the round is kept.
        """
        plan, number = self._plan, state.round
        chosen = draw_participants(plan, number)
        leaf_of = plan.tree.leaves_of(chosen)
        batches = self._batches(chosen, number)
        indicators = self._indicators(number)
        begin = state.model if indicators is None else torch.cat([state.model, state.model.new_zeros(1)])
        origin = RoundOrigin(begin)
        values = origin.offset.repeat(plan.tree.leaf_count, 1)
        resends = plan.releases.steps[-1].resends[leaf_of]
        resent = ResentRound.begin(plan, resends, self._parameters, self._device) if resends.any() else None
        variates = None if state.variates is None else state.variates.copy()
        uplink, memory = self._uplink, None if state.memory is None else state.memory.copy()
        if memory is not None:
            uplink = uplink_of(plan, self._device, len(begin), memory, self.ranks)
        remembered = memory if variates is None else variates.devices
        clipped, cost, costs, messages = 0.0, Cost(), self._costs.round(number), 0
        heard: list[Received] = []
        for index, aggregation in enumerate(plan.aggregations):
            rows = np.flatnonzero(plan.sends(index)[leaf_of])
            # one aggregation takes it all: with epochs the steps differ from device to device
            piece = batches if len(plan.aggregations) == 1 else batches_before(batches, aggregation, leaf_of)
            if len(rows) < len(chosen):
                piece = piece.of(torch.from_numpy(rows))
            part = None if resent is None else resent.of(rows)
            received, changed = self._collect(
                uplink, origin.models(values), chosen[rows], piece, number, index, part, variates, remembered
            )
            anew = torch.from_numpy(plan.releases.steps[index].resends).to(self._device)[:, None]
            level = self._leaf_aggregates(torch.where(anew, 0.0, values), received)
            listener = origin.listener_of_models(self._listener)
            values = self._aggregate(level, received.available, aggregation, number, index, listener)
            clipped, messages = clipped + changed, messages + len(rows)
            broadcasts = plan.releases.steps[index].leaf_broadcasts
            also_to = None if broadcasts is None else chosen[broadcasts[leaf_of]]
            turnout = received.turnout
            hop = received.air if turnout is None else turnout.attempts(leaf_of[rows])
            cost = cost.then(costs.aggregation(aggregation.tier, chosen[rows], hop, also_to))
            heard.append(received)
        change = values[0, : self._parameters].float()
        server, model = self._server.step(state.server, state.model, change)
        if variates is not None:
            steps, share = length_of_steps(plan, number), share_taking_part(plan)
            variates = replace(variates, server=variates.updated_server_variate(steps, share, change))
        facts = RoundStats(
            participants=np.unique(np.concatenate([received.devices for received in heard])),
            clip_fraction=clipped / messages if messages and plan.spec.privacy.clip else float("nan"),
            noise_std=self._noise_std(heard, chosen, number),
            energy_j=cost.energy_j,
            delay_s=cost.delay_s,
            bytes_up=cost.bytes_up,
            bytes_down=cost.bytes_down,
            extra=uplink_columns(heard) | _unclipped(indicators, values[0]),
        )
        return TreeState(number + 1, model, server, memory, variates), facts

    def _noise_std(self, heard: list[Received], chosen: IntArray, number: int) -> float:
        """Std, a coordinate, of what round ``number`` leaves in the global model; NaN with step noise.

        ``heard``: what leaves received in each aggregation; ``chosen``: numbers of the participants.
        """
        plan = self._plan
        if plan.spec.privacy.step_noise:
            return math.nan
        over = plan.participants.count / plan.denominators_of(chosen)
        noise = plan.noise_with(
            np.stack([self._message_counts(received) * over**2 for received in heard]),
            [received.channel_variance for received in heard],
            np.stack([received.available for received in heard]),
        )
        return math.sqrt(sum(noise)) * plan.message_scale(number)

    def _message_counts(self, received: Received) -> npt.NDArray[np.float64]:
        """Count the messages in every leaf's average, ``[leaves]``; 0 for a leaf without an average."""
        tree = self._plan.tree
        leaves = tree.leaves_of(received.devices)
        return np.where(received.available, np.bincount(leaves, minlength=tree.leaf_count), 0.0)

    def rounds_expected(self, state: TreeState) -> int:
        """The number of rounds in the spec."""
        return self._plan.spec.training.rounds

    def spent(self, state: TreeState) -> None:
        """``None``: the plan declares every round, so there is no filter."""

    def model(self, state: TreeState) -> Tensor:
        """The global model ``[M]`` of a state, flat."""
        return state.model

    def artifacts(self, state: TreeState) -> dict[str, Tensor]:
        """Always an empty dict: a finished run in a tree keeps no tensors beside the global model."""
        return {}

    def realised_facts(self, state: TreeState) -> dict[str, Any]:
        """Who survived each round and who served as supernode, as JSON; {} where the plan settles both."""
        attendance = Attendance.of(self._plan, state.round)
        return {} if attendance is None else attendance.to_dict()

    def is_finite(self, state: TreeState) -> bool:
        """Whether every coordinate of the global model is a finite number."""
        return bool(torch.isfinite(state.model).all())

    def scores(self, state: TreeState, examination: Evaluator) -> dict[str, float]:
        """Score the global model by ``examination``: ``accuracy`` (0 to 1), ``loss`` (nats) and others."""
        score = examination.score(state.model)
        return {"accuracy": score.accuracy, "loss": score.loss, **score.measures}

    def pilot(self, model: Tensor, rounds: int) -> PilotNorms:
        """Norms of messages without clip and noise, for choosing a clip norm.

        The mean of all updates trains ``model`` ``[M]`` for at most ``rounds`` rounds, and no more than the
        spec has. With ``clip: {kind: step}`` the norms are those of mini-batch gradients, else of whole
        messages.
        """
        training, clip = self._plan.spec.training, self._plan.spec.privacy.clip
        per_step = clip is not None and clip.kind == "step"
        norms: list[Tensor] = []
        model = model.to(self._device)
        for number in range(min(rounds, training.rounds)):
            chosen = draw_participants(self._plan, number)
            sgd = unclipped_sgd(self._plan.spec, number)
            if per_step:
                sgd = replace(sgd, proximal=0.0)  # which would shorten what is measured
            # after the addresses of all aggregations, as a pilot is no part of the run
            addresses = [(number, len(self._plan.aggregations), device) for device in chosen.tolist()]
            task = LocalTask(sgd, FlatClip(1e30), dropout=dropout_draws(self._plan.spec, addresses))
            batches = self._pilot_batches(chosen, number, first_step_only=per_step)
            together = torch.zeros(len(chosen), dtype=torch.int64)
            total = Sums(1, len(model), None)
            for chunk in self._engine.train(task, model[None], together, batches):
                assert chunk.norms is not None  # a clip was set
                norms.append(chunk.norms.cpu() / sgd.learning_rate if per_step else chunk.norms.cpu())
                total.add(np.zeros(len(chunk.updates), np.int64), chunk.updates)
            model = RoundOrigin(model).models(total.values()[0].to(model) / max(1, len(chosen)))
        what = "mini-batch gradients" if per_step else "messages (updates of a whole round)"
        found = torch.cat(norms) if norms else torch.zeros(0)
        return PilotNorms(what, found, min(rounds, training.rounds))

    def _pilot_batches(self, chosen: IntArray, number: int, *, first_step_only: bool) -> BatchPlan:
        """Draw the batches of ``chosen`` in round ``number`` of a pilot, from a stream of its own.

        ``first_step_only``: whether those of one step only are needed.
        """
        longest = max(a.local_steps for a in self._plan.aggregations)
        steps = 1 if first_step_only else longest
        return batches_from(Stream.PILOT, self._plan, self._partition, chosen, number, steps)

    def _indicators(self, number: int) -> Indicators | None:
        """Give the coordinate that tells if messages of round ``number`` were clipped.

        ``None`` if the norm is fixed.
        """
        return Indicators.of(self._plan, number) if self._adapts_clip else None

    def _batches(self, chosen: IntArray, number: int) -> BatchPlan:
        """Draw the mini-batches of the devices ``chosen`` ``[P]`` in round ``number``."""
        return batches_of(self._plan, self._partition, chosen, number)

    def _collect(
        self,
        uplink: Uplink,
        models: Tensor,
        chosen: IntArray,
        piece: BatchPlan,
        number: int,
        index: int,
        resent: ResentRound | None,
        variates: ControlVariates | None,
        remembered: DeviceVectors | None,
    ) -> tuple[Received, float]:
        """Train everybody who takes part in an aggregation and send their messages to their leaves.

        Args:
            uplink: carries them.
            models: the model each leaf's devices start from, ``[leaves, M]``.
            chosen: the devices, ``[P]``.
            piece: their batches since their last aggregation, until this one.
            number: of the round.
            index: of the aggregation.
            resent: where devices repeat the whole round at its end, what they have so far; added to.
            variates: of the round's begin, where devices keep any; those of the devices are written anew.
            remembered: what devices do remember; brought to the ranks that train them.

        Returns:
            What the leaves received, and how many messages clipping changed.
        """
        plan, unit, clipped = self._plan, self._plan.message_scale(number), np.zeros(len(chosen))
        again, leaf_of = bool(plan.releases.steps[index].resends.any()), plan.tree.leaves_of(chosen)
        collector = uplink.open(number, index, chosen, models, self._listener)
        task = self._task(chosen, number, index, variates)
        if remembered is not None:
            assert remembered.ranks is self.ranks  # else some of it would be missing here
            remembered.move_(chosen, self._engine.owners(task, piece))
        indicators = self._indicators(number)
        start = models[:, : self._parameters]
        for chunk in self._engine.train(task, start, torch.from_numpy(leaf_of), piece):
            leaves, devices = leaf_of[chunk.rows], chosen[chunk.rows]
            share = chunk.steps_clipped if chunk.clipped is None else chunk.clipped
            clipped[chunk.rows] = share.double().cpu().numpy()
            if resent is not None:
                resent.add_(chunk, again=again)
            if variates is not None:
                own = variates.updated_variates(length_of_steps(plan, number), devices, chunk.updates)
                variates.devices.write_(devices, own)
            updates = chunk.updates if indicators is None else indicators.appended(chunk)
            if plan.participants.weights is not None:
                weights = torch.as_tensor(plan.weights_of(devices), dtype=torch.float32)
                updates.mul_(weights.to(self._device)[:, None])
            keep_within_(plan, updates, plan.bounds_of(index, devices) * unit, number, index)
            collector.add(devices, leaves, updates)
        shares = torch.from_numpy(filled_in(self.ranks, clipped))
        return collector.received(), float(shares.float().sum())

    def _task(self, chosen: IntArray, number: int, index: int, variates: ControlVariates | None) -> LocalTask:
        """Describe what ``chosen`` ``[P]`` do in round ``number`` until aggregation ``index``.

        ``variates``: SCAFFOLD's.
        """
        spec, addresses = self._plan.spec, [(number, index, device) for device in chosen.tolist()]
        return replace(
            local_task(spec, number),
            step_noise=step_noise(spec, addresses),
            corrections=None if variates is None else variates.corrections(chosen),
            dropout=dropout_draws(spec, addresses),
            gathers=self.ranks is ALONE,
        )

    def _leaf_aggregates(self, base: Tensor, received: Received) -> Aggregates:
        """Make the leaves' aggregates: ``base`` ``[leaves, M]`` plus the average that each received."""
        tree, seed = self._plan.tree, self._plan.spec.seed
        if received.integer_sums is None:
            return FloatAggregates(
                tree,
                tree.depth - 1,
                seed,
                base + received.averages,
                received.coordinates,
                self._mechanism,
            )
        exact = received.integer_sums
        return IntegerAggregates(exact.ring, tree.depth - 1, seed, base, exact.sums, received.coordinates)

    def _aggregate(
        self,
        level: Aggregates,
        formed: npt.NDArray[np.bool_],
        aggregation: Aggregation,
        number: int,
        index: int,
        listener: Listener | None,
    ) -> Tensor:
        """Average up to the aggregating tier, where nodes add noise, and broadcast down: ``[leaves, M]``.

        ``level`` is what the leaves hold; those without an average (not ``formed`` ``[leaves]``) add no
        noise. ``listener`` hears what nodes receive, send and broadcast in aggregation ``index`` of round
        ``number``.
        """
        tree, unit = self._plan.tree, self._plan.message_scale(number)
        facts = self._plan.releases.steps[index]
        for tier in range(tree.depth - 1, aggregation.tier - 1, -1):
            if tier < tree.depth - 1:
                level = level.up()
            if listener is not None:
                listener.received(number, index, tier, level.values)
            std = facts.node_std[tier] * unit
            if tier == tree.depth - 1:
                std = np.where(formed, std, 0.0)
            level = level.noised(std, (number, index))
            if listener is not None and tier > aggregation.tier:
                listener.sent(number, index, tier, np.arange(tree.tiers[tier].size), level.values)
                if facts.leaf_broadcasts is not None and tier == tree.depth - 1:
                    listener.broadcast(number, index, tier, level.values)
        values = level.values
        if listener is not None:
            listener.broadcast(number, index, aggregation.tier, values)
        return values[torch.from_numpy(tree.paths[:, aggregation.tier]).to(self._device)]


def _unclipped(indicators: Indicators | None, average: Tensor) -> dict[str, float]:
    """The metrics column of the noised share of unclipped messages, by name; empty if the norm is fixed.

    ``average``: the global average ``[M + 1]``, the indicators' last.
    """
    return {} if indicators is None else {UNCLIPPED: indicators.unclipped(float(average[-1]))}
