"""The operations that the rounds of grouped protocols are made of: train, clip, noise, send, release.

Every grouped protocol has a file of its own beside this one, which puts these operations in order.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from sfumato.data.partition import Partition
from sfumato.distributed.ranks import ALONE
from sfumato.engine.base import Engine, LocalTask
from sfumato.errors import EnvelopeError
from sfumato.learning.batches import BatchPlan
from sfumato.learning.norms import drop_non_finite_, row_norms
from sfumato.learning.server_optimizer import ServerState
from sfumato.mechanisms.clipping import FlatClip
from sfumato.mechanisms.registry import mechanism_of
from sfumato.protocols.base import RoundStats
from sfumato.protocols.device_vectors import DeviceVectors
from sfumato.protocols.groups.compressed_messages import (
    Noise,
    coordinates_of,
    noise_and_round_,
    noise_sums_,
)
from sfumato.protocols.message_hooks import Listener
from sfumato.protocols.sums import Sums
from sfumato.protocols.tree.local_work import (
    draw_batches,
    dropout_draws,
    local_sgd,
    server_optimizer,
    step_noise,
)
from sfumato.radio.costs import Cost
from sfumato.radio.group_costs import GroupCosts
from sfumato.random import Stream, key_at
from sfumato.schedule.group_participation import GroupAssignments, GroupTurnout, group_turnout, without_lost
from sfumato.schedule.groups import GroupPlan
from sfumato.schedule.message_grid import group_grid

IntArray = npt.NDArray[np.int64]
ROUNDING = 1e-4
"""What float32 may make of a clipped message's norm, as a share of the bound."""


