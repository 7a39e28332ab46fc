"""`run`: trains a spec round by round and writes the run folder, with checkpoints."""

from __future__ import annotations

import time
from collections.abc import Callable, Generator, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager, closing, nullcontext
from dataclasses import dataclass, replace
from functools import cached_property, partial
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np
import pandas as pd
import torch
from torch import nn

from sfumato.accounting import PrivacyReport, account, with_participations
from sfumato.arguments import Argument
from sfumato.data.given import given, with_given
from sfumato.distributed.agreement import require_same
from sfumato.distributed.ranks import ALONE, Ranks
from sfumato.engine.base import EngineSettings
from sfumato.errors import SpecError
from sfumato.learning.dropout import with_own_dropout
from sfumato.learning.given_model import giving_model, with_given_model
from sfumato.network.given_graph import with_graph
from sfumato.notebook import block
from sfumato.protocols.base import FederatedProtocol
from sfumato.protocols.view_recorder import observer_name
from sfumato.rounding import number, upper_bound
from sfumato.run_folder.contents import require_files_of_run
from sfumato.run_folder.headline import headline_of
from sfumato.run_folder.lock import only_writer
from sfumato.run_folder.reader import (
    MODEL_FILE,
    REPORT_FILE,
    SPEC_FILE,
    RunFolder,
    load_run,
    read_ledger,
)
from sfumato.schedule.base import Plan
from sfumato.schedule.resolve import resolve
from sfumato.simulation.checkpoint import Checkpoint
from sfumato.simulation.folder_writer import FolderWriter
from sfumato.simulation.input_hashes import check_inputs
from sfumato.simulation.rank_start import FolderFollower, facts_of_rank, shared_checkpoint
from sfumato.simulation.resume import (
    existing_checkpoint,
    is_complete,
    observers_to_record,
    refuse_existing_run,
    spec_of_checkpoint,
)
from sfumato.simulation.run_progress import run_progress
from sfumato.simulation.tracking import requested_trackers, tracked
from sfumato.simulation.training_inputs import initial_model, load_data
from sfumato.simulation.training_loop import Session
from sfumato.spec.document import SPEC_HASH, Spec, require_spec
from sfumato.spec.frozen import FrozenSpec, versions
from sfumato.spec.load import load_spec
from sfumato.user_code import allow_user_code

_SECONDS_BETWEEN_CHECKPOINTS = 5.0
_Row = Mapping[str, float]
PlayedBy: TypeAlias = Callable[[Session], FederatedProtocol[Any]]
_Tracking = Callable[[Iterable[_Row]], AbstractContextManager[Callable[[_Row], None]]]


@dataclass(frozen=True)
class RoundResult:
    """The result of one round.

    Attributes:
        round: number of rounds done, from 1.
        rounds: number of rounds of the run.
        metrics: the row of ``metrics.parquet``.
    """

    round: int
    rounds: int
    metrics: dict[str, float]


@dataclass(frozen=True)
class Run:
    """A finished run and its folder.

    Attributes:
        folder: its folder.
        data: what was given as data in Python.
        given_model: what was given as model in Python.
    """

    folder: RunFolder
    data: Any = None
    given_model: nn.Module | None = None

    def __repr__(self) -> str:
        score = headline_of(self.metrics)
        measured = self.metrics[score.column].dropna()
        reached = f", {score.name} {score.text(float(measured.iloc[-1]))}" if len(measured) else ""
        folder = self.folder
        return f"<Run {folder.name}: {len(folder.metrics):,} rounds{reached}, in {folder.path}>"

    def _repr_html_(self) -> str:
        privacy = self.folder.privacy
        rows = sorted(privacy.guarantees, key=lambda row: -row.epsilon)
        return block(
            repr(self)[1:-1],
            ("relation", "unit", "observer", f"ε (δ = {number(privacy.delta)})", "pairs"),
            [
                (row.relation.words, row.unit, row.observer, upper_bound(row.epsilon), f"{row.stands_for:,}")
                for row in rows
            ],
        )

    @property
    def metrics(self) -> pd.DataFrame:
        """One row for each round (the columns are those of ``metrics.parquet``)."""
        return self.folder.metrics

    @cached_property
    def privacy(self) -> PrivacyReport:
        """Guarantees and claims, including ε after the run."""
        report = account(load_spec(self.folder.path / SPEC_FILE), data=self.data)
        realised = read_ledger(self.folder.path).get("realised")
        if not realised:
            return report
        participations = np.array(realised["participations"])
        return with_participations(report, participations, realised["rounds"], realised["parameters"])

    @cached_property
    def model(self) -> nn.Module:
        """The trained model, on the CPU, in eval mode: the global one, or the average of the workers' own."""
        spec = load_spec(self.folder.path / SPEC_FILE)
        state = torch.load(self.folder.path / MODEL_FILE, map_location="cpu", weights_only=True)
        # the shape of an example depends on the data set, which is loaded to find it
        with allow_user_code(), given(self.data), giving_model(self.given_model):
            plan = resolve(spec)
            data = load_data(plan)
            model = initial_model(spec, data)
        model.load_state_dict(state)
        return with_own_dropout(model)

    def report(self, out: Path | None = None) -> Path:
        """Write the report to ``out`` (default: into the run folder); returns its path."""
        from sfumato.report import write_report

        return write_report([self.folder.path], out or self.folder.path / REPORT_FILE)


