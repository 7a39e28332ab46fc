"""Plays a spec to the end: data, devices, rounds, metrics, checkpoints, and the run folder they end up in."""

from __future__ import annotations

import platform
import time
from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import cached_property
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import torch
from torch import Tensor, nn

from sfumato import checkpoint as checkpoints
from sfumato.account import PrivacyReport, account, epsilon_after, pair_guarantee
from sfumato.checkpoint import Checkpoint
from sfumato.engine.local import LocalEngine, LocalTask, Speed
from sfumato.errors import RunError, SpecError
from sfumato.federation.datasets import Dataset, load_dataset
from sfumato.federation.partition import partition
from sfumato.federation.topology import Tree
from sfumato.learning.batches import BatchPlan, plan_epochs, plan_steps
from sfumato.learning.evaluation import evaluate
from sfumato.learning.local_training import LocalSGD
from sfumato.learning.models import build_model
from sfumato.learning.parameters import ParameterLayout
from sfumato.mechanisms.clipping import FlatClip
from sfumato.protocols.tiered import TieredProtocol, draw_participants
from sfumato.random import Stream, generator
from sfumato.run_folder import (
    EPSILON_PREFIX,
    METRIC_COLUMNS,
    MODEL_FILE,
    SPEC_FILE,
    RunFolder,
    load_run,
    replacing,
    write_ledger,
    write_metrics,
    write_privacy,
    write_spec,
)
from sfumato.schedule.learning_rate import learning_rate
from sfumato.schedule.observers import parse_coalition, parse_unit
from sfumato.schedule.population import partition_rule, source_arguments
from sfumato.schedule.resolve import resolve
from sfumato.schedule.tiered import TieredPlan
from sfumato.schedule.watch import Watched, rounds_to_account, watched_pairs
from sfumato.spec.document import Spec
from sfumato.spec.load import dump_spec, load_spec

_SECONDS_BETWEEN_CHECKPOINTS = 5.0


@dataclass(frozen=True)
class RoundResult:
    """One round, for whoever watches.

    Attributes:
        round: rounds done, from 1.
        rounds: rounds in all.
        metrics: the row of ``metrics.parquet``.
    """

    round: int
    rounds: int
    metrics: dict[str, float]


@dataclass(frozen=True)
class Run:
    """A finished run, with what its folder holds."""

    folder: RunFolder

    @property
    def metrics(self) -> pd.DataFrame:
        """One row a round (the columns are those of ``metrics.parquet``)."""
        return self.folder.metrics

    @cached_property
    def privacy(self) -> PrivacyReport:
        """Guarantees and claims."""
        return account(load_spec(self.folder.path / SPEC_FILE))

    @cached_property
    def model(self) -> nn.Module:
        """The trained global model, on the CPU."""
        spec = load_spec(self.folder.path / SPEC_FILE)
        state = torch.load(self.folder.path / MODEL_FILE, map_location="cpu", weights_only=True)
        # the shape of an example is the data set's; loading is the sure way to know it
        data = _load(spec, resolve(spec).tree)
        model = _model(spec, data)
        model.load_state_dict(state)
        return model

    def report(self, out: Path | None = None) -> Path:
        """Write the report (into the run folder unless ``out`` says otherwise) and say where it is."""
        from sfumato.report import write_report

        return write_report([self.folder.path], out or self.folder.path / "report.html")


@dataclass(frozen=True)
class PilotResult:
    """Norms of un-noised, unclipped messages. Not accounted: never print them for data that must be protected.

    Attributes:
        what: what the norms are of.
        quantiles: norm at each of a few quantiles.
        rounds: rounds looked at.
        messages: messages looked at.
    """

    what: str
    quantiles: dict[float, float]
    rounds: int
    messages: int


def run(spec: Spec, *, out: str | Path | None = None, device: str = "auto", resume: bool = False) -> Run:
    """Play ``spec`` and keep everything in the folder ``out`` (default ``runs/NAME``). See `play`."""
    folder = Path(out) if out is not None else default_folder(spec)
    for _ in play(spec, out=folder, device=device, resume=resume):
        pass
    return Run(load_run(folder))


