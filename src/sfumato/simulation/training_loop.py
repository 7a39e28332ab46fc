"""A run in memory, from one round to the next: model, metrics, and the privacy spent so far."""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from sfumato.accounting import PrivacyReport
from sfumato.distributed.ranks import ALONE, Ranks
from sfumato.engine.base import EngineSettings
from sfumato.engine.registry import engine_of
from sfumato.engine.tiles import intra_op_threads
from sfumato.errors import RunError
from sfumato.learning.evaluation import Scoring
from sfumato.learning.examples import as_trained_on, slices_of
from sfumato.learning.parameters import ParameterLayout
from sfumato.protocols.base import FederatedProtocol, State
from sfumato.protocols.evaluator import Evaluator
from sfumato.protocols.message_hooks import ListenerGroup
from sfumato.protocols.over_devices import TrainingExamples
from sfumato.protocols.registry import protocol_of
from sfumato.protocols.view_recorder import Recorder, recorder_of
from sfumato.run_folder.metrics_table import EPSILON_PREFIX, METRIC_COLUMNS
from sfumato.run_folder.rounds_log import LoggedRound
from sfumato.schedule.base import Plan
from sfumato.simulation.checkpoint import TrainingPosition
from sfumato.simulation.training_inputs import TrainingInputs, checked_loss
from sfumato.simulation.watched_epsilons import WatchedEpsilons
from sfumato.spec.model import METRICS_OVER_DEVICES