def run(
    spec: Spec,
    *,
    data: Any = None,
    model: nn.Module | None = None,
    graph: Any = None,
    on_round: Callable[[RoundResult], object] | None = None,
    out: str | Path | None = None,
    device: str = "auto",
    resume: bool = False,
    force: bool = False,
    record_views: Sequence[str] = (),
    progress: bool = True,
    track: str | Sequence[str] = (),
) -> Run:
    """Train ``spec`` and write everything to the folder ``out`` (default ``runs/NAME``). See `run_rounds`.

    ``data`` and ``model`` take the place of ``data.source`` and ``model.kind``: a pandas DataFrame, a tuple
    of arrays (features, labels[, sites]) or a torch Dataset; a module, which is copied. The folder keeps
    their hashes. ``graph``, a NetworkX graph, takes the place of ``topology`` and is written out in the
    folder's spec: see `sfumato.network.given_graph`. ``on_round`` is called after every round; what it raises
    ends the run, whose checkpoint is kept. With ``progress`` a bar is drawn on a terminal and in a notebook.
    ``track="wandb"`` or ``"mlflow"`` sends the metrics of every round there. No guarantee covers them.
    """
    require_spec(spec)
    if out is not None and not str(out):
        raise SpecError(Argument("out"), out, "is empty; give a folder")
    folder = Path(out) if out is not None else default_folder(spec)
    spec = with_given_model(with_given(with_graph(spec, graph), data), model)
    with given(data), giving_model(model), run_progress(spec, wanted=progress) as shown:
        playing = run_rounds(
            spec,
            out=folder,
            device=device,
            resume=resume,
            force=force,
            record_views=record_views,
            track=track,
            on_step=shown.step,
        )
        with closing(playing):
            for result in playing:
                if progress:
                    shown.round(result.round, result.rounds, result.metrics)
                if on_round is not None:
                    on_round(result)
    return Run(load_run(folder), data, model)


def default_folder(spec: Spec) -> Path:
    """The default folder of a run."""
    return Path("runs") / spec.name


def run_rounds(
    spec: Spec,
    *,
    out: Path,
    device: str = "auto",
    resume: bool = False,
    force: bool = False,
    record_views: Sequence[str] = (),
    track: str | Sequence[str] = (),
    on_step: Callable[[str], object] = lambda name: None,
    ranks: Ranks = ALONE,
    played_by: PlayedBy | None = None,
) -> Generator[RoundResult]:
    """Train ``spec`` round by round and write the run folder ``out``, as its only writer.

    Of several ranks, which all call this, rank 0 alone reads and writes ``out`` and sends metrics.

    A run that is killed at any moment and resumed ends with the same model and the same metrics (except wall
    time) as one that is not. After an exception, an interrupt included, there is a checkpoint.

    Args:
        spec: as loaded.
        out: the run folder.
        device: auto, cpu or cuda; a resumed run keeps its device.
        resume: continue the run in ``out``, or start if there is none; damaged files are written again.
        force: replace the run that ``out`` holds.
        record_views: observers and coalitions whose views are recorded: all vectors that they receive. A
            resumed run records the same observers.
        track: ``wandb`` or ``mlflow``, or both: where metrics are sent after every round, which no guarantee
            covers (docs/run-folder.md, *Experiment trackers*).
        on_step: called with the name of every step that begins, except rounds.
        ranks: the processes that share the training.
        played_by: what plays the rounds instead of a simulation; then every round is saved when it is done.

    Yields:
        Every round when it is done; nothing for a run that was finished already.

    Raises:
        MissingExtraError: a tracker is not installed.
        SpecError: the spec is wrong, ``out`` holds a run and neither ``resume`` nor ``force`` is set, or it
            holds another run, or another process is writing there.
        DataError: the data or the model differ from those with which the run was started.
        RunError: the folder is damaged or cannot be written, or a tracker refuses.
    """
    trackers = requested_trackers(track)
    if resume and force:
        raise SpecError(
            Argument("force"), None, f"cannot be used with {Argument('resume')}: it replaces the run"
        )
    on_step("preparing the schedule and its noise")
    with allow_user_code():
        plan = resolve(spec)
    observers = tuple(observer_name(plan, names, place=Argument("record_views")) for names in record_views)
    device, writes = pick_device(device), ranks.rank == 0
    require_same(ranks, facts_of_rank(plan, device, observers))
    with only_writer(out, argument=Argument("out")) if writes else nullcontext():
        found = _checkpoint_to_continue(plan, out, resume=resume, force=force) if writes else None
        playing = partial(_run_in_folder, device=device, on_step=on_step, ranks=ranks, played_by=played_by)
        tracking = partial(tracked, trackers if writes else (), spec)
        yield from playing(plan, out, shared_checkpoint(found, ranks, device), observers, tracking=tracking)


