"""Plays a spec to the end: data, devices, rounds, metrics, checkpoints, and the run folder they end up in."""

from __future__ import annotations

import platform
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import cached_property
from importlib.metadata import PackageNotFoundError, version
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import torch
from torch import Tensor, nn

from sfumato import checkpoint as checkpoints
from sfumato.accounting import PrivacyReport, account, epsilon_after, pair_guarantee, with_participations
from sfumato.checkpoint import Checkpoint
from sfumato.engine.local import LocalEngine, Speed
from sfumato.errors import RunError, SpecError
from sfumato.federation.datasets import Dataset, load_dataset
from sfumato.federation.partition import Partition, partition
from sfumato.federation.zones import regrouped
from sfumato.learning.models import build_model
from sfumato.learning.parameters import ParameterLayout
from sfumato.privacy.guarantee import Guarantee
from sfumato.protocols.base import FederatedProtocol, State
from sfumato.protocols.choose import protocol_of, shares_of
from sfumato.protocols.controlled import ControlledState
from sfumato.protocols.examination import Examination
from sfumato.protocols.listener import Together
from sfumato.protocols.recording import (
    Recorder,
    observer_name,
    read_observers,
    recorder_of,
    write_observers,
)
from sfumato.run_folder import (
    CHECKPOINT_FILE,
    EPSILON_PREFIX,
    GROUPS_FILE,
    LEDGER_FILE,
    METRIC_COLUMNS,
    METRICS_FILE,
    MODEL_FILE,
    PRIVACY_FILE,
    REPORT_FILE,
    SPEC_FILE,
    RunFolder,
    load_run,
    read_ledger,
    replacing,
    write_ledger,
    write_metrics,
    write_privacy,
    write_spec,
)
from sfumato.schedule.air_realised import Realised
from sfumato.schedule.learning_rate import learning_rate
from sfumato.schedule.observers import parse_coalition, parse_unit
from sfumato.schedule.plan import Plan
from sfumato.schedule.population import partition_rule, source_arguments
from sfumato.schedule.resolve import resolve
from sfumato.schedule.turnout_realised import RealisedTurnout
from sfumato.schedule.watch import Watched, rounds_to_account, watched_pairs
from sfumato.spec.document import Spec
from sfumato.spec.load import dump_spec, load_spec

_SECONDS_BETWEEN_CHECKPOINTS = 5.0
_TENSORBOARD_FOLDER = "tensorboard"
_MAY_CHANGE = ("training.rounds", "evaluate_every", "watch", "versions")
_RUN_FILES = (
    SPEC_FILE, METRICS_FILE, PRIVACY_FILE, LEDGER_FILE, MODEL_FILE, GROUPS_FILE, CHECKPOINT_FILE, REPORT_FILE,
)  # fmt: skip


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
        """Guarantees and claims, with what is known of them after the run."""
        report = account(load_spec(self.folder.path / SPEC_FILE))
        realised = read_ledger(self.folder.path).get("realised")
        if not realised:
            return report
        air = Realised.of(report.plan, realised["rounds"], realised["parameters"])
        turnout = RealisedTurnout.of(report.plan, realised["rounds"])
        return with_participations(report, np.array(realised["participations"]), air, turnout)

    @cached_property
    def model(self) -> nn.Module:
        """The trained model, on the CPU: the global one, or the average of the workers' own."""
        spec = load_spec(self.folder.path / SPEC_FILE)
        state = torch.load(self.folder.path / MODEL_FILE, map_location="cpu", weights_only=True)
        # the shape of an example is the data set's; loading is the sure way to know it
        data = _load(resolve(spec))
        model = _model(spec, data)
        model.load_state_dict(state)
        return model

    def report(self, out: Path | None = None) -> Path:
        """Write the report (into the run folder unless ``out`` says otherwise) and say where it is."""
        from sfumato.report import write_report

        return write_report([self.folder.path], out or self.folder.path / REPORT_FILE)


