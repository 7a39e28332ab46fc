"""Plays a spec to the end: data, devices, rounds, metrics, checkpoints, and the run folder they end up in."""

from __future__ import annotations

import platform
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from importlib.metadata import PackageNotFoundError, version
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import torch
from torch import nn

from sfumato import checkpoint as checkpoints
from sfumato.accounting import PrivacyReport, account, with_participations
from sfumato.checkpoint import Checkpoint
from sfumato.engine.local import Speed
from sfumato.engine.threads import intra_op_threads
from sfumato.learning.parameters import ParameterLayout
from sfumato.materials import initial_model, load_data
from sfumato.protocols.controlled import ControlledState
from sfumato.protocols.recording import (
    observer_name,
    write_observers,
)
from sfumato.resuming import held_checkpoint, observers_held
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
from sfumato.schedule.plan import Plan
from sfumato.schedule.resolve import resolve
from sfumato.schedule.turnout_realised import RealisedTurnout
from sfumato.session import Session
from sfumato.spec.document import Spec
from sfumato.spec.load import dump_spec, load_spec

_SECONDS_BETWEEN_CHECKPOINTS = 5.0
_TENSORBOARD_FOLDER = "tensorboard"
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
        data = load_data(resolve(spec))
        model = initial_model(spec, data)
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
    held = held_checkpoint(plan, out, resume)
    if held is not None:
        observers = observers_held(observers, held, out)
    if held is not None and _is_complete(plan, held) and (out / MODEL_FILE).is_file():
        _write_report_if_missing(out)
        return
    speed = held.speed if held is not None else Speed.default(_pick_device(device))
    privacy = account(plan.spec)
    session = Session.prepare(plan, speed, privacy, tuple(dict.fromkeys(observers)))
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
    session = Session.prepare(resolve(spec), Speed.default(_pick_device(device)))
    with intra_op_threads(1):
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


def _pick_device(device: str) -> str:
    if device != "auto":
        return device
    return "cuda" if torch.cuda.is_available() else "cpu"


def _is_complete(plan: Plan, held: Checkpoint) -> bool:
    """Whether ``held`` has played all rounds."""
    if isinstance(held.state, ControlledState):
        return bool(held.state.ended)
    return held.state.round == plan.spec.training.rounds


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


def _finish(out: Path, session: Session, standing: Checkpoint, privacy: PrivacyReport) -> None:
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