def _checkpoint_to_continue(plan: Plan, out: Path, *, resume: bool, force: bool) -> Checkpoint | None:
    """The checkpoint in ``out`` to continue from, if that is wanted and there is one."""
    require_files_of_run(out)
    existing = existing_checkpoint(plan, out) if resume else None
    if not resume and not force:
        refuse_existing_run(out)
    return existing


def _run_in_folder(
    plan: Plan,
    out: Path,
    existing: Checkpoint | None,
    observers: tuple[str, ...],
    *,
    device: str,
    tracking: _Tracking,
    on_step: Callable[[str], object],
    ranks: Ranks,
    played_by: PlayedBy | None,
) -> Generator[RoundResult]:
    """Start the run in ``out``, or continue it from ``existing``."""
    inputs = plan.spec.hashes
    if existing is not None:
        observers = observers_to_record(observers, existing, out)
        inputs, device = spec_of_checkpoint(existing).hashes, existing.device
        complete = ranks.of_first(ranks.rank == 0 and is_complete(out))
        if complete and _frozen(plan, inputs).fingerprint == existing.fingerprint:
            return
    on_step("computing ε")
    with allow_user_code():
        privacy = account(plan.spec)
    on_step("reading the data, building the model")
    speed = EngineSettings.default(device)
    speed = replace(speed, memory_bytes=min(ranks.gather(speed.memory_bytes)))  # ranks meet at every chunk
    session = Session.prepare(plan, speed, privacy, tuple(dict.fromkeys(observers)), ranks)
    require_same(ranks, session.hashes)
    if played_by is not None:
        session = replace(session, protocol=played_by(session))
    check_inputs(inputs, session.hashes, f"the run in {out}")
    frozen = _frozen(plan, {**inputs, **session.hashes})
    writer: FolderWriter | FolderFollower
    if ranks.rank == 0:
        writer = FolderWriter(out, session, frozen, privacy, existing)
    else:
        writer = FolderFollower(session, existing)
    with closing(writer):
        interval = _SECONDS_BETWEEN_CHECKPOINTS if played_by is None else 0.0
        yield from _run_remaining_rounds(session, writer, tracking, on_step, interval)


def _run_remaining_rounds(
    session: Session,
    writer: FolderWriter | FolderFollower,
    tracking: _Tracking,
    on_step: Callable[[str], object],
    interval: float,
) -> Generator[RoundResult]:
    """Train the remaining rounds and write their results, with so many seconds between checkpoints."""
    position, saved_at = writer.start, time.monotonic()
    on_step("training")
    try:
        with tracking(one.metrics for one in writer.rounds()) as send:
            while position.state.round < session.rounds(position.state):
                done, row = session.next(position)
                writer.add(done, row)
                position = done  # only after the round has been written
                if time.monotonic() - saved_at >= interval:
                    writer.save(position)
                    saved_at = time.monotonic()
                send(row)
                yield RoundResult(position.state.round, session.rounds(position.state), row)
    except BaseException:
        writer.stop(position)
        raise
    on_step("writing the report")
    writer.finish(position)


def _frozen(plan: Plan, hashes: Mapping[str, str]) -> FrozenSpec:
    """The spec of ``plan`` as it is written to a run folder, with the hashes of the inputs."""
    inputs = {name: value for name, value in hashes.items() if name != SPEC_HASH}
    return FrozenSpec.of(plan.spec, inputs, versions())


def pick_device(device: str) -> str:
    """``device``, or for ``auto`` the best there is."""
    if device != "auto":
        return device
    return "cuda" if torch.cuda.is_available() else "cpu"