@dataclass(frozen=True)
class PilotResult:
    """Norms of un-noised, unclipped messages.

    Not accounted: never print them for data that must be protected.

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


def run(
    spec: Spec,
    *,
    out: str | Path | None = None,
    device: str = "auto",
    resume: bool = False,
    record_views: Sequence[str] = (),
) -> Run:
    """Play ``spec`` and keep everything in the folder ``out`` (default ``runs/NAME``). See `play`."""
    folder = Path(out) if out is not None else default_folder(spec)
    for _ in play(spec, out=folder, device=device, resume=resume, record_views=record_views):
        pass
    return Run(load_run(folder))


def default_folder(spec: Spec) -> Path:
    """Where a run goes unless told otherwise."""
    return Path("runs") / spec.name


def play(
    spec: Spec, *, out: Path, device: str = "auto", resume: bool = False, record_views: Sequence[str] = ()
) -> Iterator[RoundResult]:
    """Play ``spec`` round by round, writing the run folder ``out`` as it goes.

    Killed at any moment and resumed, a run ends with the same model and the same metrics (but for wall
    time) as one never killed. An exception, an interrupt included, leaves a checkpoint behind.

    Args:
        spec: as loaded.
        out: the run folder.
        device: auto, cpu or cuda; a resumed run keeps its own.
        resume: go on where ``out`` stands; afresh where it holds no run.
        record_views: observers and coalitions whose views are kept, all that they receive and no more; a
            resumed run goes on recording whom it recorded.

    Yields:
        Every round as it is done; nothing for a run that was finished already.

    Raises:
        SpecError: the spec is wrong, ``out`` holds a run and ``resume`` is not set, or it holds another run.
        RunError: the folder is damaged.
    """
    plan = resolve(spec)
    observers = tuple(observer_name(plan, names, place="--record-views") for names in record_views)
    held = _held_checkpoint(plan, out, resume)
    if held is not None:
        observers = _observers_held(observers, held, out)
    if held is not None and _is_complete(plan, held) and (out / MODEL_FILE).is_file():
        _write_report_if_missing(out)
        return
    speed = held.speed if held is not None else Speed.default(_pick_device(device))
    privacy = account(plan.spec)
    session = _Session.prepare(plan, speed, privacy, tuple(dict.fromkeys(observers)))
    _begin(out, plan, privacy)
    if session.recorders:
        write_observers(out, [recorder.name for recorder in session.recorders])
    standing = session.first() if held is None else session.restated(held)
    saved_at = time.monotonic()
    try:
        while standing.state.round < session.rounds(standing.state):
            standing = session.next(standing)
            for recorder in session.recorders:
                recorder.write(out, standing.state.round - 1)
            if time.monotonic() - saved_at > _SECONDS_BETWEEN_CHECKPOINTS:
                _save(out, standing)
                saved_at = time.monotonic()
            yield RoundResult(standing.state.round, session.rounds(standing.state), standing.rows[-1])
    finally:
        _save(out, standing)
    _finish(out, session, standing, privacy)


def pilot(spec: Spec, *, rounds: int = 3, device: str = "auto") -> PilotResult:
    """Norms of what devices would send, without noise or clipping: to choose a clip by, on public data.

    With ``clip: {kind: step}`` the norms are those of mini-batch gradients, else of whole messages.

    Raises:
        SpecError: the spec is wrong.
    """
    session = _Session.prepare(resolve(spec), Speed.default(_pick_device(device)))
    with _one_thread():
        found = session.protocol.pilot(session.start, rounds)
    levels = (0.0, 0.1, 0.25, 0.5, 0.75, 0.9, 1.0)
    norms = found.norms.double() if len(found.norms) else torch.zeros(1, dtype=torch.float64)
    values = torch.quantile(norms, torch.tensor(levels, dtype=torch.float64))
    quantiles = dict(zip(levels, values.tolist(), strict=True))
    return PilotResult(found.what, quantiles, found.rounds, len(found.norms))


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
class Materials:
    """What a plan is played with: private data, who holds which, and the model as it is at the start.

    Attributes:
        data: loaded.
        partition: training rows of every device.
        model: initialised.
    """

    data: Dataset
    partition: Partition
    model: nn.Module

    @classmethod
    def of(cls, plan: Plan) -> Materials:
        """Load the data of ``plan``, divide them, build the model."""
        spec = plan.spec
        data = _load(plan)
        parts = partition(
            data.train_labels,
            shares_of(plan),
            partition_rule(spec.data),
            seed=spec.seed,
            groups=data.train_groups,
        )
        zones = getattr(spec.topology, "zones", None)
        if zones is not None:
            parts = regrouped(parts, zones, shares_of(plan), data.train_labels, seed=spec.seed)
        return cls(data, parts, _model(spec, data))


@dataclass(frozen=True)
class _Session:
    """What a run holds in memory and never writes."""

    speed: Speed
    plan: Plan
    protocol: FederatedProtocol[Any]
    model: nn.Module
    start: Tensor
    examination: Examination
    watched: tuple[Watched, ...]
    accounted: frozenset[int]
    recorders: tuple[Recorder, ...]

    @classmethod
    def prepare(
        cls,
        plan: Plan,
        speed: Speed,
        privacy: PrivacyReport | None = None,
        observers: Sequence[str] = (),
    ) -> _Session:
        """Load data, divide them, build the model; without ``privacy``, no epsilon is followed."""
        made = Materials.of(plan)
        data, parts, model = made.data, made.partition, made.model
        layout = ParameterLayout.of(model)
        start = layout.read(model)
        engine = LocalEngine(
            model, torch.from_numpy(data.train_features), torch.from_numpy(data.train_labels), speed
        )
        recorders = tuple(recorder_of(plan, name, layout.total) for name in observers)
        protocol = protocol_of(plan, engine, parts, layout.total, Together(recorders) if recorders else None)
        examination = Examination(
            model,
            torch.from_numpy(data.test_features).to(speed.device),
            torch.from_numpy(data.test_labels).to(speed.device),
            classes=data.facts.classes,
            train_labels=data.train_labels,
            partition=parts,
            threads=speed.threads,
        )
        return cls(
            speed=speed,
            plan=plan,
            protocol=protocol,
            model=model,
            start=start.to(speed.device),
            examination=examination,
            watched=() if privacy is None else _watched(plan, privacy),
            accounted=rounds_to_account(plan),
            recorders=recorders,
        )

    def first(self) -> Checkpoint:
        """Before the first round."""
        nobody = torch.zeros(self.plan.parties.device_count, dtype=torch.int64)
        return Checkpoint(self.protocol.initial(self.start), (), nobody, self.speed)

    def restated(self, held: Checkpoint) -> Checkpoint:
        """``held`` with the metrics this spec asks for: which rounds have any may depend on their number."""
        rows = list(held.rows)
        for index, row in enumerate(rows):
            done = index + 1
            last = done == self.rounds(held.state)
            kept = {name: value for name, value in row.items() if not name.startswith(EPSILON_PREFIX)}
            if not self._is_evaluated(done, last=last):
                kept |= dict.fromkeys(self.protocol.metrics, float("nan"))
            elif done == held.state.round and np.isnan(row["accuracy"]):
                kept |= self._score(held.state)
            columns = self._epsilon_columns()
            if done in self.accounted or last:
                stated = {name: row.get(name, float("nan")) for name in columns}
                missing = any(map(np.isnan, stated.values()))
                columns = self._epsilons(held.state, done) if missing else stated
            rows[index] = kept | columns
        return replace(held, rows=tuple(rows))

    def next(self, standing: Checkpoint) -> Checkpoint:
        """One more round."""
        began = time.monotonic()
        with _one_thread():
            state, facts = self.protocol.play(standing.state)
        if not self.protocol.is_finite(state):
            hint = "lower training.learning_rate or the noise"
            raise RunError(f"round {state.round}: the model is no longer finite; {hint}")
        participations = standing.participations.clone()
        participations[torch.from_numpy(facts.participants)] += 1
        row = dict.fromkeys((*METRIC_COLUMNS, *self.protocol.metrics), float("nan"))
        row |= self._epsilon_columns()
        last = state.round == self.rounds(state)
        if self._is_evaluated(state.round, last=last):
            row |= self._score(state)
        if state.round in self.accounted or last:
            row |= self._epsilons(state, state.round)
        row |= facts.extra
        row |= {
            "round": float(state.round),
            "energy_j": facts.energy_j,
            "delay_s": facts.delay_s,
            "bytes_up": float(facts.bytes_up),
            "bytes_down": float(facts.bytes_down),
            "clip_fraction": facts.clip_fraction,
            "noise_std": facts.noise_std,
            "wall_time_s": time.monotonic() - began,
        }
        return replace(standing, state=state, rows=(*standing.rows, row), participations=participations)

    def rounds(self, state: State) -> int:
        """How many rounds there will be, as far as is known."""
        return self.protocol.rounds_expected(state)

    def _is_evaluated(self, done: int, *, last: bool) -> bool:
        return done % self.plan.spec.evaluate_every == 0 or last

    def _score(self, state: State) -> dict[str, float]:
        with _one_thread():
            return self.protocol.scores(state, self.examination)

    def _epsilon_columns(self) -> dict[str, float]:
        return {f"{EPSILON_PREFIX}{watched.observer}": float("nan") for watched in self.watched}

    def _epsilons(self, state: State, done: int) -> dict[str, float]:
        """After ``done`` rounds, of which ``state`` has seen at least as many."""
        return {
            f"{EPSILON_PREFIX}{watched.observer}": self._epsilon(watched, state, done)
            for watched in self.watched
        }

    def _epsilon(self, watched: Watched, state: State, done: int) -> float:
        device = parse_unit(watched.unit, self.plan.parties)
        coalition = parse_coalition(watched.observer, self.plan.parties)
        if done == state.round:
            return self.protocol.epsilon(state, device, coalition)
        if self.plan.spec.control is not None:  # what was spent by then is not kept
            return float("nan")
        return epsilon_after(self.plan, device, coalition, done)


@contextmanager
def _one_thread() -> Iterator[None]:
    """One thread an operation: they are small here, and workers have threads of their own."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(before)