def default_folder(spec: Spec) -> Path:
    """Where a run goes unless told otherwise."""
    return Path("runs") / spec.name


def play(spec: Spec, *, out: Path, device: str = "auto", resume: bool = False) -> Iterator[RoundResult]:
    """Play ``spec`` round by round, writing the run folder ``out`` as it goes.

    Killed at any moment and resumed, a run ends with the same model and the same metrics (but for wall
    time) as one never killed. An exception, an interrupt included, leaves a checkpoint behind.

    Args:
        spec: as loaded.
        out: the run folder.
        device: auto, cpu or cuda; a resumed run keeps its own.
        resume: go on where ``out`` stands; afresh where it holds no run.

    Yields:
        Every round as it is done; nothing for a run that was finished already.

    Raises:
        SpecError: the spec is wrong, ``out`` holds a run and ``resume`` is not set, or it holds another run.
        RunError: the folder is damaged.
    """
    plan = resolve(spec)
    held = _held_checkpoint(plan, out, resume)
    speed = held.speed if held is not None else Speed.default(_pick_device(device))
    if held is not None and held.state.round == plan.spec.training.rounds and (out / MODEL_FILE).is_file():
        return
    torch.set_num_threads(speed.threads)
    session = _Session.prepare(plan, speed)
    write_spec(out, dump_spec(plan.spec.model_copy(update={"versions": versions()})))
    privacy = account(plan.spec)
    write_privacy(out, privacy.to_dict())
    write_ledger(out, plan.ledger.to_dict())
    standing = held or Checkpoint(
        session.protocol.initial(session.start), (), torch.zeros(plan.tree.device_count, dtype=torch.int64), speed
    )
    saved_at = time.monotonic()
    try:
        while standing.state.round < plan.spec.training.rounds:
            standing = session.next(standing)
            if time.monotonic() - saved_at > _SECONDS_BETWEEN_CHECKPOINTS:
                _save(out, standing)
                saved_at = time.monotonic()
            yield RoundResult(standing.state.round, plan.spec.training.rounds, standing.rows[-1])
    finally:
        _save(out, standing)
    _finish(out, session, standing, privacy)


def pilot(spec: Spec, *, rounds: int = 3, device: str = "auto") -> PilotResult:
    """Norms of what devices would send, without noise or clipping: to choose a clip by, on public data.

    With ``clip: {kind: step}`` the norms are those of mini-batch gradients, else of whole messages.

    Raises:
        SpecError: the spec is wrong.
    """
    plan = resolve(spec)
    session = _Session.prepare(plan, Speed.default(_pick_device(device)))
    training, clip = plan.spec.training, plan.spec.privacy.clip
    per_step = clip is not None and clip.kind == "step"
    norms: list[Tensor] = []
    model = session.start
    for number in range(min(rounds, training.rounds)):
        chosen = draw_participants(plan, number)
        batches = session.pilot_batches(chosen, number, first_step_only=per_step)
        rate = learning_rate(training, number)
        task = LocalTask(LocalSGD(rate, training.momentum), FlatClip(1e30))
        total = torch.zeros_like(model)
        for chunk in session.engine.train(task, model[None], torch.zeros(len(chosen), dtype=torch.int64), batches):
            assert chunk.norms is not None  # a clip was set
            norms.append(chunk.norms.cpu() / rate if per_step else chunk.norms.cpu())
            total += chunk.updates.sum(dim=0)
        model = model + total / max(1, len(chosen))
    found = torch.cat(norms) if norms else torch.zeros(1)
    levels = (0.0, 0.1, 0.25, 0.5, 0.75, 0.9, 1.0)
    values = torch.quantile(found.double(), torch.tensor(levels, dtype=torch.float64))
    what = "mini-batch gradients" if per_step else "messages (updates of a whole round)"
    return PilotResult(what, dict(zip(levels, values.tolist(), strict=True)), min(rounds, training.rounds), len(found))


