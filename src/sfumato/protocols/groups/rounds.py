"""The grouped protocol, round by round: DP-OGL, DP-OGL+, dp-ogl-local, MS-FedAvg (docs/leakage.md).

State in, state out, as in the tiered protocol: a round is a function of the plan, the state and its
number. A worker in several groups trains once for each group that samples it; all of these *seats* train
together on the device axis.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar, Self

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from sfumato.accounting import epsilon_after
from sfumato.data.partition import Partition
from sfumato.engine.base import Engine
from sfumato.engine.local import LocalTask
from sfumato.errors import EnvelopeError
from sfumato.learning.batches import BatchPlan, plan_epochs, plan_steps
from sfumato.learning.local_training import LocalSGD
from sfumato.learning.norms import drop_non_finite_, row_norms
from sfumato.mechanisms.clipping import FlatClip
from sfumato.mechanisms.noise import add_gaussian_
from sfumato.privacy.observers import Party
from sfumato.protocols.base import PilotNorms, RoundFacts, need_tensors
from sfumato.protocols.evaluator import Examination
from sfumato.protocols.message_hooks import Listener
from sfumato.radio.costs import Cost, GroupCosts
from sfumato.random import Stream, generator, key_at, seed_at
from sfumato.run_folder.reader import GROUPS_FILE
from sfumato.schedule.groups import GroupPlan
from sfumato.schedule.learning_rate import learning_rate

IntArray = npt.NDArray[np.int64]
_ROUNDING = 1e-4


@dataclass(frozen=True)
class GroupedState:
    """What the protocol remembers between rounds.

    Attributes:
        round: how many rounds are done.
        models: the group models, float32 ``[M, P]``, on the engine's device.
        base: DP-OGL+ inside an interval: the models that it began with ``[M, P]``; else ``None``.
        gathered: DP-OGL+ inside an interval: what each seat's worker has learned in it ``[seats, P]``,
            private; else ``None``.
    """

    kind: ClassVar[str] = "grouped"

    round: int
    models: Tensor
    base: Tensor | None = None
    gathered: Tensor | None = None

    def pack(self) -> dict[str, Any]:
        """All of it as numbers, and tensors on the CPU, for a checkpoint."""
        tensors = {"models": self.models, "base": self.base, "gathered": self.gathered}
        return {"round": self.round} | {k: None if t is None else t.cpu() for k, t in tensors.items()}

    @classmethod
    def unpack(cls, packed: Mapping[str, Any], device: str) -> Self:
        """The state that ``packed`` tells, on ``device``; any error at all where it is not one."""
        models, base, gathered = packed["models"], packed["base"], packed["gathered"]
        need_tensors(models, base, gathered)
        if models is None or (base is None) != (gathered is None):
            raise ValueError("its parts do not fit each other")
        if base is None:
            return cls(int(packed["round"]), models.to(device))
        return cls(int(packed["round"]), models.to(device), base.to(device), gathered.to(device))


@dataclass(frozen=True)
class Seats:
    """Who was sampled by which group; groups ascend, workers ascend inside a group.

    Attributes:
        workers: ``[seats]``.
        groups: ``[seats]``.
    """

    workers: IntArray
    groups: IntArray


class GroupedProtocol:
    """Plays a plan.

    Args:
        plan: resolved.
        engine: trains workers.
        partition: who holds which rows.
        parameters: P, length of the model's flat vector.
        listener: hears every message, sum and model; the index of a worker's message is its group.
    """

    metrics: ClassVar[tuple[str, ...]] = ("accuracy", "loss", "personal_accuracy")

    def __init__(
        self,
        plan: GroupPlan,
        engine: Engine,
        partition: Partition,
        parameters: int,
        listener: Listener | None = None,
    ) -> None:
        self._plan = plan
        self._engine = engine
        self._partition = partition
        self._parameters = parameters
        self._device = torch.device(engine.speed.device)
        self._costs = GroupCosts.of(plan.spec, plan.groups, parameters)
        self._piloted: list[Tensor] | None = None
        self._listener = listener

    def initial(self, model: Tensor) -> GroupedState:
        """The state before the first round: every group has the initial model ``[P]``."""
        return GroupedState(0, model.to(self._device).repeat(self._plan.groups.count, 1))

    def personalised(self, state: GroupedState) -> Tensor:
        """The model of every membership class ``[classes, P]``: the mean of its groups' models."""
        return self._merged(state.models)

    def rounds_expected(self, state: GroupedState) -> int:
        """As many as the spec asks for."""
        return self._plan.spec.training.rounds

    def epsilon(self, state: GroupedState, device: int, coalition: Sequence[Party]) -> float:
        """Epsilon of one pair for the rounds done, as declared."""
        return epsilon_after(self._plan, device, tuple(coalition), state.round)

    def model(self, state: GroupedState) -> Tensor:
        """The mean of all workers' personalised models ``[P]``: one model where only one can be kept."""
        counts = torch.from_numpy(self._plan.groups.classes.counts).float().to(self._device)
        return (counts / counts.sum()) @ self.personalised(state)

    def keepsakes(self, state: GroupedState) -> dict[str, Tensor]:
        """The models of all groups ``[M, P]``."""
        return {GROUPS_FILE: state.models}

    def realised(self, state: GroupedState) -> dict[str, Any]:
        """Nothing: all was settled before."""
        return {}

    def is_finite(self, state: GroupedState) -> bool:
        """Whether no group's model has blown up."""
        return bool(torch.isfinite(state.models).all())

    def scores(self, state: GroupedState, examination: Examination) -> dict[str, float]:
        """Means over workers of their own models' scores: on the test set, and on their own labels."""
        found = examination.score_personalised(self.personalised(state), self._plan.groups.classes)
        return {
            "accuracy": found.accuracy,
            "loss": found.loss,
            "personal_accuracy": found.mean_personal_accuracy,
        }

    def pilot(self, model: Tensor, rounds: int) -> PilotNorms:
        """Norms of un-noised, unclipped updates while ``model`` is trained by the plan's own rules.

        Where a message covers an interval, so many intervals are played, and norms are divided by sqrt(S), as
        the bound of such a message is sqrt(S) times ``privacy.clip``. Draws are those of another seed.
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
        pilot = GroupedProtocol(silent, self._engine, self._partition, self._parameters)
        norms: list[Tensor] = []
        pilot._piloted = norms
        state = pilot.initial(model)
        for _ in range(played):
            state, _ = pilot.play(state)
        what = "messages (updates of a whole round)"
        if each > 1:
            what = f"messages (updates of {each} rounds), over √{each}"
        found = torch.cat(norms) / each**0.5 if norms else torch.zeros(0)
        return PilotNorms(what, found, played)

    def play(self, state: GroupedState) -> tuple[GroupedState, RoundFacts]:
        """Play round ``state.round``.

        Raises:
            EnvelopeError: a message exceeds what the plan declared; nothing of the round is kept.
        """
        match self._plan.kind:
            case "dp-ogl":
                return self._play_dp_ogl(state)
            case "dp-ogl+":
                return self._play_dp_ogl_plus(state)
            case "dp-ogl-local":
                return self._play_dp_ogl_local(state)
            case "ms-fedavg":
                return self._play_ms_fedavg(state)

    def _play_dp_ogl(self, state: GroupedState) -> tuple[GroupedState, RoundFacts]:
        """Algorithm 1 of the paper: one sample and one noised release a round."""
        number = state.round
        seats = draw_seats(self._plan, number)
        start, start_of = self._start(state.models, seats, merge=number % self._plan.merge_every == 0)
        sums, clipped = torch.zeros_like(state.models), 0
        for first, updates in self._train(seats, start, start_of, number):
            clipped += self._send_(updates, seats, first, number)
            _add_by_group(sums, updates, seats, first)
        models = self._release(state.models, sums, number)
        return GroupedState(number + 1, models), self._facts(number, seats, clipped)

    def _play_dp_ogl_plus(self, state: GroupedState) -> tuple[GroupedState, RoundFacts]:
        """One sample an interval, un-noised steps inside (11), one noised release at its end (12, 13)."""
        plan, number = self._plan, state.round
        began = plan.interval_start(number)
        seats = draw_seats(plan, began)
        start, start_of = self._start(state.models, seats, merge=number == began)
        base = state.models if state.base is None else state.base
        gathered = torch.zeros(len(seats.workers), self._parameters, device=self._device)
        sums, releasing = torch.zeros_like(base), plan.releases_after(number)
        for first, updates in self._train(seats, start, start_of, number):
            drop_non_finite_(updates, row_norms(updates))
            if not releasing:
                self._tell_sent(updates, seats, first, number)
                _add_by_group(sums, updates, seats, first)
            rows = slice(first, first + len(updates))
            gathered[rows] = updates if state.gathered is None else updates.add_(state.gathered[rows])
        if not releasing:
            models = state.models + sums / self._denominators
            self._tell_received(sums, number)
            self._tell_broadcast(models, number)
            return GroupedState(number + 1, models, base, gathered), self._facts(number, seats, None)
        clipped = 0
        if len(gathered):  # somebody was drawn
            clipped = self._send_(gathered, seats, 0, number)
            _add_by_group(sums, gathered, seats, 0)
        models = self._release(base, sums, number)
        return GroupedState(number + 1, models), self._facts(number, seats, clipped)

    def _play_dp_ogl_local(self, state: GroupedState) -> tuple[GroupedState, RoundFacts]:
        """One sample an interval; everybody trains alone for all its steps and sends one clipped update.

        The work is done in the interval's last round, with the step size of its first; in the others
        nothing is sent, and nothing changes.
        """
        plan, number = self._plan, state.round
        began = plan.interval_start(number)
        seats = draw_seats(plan, began)
        if not plan.releases_after(number):
            return GroupedState(number + 1, state.models), self._facts(number, seats, None, silent=True)
        start, start_of = self._start(state.models, seats, merge=True)
        sums, clipped = torch.zeros_like(state.models), 0
        for first, updates in self._train(seats, start, start_of, began, rounds=plan.merge_every):
            clipped += self._send_(updates, seats, first, number)
            _add_by_group(sums, updates, seats, first)
        models = self._release(state.models, sums, number)
        return GroupedState(number + 1, models), self._facts(number, seats, clipped)

    def _play_ms_fedavg(self, state: GroupedState) -> tuple[GroupedState, RoundFacts]:
        """Each group's model becomes the mean of its sampled workers' models; unchanged without any."""
        number = state.round
        seats = draw_seats(self._plan, number)
        start, start_of = self._start(state.models, seats, merge=True)
        start = start.to(self._device)
        sums = torch.zeros_like(state.models)
        for first, updates in self._train(seats, start, start_of, number):
            drop_non_finite_(updates, self._norms(updates))
            updates += start[start_of[first : first + len(updates)].to(self._device)]
            self._tell_sent(updates, seats, first, number)
            _add_by_group(sums, updates, seats, first)
        sampled = np.bincount(seats.groups, minlength=len(sums))
        counts = torch.from_numpy(sampled).to(self._device)[:, None]
        models = torch.where(counts > 0, sums / counts.clamp(min=1), state.models)
        self._tell_received(sums, number)
        self._tell_broadcast(models, number)
        return GroupedState(number + 1, models), self._facts(number, seats, None)

    @property
    def _denominators(self) -> Tensor:
        return torch.as_tensor(self._plan.denominators, dtype=torch.float32, device=self._device)[:, None]

    def _start(self, models: Tensor, seats: Seats, *, merge: bool) -> tuple[Tensor, Tensor]:
        """Models that workers start from, and which of them each seat's does."""
        if not merge:
            return models, torch.from_numpy(seats.groups)
        own = self._plan.groups.classes.class_of[seats.workers]
        return self._merged(models), torch.from_numpy(own)

    def _merged(self, models: Tensor) -> Tensor:
        classes = self._plan.groups.classes
        return torch.from_numpy(classes.averaging(len(models))).float().to(self._device) @ models

    def _train(
        self, seats: Seats, start: Tensor, start_of: Tensor, number: int, *, rounds: int = 1
    ) -> Iterator[tuple[int, Tensor]]:
        """Train every seat's worker for so many rounds' steps: each chunk's first seat and updates."""
        training = self._plan.spec.training
        task = LocalTask(LocalSGD(learning_rate(training, number), training.momentum))
        for chunk in self._engine.train(task, start, start_of, self._batches(seats, number, rounds)):
            yield chunk.rows.start, chunk.updates

    def _batches(self, seats: Seats, number: int, rounds: int) -> BatchPlan:
        training = self._plan.spec.training
        rng = generator(self._plan.spec.seed, Stream.BATCHES, number)
        rows = [self._partition.indices(int(worker)) for worker in seats.workers]
        if training.local_epochs is not None:
            epochs = training.local_epochs * rounds
            return plan_epochs(rows, epochs=epochs, batch_size=training.batch_size, rng=rng)
        steps = training.local_steps or 1
        return plan_steps(rows, steps=steps * rounds, batch_size=training.batch_size, rng=rng)

    def _clip_(self, updates: Tensor, seats: Seats, first: int) -> int:
        """Clip, in place, the updates of the seats from ``first`` on to their groups' bounds.

        Returns:
            How many it changed.

        Raises:
            EnvelopeError: an update is larger than declared even so.
        """
        bounds = self._plan.bounds[seats.groups[first : first + len(updates)]]
        if not np.isfinite(bounds).all():
            drop_non_finite_(updates, self._norms(updates))
            return 0
        changed, starts = 0, np.flatnonzero(np.diff(bounds, prepend=np.nan) != 0)
        for start, stop in zip(starts, [*starts[1:], len(bounds)], strict=True):
            piece, bound = updates[start:stop], float(bounds[start])
            changed += int(FlatClip(bound).clip_(piece).clipped.sum())
            largest = float(row_norms(piece).max())
            if not largest <= bound * (1 + _ROUNDING):
                raise EnvelopeError(
                    f"a message has norm {largest:.6g}, but the schedule declared at most {bound:.6g}"
                )
        return changed

    def _norms(self, updates: Tensor) -> Tensor:
        """Norms of messages that nobody clips; a pilot keeps them."""
        norms = row_norms(updates)
        if self._piloted is not None:
            self._piloted.append(norms.cpu())
        return norms

    def _send_(self, updates: Tensor, seats: Seats, first: int, number: int) -> int:
        """Make messages, in place, of the updates of the seats from ``first`` on: clip them, and noise those
        that go to masters who are not trusted.

        Returns:
            How many clipping changed.
        """
        clipped, here = self._clip_(updates, seats, first), slice(first, first + len(updates))
        groups, workers = seats.groups[here], seats.workers[here]
        stds = np.where(self._plan.trusted, 0.0, self._plan.noise_std)[groups]
        add_gaussian_(updates, stds, lambda row: self._noise_key(number, groups[row], workers[row]))
        self._tell_sent(updates, seats, first, number)
        return clipped

    def _release(self, base: Tensor, sums: Tensor, number: int) -> Tensor:
        """``base`` plus the sums, noised by trusted masters, over their public denominators ``[M, P]``."""
        plan = self._plan
        self._tell_received(sums, number)
        stds = np.where(plan.trusted, plan.noise_std, 0.0)
        add_gaussian_(sums, stds, lambda group: self._noise_key(number, group))
        models = base + sums / self._denominators
        self._tell_broadcast(models, number)
        return models

    def _tell_sent(self, messages: Tensor, seats: Seats, first: int, number: int) -> None:
        """Let the messages of the seats from ``first`` on be heard."""
        if self._listener is None:
            return
        groups = seats.groups[first : first + len(messages)]
        for group in np.unique(groups):
            rows = np.flatnonzero(groups == group)
            workers, vectors = seats.workers[first + rows], messages[torch.from_numpy(rows)]
            self._listener.sent(number, int(group), 2, workers, vectors)

    def _tell_received(self, sums: Tensor, number: int) -> None:
        """Let the sums that masters received be heard."""
        if self._listener is not None:
            self._listener.received(number, 0, 1, sums)

    def _tell_broadcast(self, models: Tensor, number: int) -> None:
        """Let the models that masters send to their workers be heard."""
        if self._listener is not None:
            self._listener.broadcast(number, 0, 1, models)

    def _noise_key(self, *address: int) -> bytes:
        return key_at(self._plan.spec.seed, Stream.NOISE, *address)

    def _facts(self, number: int, seats: Seats, clipped: int | None, *, silent: bool = False) -> RoundFacts:
        """Facts of round ``number``; ``clipped`` is ``None`` where nothing was released.

        Noise is the root mean square over the groups' models. Every sampled worker sends a message up, and
        every master broadcasts its model to all of its workers, unless nothing is sent.
        """
        plan, messages = self._plan, len(seats.workers)
        bounded = clipped is not None and messages and bool(np.isfinite(plan.bounds).all())
        noise = 0.0 if clipped is None else float(np.sqrt(np.mean(plan.model_noise_std**2)))
        links = plan.groups.positions(seats.groups, seats.workers)
        cost = Cost() if silent else self._costs.round(number, links)
        return RoundFacts(
            participants=np.unique(seats.workers),
            clip_fraction=(clipped or 0) / messages if bounded else float("nan"),
            noise_std=noise,
            energy_j=cost.energy_j,
            delay_s=cost.delay_s,
            bytes_up=cost.bytes_up,
            bytes_down=cost.bytes_down,
        )


def draw_seats(plan: GroupPlan, number: int) -> Seats:
    """Who is sampled by which group in the round, or in the interval that begins with round, ``number``.

    Every group draws from a stream of its own, ``(number, group)``.
    """
    chosen = []
    for group in range(plan.groups.count):
        members, rate = plan.groups.members_of(group), float(plan.rates[group])
        if rate < 1:
            rng = generator(plan.spec.seed, Stream.PARTICIPATION, number, group)
            members = members[rng.random(len(members)) < rate]
        chosen.append(members)
    sizes = [len(members) for members in chosen]
    return Seats(np.concatenate(chosen), np.repeat(np.arange(len(chosen), dtype=np.int64), sizes))


def _add_by_group(sums: Tensor, updates: Tensor, seats: Seats, first: int) -> None:
    """Add the updates of the seats from ``first`` on to their groups' sums ``[M, P]``."""
    groups = seats.groups[first : first + len(updates)]
    starts = np.flatnonzero(np.diff(groups, prepend=-1))
    for start, stop in zip(starts, [*starts[1:], len(groups)], strict=True):
        sums[int(groups[start])] += updates[start:stop].sum(dim=0)