def _watched(plan: Plan, privacy: PrivacyReport) -> tuple[Watched, ...]:
    """The pairs to follow; what ``privacy`` says of them already is not computed again."""
    known = {(row.unit, row.observer): row for row in privacy.guarantees}

    def pair(unit: str, observer: str) -> Guarantee:
        found = known.get((unit, observer))
        return found or pair_guarantee(plan, unit, observer, delta=privacy.delta)

    return watched_pairs(plan, pair)


def _load(plan: Plan) -> Dataset:
    arguments = source_arguments(plan.spec.data, plan.parties.device_count)
    return load_dataset(**arguments, seed=plan.spec.seed)


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


def _is_complete(plan: Plan, held: Checkpoint) -> bool:
    """Whether ``held`` has played all rounds."""
    if isinstance(held.state, ControlledState):
        return bool(held.state.ended)
    return held.state.round == plan.spec.training.rounds


def _held_checkpoint(plan: Plan, out: Path, resume: bool) -> Checkpoint | None:
    """The checkpoint to go on from, if there is one and it is of this very run."""
    if out.exists() and not out.is_dir():
        raise SpecError("--out", str(out), "is a file; give a folder")
    has_spec, has_checkpoint = (out / SPEC_FILE).is_file(), (out / CHECKPOINT_FILE).is_file()
    if not resume and (has_spec or has_checkpoint):
        raise SpecError(
            "--out", str(out), "already holds a run; give another folder, or --resume to go on with it"
        )
    held = checkpoints.load(out)
    if held is None:
        return None
    if not has_spec:
        raise RunError(
            f"{out / SPEC_FILE}: missing, so nobody knows what {CHECKPOINT_FILE} is a checkpoint of"
        )
    before = load_spec(out / SPEC_FILE)
    now = plan.spec
    if now.control is not None and now.training.rounds != before.training.rounds:
        raise SpecError(
            "training.rounds",
            now.training.rounds,
            f"the run in {out} has {before.training.rounds}; under control they set the budget",
        )
    if now.control is None and now.training.rounds < held.state.round:
        raise SpecError(
            "training.rounds", now.training.rounds, f"this run has done {held.state.round} already"
        )
    _refuse_another_run(before, now, held.state.round, out)
    return held