def versions() -> dict[str, str]:
    """What made a run: versions of everything that bears on its numbers."""
    found = {"python": platform.python_version()}
    for name in ("sfumato", "torch", "numpy", "scipy", "dp-accounting", "scikit-learn"):
        try:
            found[name] = version(name)
        except PackageNotFoundError:
            continue
    return found


@dataclass(frozen=True)
class _Session:
    """What a run holds in memory and never writes."""

    plan: TieredPlan
    engine: LocalEngine
    protocol: TieredProtocol
    model: nn.Module
    start: Tensor
    test: tuple[Tensor, Tensor]
    parts: Any
    watched: tuple[Watched, ...]
    accounted: frozenset[int]

    @classmethod
    def prepare(cls, plan: TieredPlan, speed: Speed) -> _Session:
        """Load data, divide them, build the model."""
        spec = plan.spec
        data = _load(spec, plan.tree)
        parts = partition(
            data.train_labels, plan.tree.devices, partition_rule(spec.data), seed=spec.seed, groups=data.train_groups
        )
        model = _model(spec, data)
        layout = ParameterLayout.of(model)
        start = layout.read(model)
        engine = LocalEngine(model, torch.from_numpy(data.train_features), torch.from_numpy(data.train_labels), speed)
        protocol = TieredProtocol(plan, engine, parts, layout.total)
        test = tuple(torch.from_numpy(a).to(speed.device) for a in (data.test_features, data.test_labels))
        delta = spec.privacy.delta
        watched = watched_pairs(plan, lambda unit, observer: pair_guarantee(plan, unit, observer, delta=delta))
        return cls(
            plan, engine, protocol, model, start.to(speed.device), (test[0], test[1]), parts, watched, rounds_to_account(plan)
        )

    def next(self, standing: Checkpoint) -> Checkpoint:
        """One more round."""
        began = time.monotonic()
        state, facts = self.protocol.play(standing.state)
        participations = standing.participations.clone()
        participations[torch.from_numpy(facts.participants)] += 1
        row: dict[str, float] = {name: float("nan") for name in METRIC_COLUMNS}
        row |= {f"{EPSILON_PREFIX}{watched.observer}": float("nan") for watched in self.watched}
        spec = self.plan.spec
        if state.round % spec.evaluate_every == 0 or state.round == spec.training.rounds:
            if not bool(torch.isfinite(state.model).all()):
                raise RunError(
                    f"round {state.round}: the model is no longer finite; lower training.learning_rate or the noise"
                )
            score = evaluate(self.model, state.model, *self.test)
            row |= {"accuracy": score.accuracy, "loss": score.loss}
        if state.round in self.accounted:
            row |= {f"{EPSILON_PREFIX}{w.observer}": self._epsilon(w, state.round) for w in self.watched}
        row |= {
            "round": float(state.round),
            "bytes_up": float(facts.bytes_up),
            "bytes_down": float(facts.bytes_down),
            "clip_fraction": facts.clip_fraction,
            "noise_std": facts.noise_std,
            "wall_time_s": time.monotonic() - began,
        }
        return replace(standing, state=state, rows=(*standing.rows, row), participations=participations)

    def pilot_batches(self, chosen: Any, number: int, *, first_step_only: bool) -> BatchPlan:
        """Batches of a pilot round, from a stream of their own."""
        training = self.plan.spec.training
        rng = generator(self.plan.spec.seed, Stream.PILOT, number)
        rows = [self.parts.indices(int(device)) for device in chosen]
        if training.local_epochs is not None and not first_step_only:
            return plan_epochs(rows, epochs=training.local_epochs, batch_size=training.batch_size, rng=rng)
        steps = 1 if first_step_only else max(a.since for a in self.plan.aggregations)
        return plan_steps(rows, steps=steps, batch_size=training.batch_size, rng=rng)

    def _epsilon(self, watched: Watched, rounds: int) -> float:
        device = parse_unit(watched.unit, self.plan.tree)
        return epsilon_after(self.plan, device, parse_coalition(watched.observer, self.plan.tree), rounds)