@dataclass(frozen=True)
class Session:
    """What a run holds in memory; ``hashes`` are those of its data and its model.

    ``test_labels``: how many test examples have each label; ``None`` where no classes are learnt.
    ``test_persons``: how many persons they are of; ``None`` where that is not known.
    """

    ranks: Ranks
    speed: EngineSettings
    plan: Plan
    protocol: FederatedProtocol[Any]
    model: nn.Module
    start: Tensor
    examination: Evaluator
    epsilons: WatchedEpsilons
    recorders: tuple[Recorder, ...]
    hashes: Mapping[str, str]
    test_labels: Mapping[str, int] | None
    test_persons: int | None

    @classmethod
    def prepare(
        cls,
        plan: Plan,
        speed: EngineSettings,
        privacy: PrivacyReport | None = None,
        observers: Sequence[str] = (),
        ranks: Ranks = ALONE,
    ) -> Session:
        """Load the data, divide them and build the model: all that a training of ``plan`` needs.

        Args:
            plan: resolved.
            speed: device, threads and memory.
            privacy: guarantees; without them no ε is followed.
            observers: whose views are recorded.
            ranks: the processes that share the training.

        Raises:
            SpecError: the partition cannot be kept, or the model or the loss does not fit the data.
            DataError: the data cannot be read, or differ from those of the plan.
        """
        made = TrainingInputs.of(plan)
        spec, data, parts, model = plan.spec, made.data, made.partition, made.model
        learnt = data.targets_for(spec.data.task)
        layout = ParameterLayout.of(model)
        start = layout.read(model)
        test_features, test_targets = (
            slices_of(part, speed.device) for part in (data.test_features, learnt[1])
        )
        loss = checked_loss(spec, model, test_features[:3].cpu(), test_targets[:3].cpu())
        features, targets = as_trained_on(data.train_features), as_trained_on(learnt[0])
        engine = engine_of(model, features, targets, speed, loss, ranks)
        recorders = tuple(recorder_of(plan, name, layout.total) for name in observers)
        listener = ListenerGroup(recorders) if recorders else None
        examination = Evaluator(
            model,
            test_features,
            test_targets,
            Scoring(spec.data.task, loss, [m for m in spec.metrics if m not in METRICS_OVER_DEVICES]),
            classes=data.facts.classes,
            train_labels=data.train_labels,
            training=TrainingExamples(features, targets, parts),
            over_devices=[m for m in spec.metrics if m in METRICS_OVER_DEVICES],
            threads=speed.threads,
            ranks=ranks,
        )
        return cls(
            ranks=ranks,
            speed=speed,
            plan=plan,
            protocol=protocol_of(plan, engine, parts, layout.total, listener),
            model=model,
            start=start.to(speed.device),
            examination=examination,
            epsilons=WatchedEpsilons.of(plan, privacy),
            recorders=recorders,
            hashes=made.hashes,
            test_labels=data.test_label_counts if spec.data.task == "classification" else None,
            test_persons=data.test_persons,
        )

    def initial_position(self) -> TrainingPosition:
        """The position before the first round, with the initial model."""
        nobody = torch.zeros(self.plan.parties.device_count, dtype=torch.int64)
        return TrainingPosition(self.protocol.initial(self.start), nobody)

    def continued(self, position: TrainingPosition) -> TrainingPosition:
        """``position``, read from a checkpoint, with this rank's share of the devices' vectors only."""
        return replace(position, state=position.state.divided_among(self.protocol.ranks))

    def with_current_metrics(self, state: State, rounds: Iterable[LoggedRound]) -> Iterator[LoggedRound]:
        """Yield ``rounds`` with scores and ε only where this spec asks for them.

        A spec with another number of rounds may ask for scores and ε after other ones. Missing ε are
        computed, and missing scores of the last of the rounds. Called by one rank.

        Args:
            state: after the last of ``rounds``.
            rounds: that were logged, from the first.
        """
        for done, one in enumerate(rounds, start=1):
            row = one.metrics
            last = done == self.rounds(state)
            kept = {name: value for name, value in row.items() if not name.startswith(EPSILON_PREFIX)}
            if not self._is_evaluated(done, last=last):
                kept |= dict.fromkeys(self._scores, float("nan"))
            elif done == state.round and np.isnan(row["loss"]):
                kept |= self._score(state, replace(self.examination, ranks=ALONE))
            columns = self.epsilons.unknown()
            if done in self.epsilons.accounted or last:
                stated = {name: row.get(name, float("nan")) for name in columns}
                missing = any(map(np.isnan, stated.values()))
                columns = self._epsilons(state, done) if missing else stated
            yield LoggedRound(kept | columns, one.views)

    def next(self, position: TrainingPosition) -> tuple[TrainingPosition, dict[str, float]]:
        """Run one more round; returns the position after it and its row of metrics.

        Raises:
            RunError: the model is no longer finite.
        """
        began = time.monotonic()
        with intra_op_threads(1):
            state, facts = self.protocol.run_round(position.state)
        if not self.protocol.is_finite(state):
            hint = "lower training.learning_rate or the noise"
            raise RunError(f"round {state.round}: the model is no longer finite; {hint}")
        participations = position.participations.clone()
        participations[torch.from_numpy(facts.participants)] += 1
        row = dict(self._empty_row)
        last = state.round == self.rounds(state)
        if self._is_evaluated(state.round, last=last):
            row |= self._score(state, self.examination)
        if state.round in self.epsilons.accounted or last:
            row |= self._epsilons(state, state.round)
        row |= facts.extra
        counts_radio = self.plan.spec.counts_radio
        row |= {
            "round": float(state.round),
            "energy_j": facts.energy_j if counts_radio else np.nan,
            "delay_s": facts.delay_s if counts_radio else np.nan,
            "bytes_up": float(facts.bytes_up),
            "bytes_down": float(facts.bytes_down),
            "clip_fraction": facts.clip_fraction,
            "noise_std": facts.noise_std,
            "wall_time_s": time.monotonic() - began,
        }
        return TrainingPosition(state, participations), row

    def rounds(self, state: State) -> int:
        """The number of rounds of the whole training, as far as it is known from ``state``."""
        return self.protocol.rounds_expected(state)

    @property
    def _scores(self) -> tuple[str, ...]:
        """Names of the metrics columns that hold scores on the test set."""
        return *self.protocol.metrics, *self.plan.spec.metrics

    @cached_property
    def _empty_row(self) -> dict[str, float]:
        """A row of metrics with NaN in every column."""
        columns = dict.fromkeys((*METRIC_COLUMNS, *self._scores), float("nan"))
        return columns | self.epsilons.unknown()

    def _is_evaluated(self, done: int, *, last: bool) -> bool:
        """Whether the model is scored after ``done`` rounds: as the spec says, and after the last."""
        return done % self.plan.spec.evaluate_every == 0 or last

    def _score(self, state: State, examination: Evaluator) -> dict[str, float]:
        """The scores of the models of ``state``, by name of the metrics column."""
        with intra_op_threads(1):
            return self.protocol.scores(state, examination)

    def _epsilons(self, state: State, done: int) -> dict[str, float]:
        """Column to ε of the watched pairs after ``done`` rounds.

        ``state`` has seen at least as many rounds.
        """
        return self.epsilons.after(done, played=state.round, spent=self.protocol.spent(state))