def _observers_held(asked: tuple[str, ...], held: Checkpoint, out: Path) -> tuple[str, ...]:
    """Whom the run in ``out`` records; nobody else can be recorded from the middle on."""
    recorded = read_observers(out)
    if asked and set(asked) != set(recorded) and held.state.round > 0:
        raise SpecError(
            "--record-views",
            ", ".join(asked),
            f"the run in {out} recorded {' and '.join(recorded) or 'nobody'} so far; leave it out to go on",
        )
    return asked or recorded


def _refuse_another_run(before: Spec, now: Spec, done: int, out: Path) -> None:
    """Only the number of rounds may change, and only where that leaves the rounds done as they were."""
    old, new = (_flat(spec.model_dump(mode="json", by_alias=True)) for spec in (before, now))
    sized = "privacy.noise.sources"  # follows from the rest, so whatever else differs is the better reason
    for key in sorted(set(old) | set(new), key=lambda key: (key == sized, key)):
        if key.startswith(_MAY_CHANGE) or old.get(key) == new.get(key):
            continue
        hint = ""
        if key == sized:
            hint = (
                " (noise was sized for the rounds then asked for; extend a run whose noise is a multiplier)"
            )
        raise SpecError(
            f"--resume: {key}",
            new.get(key),
            f"the run in {out} has {old.get(key)!r}{hint}; only training.rounds may grow",
        )
    if any(learning_rate(before.training, k) != learning_rate(now.training, k) for k in range(done)):
        raise SpecError(
            "training.rounds",
            now.training.rounds,
            "this learning-rate schedule depends on it; start a new run",
        )