def _load(spec: Spec, tree: Tree) -> Dataset:
    return load_dataset(**source_arguments(spec.data, tree.device_count), seed=spec.seed)


def _model(spec: Spec, data: Dataset) -> nn.Module:
    return build_model(
        spec.model.kind,
        shape=tuple(data.train_features.shape[1:]),
        classes=data.facts.classes,
        seed=spec.seed,
        hidden=spec.model.hidden,
        bias=spec.model.bias,
    )


def _pick_device(device: str) -> str:
    if device != "auto":
        return device
    return "cuda" if torch.cuda.is_available() else "cpu"


def _held_checkpoint(plan: TieredPlan, out: Path, resume: bool) -> Checkpoint | None:
    """The checkpoint to go on from, if there is one and it is of this very run."""
    if not (out / SPEC_FILE).is_file():
        return None
    if not resume:
        raise SpecError("--out", str(out), "already holds a run; give another folder, or --resume to go on with it")
    held = checkpoints.load(out)
    if held is None:
        return None
    before = load_spec(out / SPEC_FILE)
    now = plan.spec
    if now.training.rounds < held.state.round:
        raise SpecError("training.rounds", now.training.rounds, f"this run has done {held.state.round} already")
    _refuse_another_run(before, now, held.state.round, out)
    return held


def _refuse_another_run(before: Spec, now: Spec, done: int, out: Path) -> None:
    """Only the number of rounds may change, and only where that leaves the rounds done as they were."""
    old, new = (_flat(spec.model_dump(mode="json", by_alias=True)) for spec in (before, now))
    for key in sorted(set(old) | set(new)):
        if key.startswith(("versions", "training.rounds", "watch", "evaluate_every")) or old.get(key) == new.get(key):
            continue
        hint = ""
        if key.startswith("privacy.noise.sources"):
            hint = " (noise was sized for the rounds then asked for; extend a run whose noise is a fixed multiplier)"
        raise SpecError(
            f"--resume: {key}", new.get(key), f"the run in {out} has {old.get(key)!r}{hint}; only training.rounds may grow"
        )
    if any(learning_rate(before.training, k) != learning_rate(now.training, k) for k in range(done)):
        raise SpecError("training.rounds", now.training.rounds, "this learning-rate schedule depends on it; start a new run")


def _flat(value: Any, prefix: str = "") -> dict[str, Any]:
    if isinstance(value, dict):
        return {k: v for name, item in value.items() for k, v in _flat(item, f"{prefix}.{name}".lstrip(".")).items()}
    return {prefix: value}


def _save(out: Path, standing: Checkpoint) -> None:
    checkpoints.save(out, standing)
    if standing.rows:
        write_metrics(out, _frame(standing))


def _frame(standing: Checkpoint) -> pd.DataFrame:
    frame = pd.DataFrame(list(standing.rows))
    epsilons = [name for name in frame.columns if name.startswith(EPSILON_PREFIX)]
    frame = frame[["round", "accuracy", "loss", *epsilons, *METRIC_COLUMNS[3:]]]
    return frame.astype({"round": np.int64, "bytes_up": np.int64, "bytes_down": np.int64})


def _finish(out: Path, session: _Session, standing: Checkpoint, privacy: PrivacyReport) -> None:
    layout = ParameterLayout.of(session.model)
    layout.write(standing.state.model, session.model)
    with replacing(out / MODEL_FILE) as temporary:
        torch.save({name: value.cpu() for name, value in session.model.state_dict().items()}, temporary)
    realised = {"participations": standing.participations.tolist(), "rounds": standing.state.round}
    write_ledger(out, session.plan.ledger.to_dict() | {"realised": realised})
    write_privacy(out, privacy.to_dict())
    from sfumato.report import write_report  # plotly is slow to import, and a run may well be killed before

    write_report([out], out / "report.html")