class GroupOperations:
    """What workers and masters do in a round.

    Args:
        plan: resolved.
        engine: trains workers.
        partition: who holds which rows.
        parameters: P, length of the model's flat vector.
        listener: hears every message, sum and model; the index of a worker's message is its group.
        norms: a pilot's list, which the norms of messages that nobody clips are added to.
    """

    def __init__(
        self,
        plan: GroupPlan,
        engine: Engine,
        partition: Partition,
        parameters: int,
        listener: Listener | None = None,
        norms: list[Tensor] | None = None,
    ) -> None:
        self.plan = plan
        self.parameters = parameters
        self.device = torch.device(engine.settings.device)
        self._engine = engine
        self._partition = partition
        self._costs = GroupCosts.of(plan.spec, plan.groups, parameters)
        self._listener = listener
        self._mechanism = mechanism_of(plan.spec)
        self._unclipped_norms = norms
        # all updates, and not only their sums, are needed by who records them or keeps their norms
        self.ranks = ALONE if listener is not None or norms is not None else engine.ranks
        self.server = server_optimizer(plan.spec.training.server)

    @property
    def denominators(self) -> Tensor:
        """The public numbers that the groups' sums are divided by, ``[M, 1]``."""
        return torch.from_numpy(self.plan.denominators)[:, None].to(self.device)

    def turnout(self, number: int) -> GroupTurnout | None:
        """Which messages of round ``number`` (from 0) arrive; ``None`` where the spec lets none be lost."""
        return group_turnout(self.plan, number)

    def start(self, models: Tensor, assignments: GroupAssignments, *, merge: bool) -> tuple[Tensor, Tensor]:
        """The models that workers start a round from: the group's own, or the mean over the worker's groups.

        Args:
            models: of the groups ``[M, P]``.
            assignments: who trains for which group, ``[p]``.
            merge: whether a worker starts from the mean of its groups' models.

        Returns:
            The models ``[groups or classes, P]``, and int64 ``[p]``, the row from which each assignment
            starts.
        """
        if not merge:
            return models, torch.from_numpy(assignments.groups)
        own = self.plan.groups.classes.class_of[assignments.workers]
        return self.mean_of_groups(models), torch.from_numpy(own)

    def mean_of_groups(self, models: Tensor) -> Tensor:
        """The models that workers of several groups start from: their groups' mean, ``[classes, P]``.

        One row for each class of workers in the same groups. ``models``: of the groups, ``[M, P]``.
        """
        classes = self.plan.groups.classes
        return torch.from_numpy(classes.averaging(len(models))).float().to(self.device) @ models

    def zero_vectors(self) -> DeviceVectors:
        """New vectors of length P, all zero, one for every assignment, whose number is the key.

        DP-OGL+ keeps in them what workers have learned since an interval began.
        """
        return DeviceVectors(torch.zeros(self.parameters, device=self.device), self.ranks)

    def train(
        self,
        assignments: GroupAssignments,
        start: Tensor,
        start_of: Tensor,
        number: int,
        *,
        rounds: int = 1,
        vectors: DeviceVectors | None = None,
    ) -> Iterator[tuple[IntArray, Tensor]]:
        """Train every assignment's worker for the steps of ``rounds`` rounds, from ``number`` (from 0) on.

        Assignment a starts from row ``start_of[a]`` of ``start`` ``[n, P]``; ``vectors`` move to their ranks.

        Yields:
            Indices of assignments, ascending ``[p]``, and their updates, not clipped or noised as messages
            yet, float32 ``[p, P]``: those this rank trains; all where ``self.ranks`` is `ALONE`.
        """
        spec, pairs = (
            self.plan.spec,
            zip(assignments.groups.tolist(), assignments.workers.tolist(), strict=True),
        )
        addresses = [(number, *pair) for pair in pairs]
        task = LocalTask(
            local_sgd(spec, number),
            step_noise=step_noise(spec, addresses),
            dropout=dropout_draws(spec, addresses),
            gathers=self.ranks is ALONE,
        )
        batches = self._batches(assignments, number, rounds)
        if vectors is not None:
            vectors.move_(np.arange(len(addresses)), self._engine.owners(task, batches))
        for chunk in self._engine.train(task, start, start_of, batches):
            yield chunk.rows, chunk.updates

    def _batches(self, assignments: GroupAssignments, number: int, rounds: int) -> BatchPlan:
        """Draw every assignment's mini-batches for the steps of ``rounds`` rounds from ``number`` on."""
        training = self.plan.spec.training
        return draw_batches(
            training,
            [self._partition.indices(int(worker)) for worker in assignments.workers],
            list(zip(assignments.groups.tolist(), assignments.workers.tolist(), strict=True)),
            persons=self._partition.persons_of(assignments.workers.tolist()),
            steps=(training.local_steps or 1) * rounds,
            passes=rounds,
            seed=self.plan.spec.seed,
            stream=Stream.BATCHES if training.batches == "shuffled" else Stream.POISSON_BATCHES,
            address=(number,),
        )

    def _clip_(self, updates: Tensor, groups: IntArray) -> int:
        """Clip ``updates`` ``[p, P]`` of workers in ``groups`` ``[p]`` to the groups' l2 bounds, in place.

        Without bounds, updates that are not finite become zeros.

        Returns:
            The number of updates that clipping changed.

        Raises:
            EnvelopeError: an update is longer than declared even after clipping.
        """
        bounds = self.plan.bounds[groups]
        if not np.isfinite(bounds).all():
            drop_non_finite_(updates, self.norms_of(updates))
            return 0
        changed, starts = 0, np.flatnonzero(np.diff(bounds, prepend=np.nan) != 0)
        for start, stop in zip(starts, [*starts[1:], len(bounds)], strict=True):
            of_one_bound, bound = updates[start:stop], float(bounds[start])
            changed += int(FlatClip(bound).clip_(of_one_bound).clipped.sum())
            largest = float(row_norms(of_one_bound).max())
            if not largest <= bound * (1 + ROUNDING):
                raise EnvelopeError(
                    f"a message has norm {largest:.6g}, but the schedule declared at most {bound:.6g}"
                )
        return changed

    def norms_of(self, updates: Tensor) -> Tensor:
        """L2 norms ``[p]`` of ``updates`` ``[p, P]`` that nobody clips; a pilot's list records them too."""
        norms = row_norms(updates)
        if self._unclipped_norms is not None:
            self._unclipped_norms.append(norms.cpu())
        return norms

    def send_(
        self,
        updates: Tensor,
        assignments: GroupAssignments,
        rows: IntArray,
        number: int,
        sums: Sums,
        *,
        base: Tensor | None = None,
    ) -> int:
        """Clip ``updates``, in place, noise those to untrusted masters, and add them to ``sums``.

        Args:
            updates: ``[p, P]``; those that are lost become zeros.
            assignments: of the whole round.
            rows: the assignments that the updates are of, ``[p]``.
            number: of the round, from 0.
            sums: of the groups' messages.
            base: the groups' models before the release ``[M, P]``; with compression they choose the
                coordinates that are sent. ``None``: all are sent.

        Returns:
            How many updates clipping changed.

        Raises:
            EnvelopeError: a message exceeds what the plan declared.
        """
        groups, workers = assignments.groups[rows], assignments.workers[rows]
        clipped = self._clip_(updates, groups)
        stds = np.where(self.plan.trusted, 0.0, self.plan.noise_std(number))[groups]

        def key_of(row: int) -> bytes:
            return self._noise_key(number, groups[row], workers[row])

        chosen = None if base is None else coordinates_of(self.plan, number, base)
        if chosen is None:
            self._mechanism.add_(updates, stds, key_of)
        else:
            noise = Noise(self._mechanism, chosen, stds, key_of)
            noise_and_round_(updates, GroupAssignments(workers, groups), self.plan, number, noise)
        self.hand_over_(updates, assignments, rows, number, sums)
        return clipped

    def hand_over_(
        self, messages: Tensor, assignments: GroupAssignments, rows: IntArray, number: int, sums: Sums
    ) -> None:
        """Report ``messages`` ``[p, P]`` to the listener and add them to ``sums``; lost ones are set to 0.

        They are of the assignments ``rows`` ``[p]`` in round ``number``.

        Raises:
            EnvelopeError: a message is too large for the grid on which sums are formed.
        """
        if self._listener is not None:
            self._tell_sent(sums.rounded(messages), assignments, rows, number, self._listener)
        turnout = self.turnout(number)
        if turnout is not None:
            lost = ~turnout.received[rows]
            messages[torch.from_numpy(lost).to(messages.device)] = 0.0
        sums.add(assignments.groups[rows], messages)

    def release(
        self, server: ServerState, base: Tensor, sums: Sums, number: int
    ) -> tuple[ServerState, Tensor]:
        """Noise the averages, step each master's optimizer from ``base`` ``[M, P]``, report the models.

        ``sums`` are of the groups' messages in round ``number``. Returns the optimizers' next state, and the
        groups' new models ``[M, P]``.
        """
        server, models = self.server.step(server, base, self.noised_averages(sums, number, base=base))
        self.tell_broadcast(models, number)
        return server, models

    def noised_averages(self, messages: Sums, number: int, *, base: Tensor | None = None) -> Tensor:
        """The groups' averages, float32 ``[M, P]``: ``messages`` summed, noised by trusted masters, divided.

        In the release of round ``number``. A group without a sum gets no noise: its average is zero. With
        compression only coordinates that ``base`` (models before the release ``[M, P]``) chooses are noised.
        """
        plan, turnout, sums = self.plan, self.turnout(number), self.values(messages)
        self.tell_received(sums, number)
        stds = np.where(plan.trusted, plan.noise_std(number), 0.0)
        if turnout is not None:
            stds = np.where(turnout.formed, stds, 0.0)
        chosen = None if base is None else coordinates_of(plan, number, base)
        if chosen is None:
            self._mechanism.add_(sums, stds, lambda group: self._noise_key(number, group))
        else:
            noise_sums_(
                sums, Noise(self._mechanism, chosen, stds, lambda group: self._noise_key(number, group))
            )
        return self.averages(sums)

    def sums(self, number: int, *, clipped: bool = True) -> Sums:
        """Make empty sums of messages, one a group, for round ``number``.

        ``clipped``: whether messages have a bound, so that sums are formed on the plan's grid.
        """
        grid = group_grid(self.plan, number, self.parameters) if clipped else None
        return Sums(self.plan.groups.count, self.parameters, grid, self.ranks)

    def values(self, sums: Sums) -> Tensor:
        """``sums`` of each group's messages as float64 ``[M, P]`` of M groups, added up over all ranks.

        To be called once for the sums of a round, by every rank.
        """
        return sums.values().to(self.device)

    def averages(self, sums: Tensor) -> Tensor:
        """``sums`` ``[M, P]`` divided by the groups' denominators, float32."""
        return (sums / self.denominators).float()

    def _tell_sent(
        self,
        messages: Tensor,
        assignments: GroupAssignments,
        rows: IntArray,
        number: int,
        listener: Listener,
    ) -> None:
        """Report to ``listener``, group by group, the messages sent, whether lost later or not.

        ``messages`` ``[p, P]`` are of the assignments ``rows`` ``[p]`` in round ``number``.
        """
        groups, turnout = assignments.groups[rows], self.turnout(number)
        sent = np.ones(len(groups), bool) if turnout is None else turnout.sent[rows]
        for group in np.unique(groups[sent]):
            places = np.flatnonzero(sent & (groups == group))
            workers, vectors = assignments.workers[rows[places]], messages[torch.from_numpy(places)]
            listener.sent(number, int(group), 2, workers, vectors)

    def tell_received(self, sums: Tensor, number: int) -> None:
        """Report the sums ``[M, P]`` that masters received in round ``number`` to the listener, if any."""
        if self._listener is not None:
            self._listener.received(number, 0, 1, sums.float())

    def tell_broadcast(self, models: Tensor, number: int) -> None:
        """Report the models ``[M, P]`` that masters send in round ``number`` to the listener, if any."""
        if self._listener is not None:
            self._listener.broadcast(number, 0, 1, models)

    def _noise_key(self, *address: int) -> bytes:
        """The key of noise at an address in the stream NOISE of the run's seed."""
        return key_at(self.plan.spec.seed, Stream.NOISE, *address)

    def stats(
        self, number: int, assignments: GroupAssignments, clipped: int | None, *, silent: bool = False
    ) -> RoundStats:
        """The measurements of round ``number``: participants, clipped share, noise and costs.

        Participants are workers whose message is in a sum; noise is the root mean square over groups' models.
        ``clipped``: messages of this rank that clipping changed, ``None`` where nothing was released;
        ``silent``: whether nobody sends anything in this round.
        """
        plan, messages = self.plan, len(assignments.workers)
        if clipped is not None:  # by the updates of this rank
            clipped = int(self.ranks.added(np.array([clipped]))[0])
        turnout = None if silent else self.turnout(number)
        bounded = clipped is not None and messages and bool(np.isfinite(plan.bounds).all())
        noise = (
            0.0 if clipped is None else float(np.sqrt(np.mean(self._model_noise_std(turnout, number) ** 2)))
        )
        if plan.spec.privacy.step_noise:
            noise = float("nan")
        links = plan.groups.positions(assignments.groups, assignments.workers)
        lost = None if turnout is None else ~turnout.sent
        cost = Cost() if silent else self._costs.round(number, links, lost)
        return RoundStats(
            participants=np.unique(without_lost(assignments, turnout).workers),
            clip_fraction=(clipped or 0) / messages if bounded else float("nan"),
            noise_std=noise,
            energy_j=cost.energy_j,
            delay_s=cost.delay_s,
            bytes_up=cost.bytes_up,
            bytes_down=cost.bytes_down,
        )

    def _model_noise_std(self, turnout: GroupTurnout | None, number: int) -> npt.NDArray[np.float64]:
        """Give the noise std, a coordinate, of each group's model ``[M]`` after round ``number``.

        ``turnout``: whose messages arrived; ``None``: all.
        """
        plan = self.plan
        if turnout is None:
            return plan.model_noise_std(number)
        noisers = np.where(plan.trusted, turnout.formed, turnout.counts)
        return plan.noise_std(number) * np.sqrt(noisers) / plan.denominators