def _flat(value: Any, prefix: str = "") -> dict[str, Any]:
    if isinstance(value, dict):
        return {
            k: v
            for name, item in value.items()
            for k, v in _flat(item, f"{prefix}.{name}".lstrip(".")).items()
        }
    return {prefix: value}


def _begin(out: Path, plan: Plan, privacy: PrivacyReport) -> None:
    """Write what is known before the first round, and take away what would no longer be true."""
    out.mkdir(parents=True, exist_ok=True)
    # an extended run is unfinished until it has a model again
    for stale in (out / MODEL_FILE, out / GROUPS_FILE, out / REPORT_FILE, *_left_by_a_kill(out)):
        stale.unlink(missing_ok=True)
    write_spec(out, dump_spec(plan.spec.model_copy(update={"versions": versions()})))
    write_privacy(out, privacy.to_dict())
    write_ledger(out, plan.ledger.to_dict())


def _left_by_a_kill(out: Path) -> list[Path]:
    return [path for file in _RUN_FILES for path in out.glob(f".{file}.*.tmp")]


def _save(out: Path, standing: Checkpoint) -> None:
    checkpoints.save(out, standing)
    if standing.rows:
        write_metrics(out, _frame(standing))


def _frame(standing: Checkpoint) -> pd.DataFrame:
    frame = pd.DataFrame(list(standing.rows))
    epsilons = [name for name in frame.columns if name.startswith(EPSILON_PREFIX)]
    scores = ["accuracy", "loss"]
    scores += [name for name in frame.columns if name not in {*METRIC_COLUMNS, *scores, *epsilons}]
    frame = frame[["round", *scores, *epsilons, *METRIC_COLUMNS[3:]]]
    return frame.astype({"round": np.int64, "bytes_up": np.int64, "bytes_down": np.int64})


def _finish(out: Path, session: _Session, standing: Checkpoint, privacy: PrivacyReport) -> None:
    layout = ParameterLayout.of(session.model)
    realised: dict[str, Any] = {
        "participations": standing.participations.tolist(),
        "rounds": standing.state.round,
        "parameters": layout.total,
    } | session.protocol.realised(standing.state)
    air = Realised.of(session.plan, standing.state.round, layout.total)
    if air is not None:
        realised |= air.to_dict()
    write_ledger(out, session.plan.ledger.to_dict() | {"realised": realised})
    turnout = RealisedTurnout.of(session.plan, standing.state.round)
    write_privacy(out, with_participations(privacy, standing.participations.numpy(), air, turnout).to_dict())
    _write_tensorboard(out, _frame(standing))
    for file, kept in session.protocol.keepsakes(standing.state).items():
        with replacing(out / file) as temporary:
            torch.save(kept.cpu(), temporary)
    layout.write(session.protocol.model(standing.state), session.model)
    # the model comes last but for the report: with it a run is finished
    with replacing(out / MODEL_FILE) as temporary:
        torch.save({name: value.cpu() for name, value in session.model.state_dict().items()}, temporary)
    _write_report_if_missing(out)


def _write_tensorboard(out: Path, metrics: pd.DataFrame) -> None:
    """The metrics for TensorBoard, where it is installed."""
    if find_spec("tensorboard") is None:
        return
    from sfumato.tensorboard import write_scalars  # slow to import, like the report

    write_scalars(metrics, out / _TENSORBOARD_FOLDER)


def _write_report_if_missing(out: Path) -> None:
    if (out / REPORT_FILE).is_file():
        return
    from sfumato.report import write_report  # plotly is slow to import, and a run may well be killed before

    write_report([out], out / REPORT_FILE)
