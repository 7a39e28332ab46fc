"""`run`: trains a spec round by round and writes the run folder, with checkpoints."""

from __future__ import annotations

import time
from collections.abc import Callable, Generator, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager, closing, nullcontext
from dataclasses import dataclass, replace
from functools import partial
from itertools import zip_longest
from pathlib import Path
from typing import Any, TypeAlias, TypedDict, Unpack, overload

import numpy as np
from torch import nn

from sfumato.accounting import account
from sfumato.arguments import Argument
from sfumato.data.given import given, with_given
from sfumato.distributed.agreement import require_same
from sfumato.distributed.ranks import ALONE, Ranks
from sfumato.engine.base import EngineSettings, picked_device
from sfumato.engine.repeatable import repeatable_arithmetic
from sfumato.errors import SpecError
from sfumato.interrupts import raise_lost_interrupt
from sfumato.learning.given_model import giving_model, with_given_model
from sfumato.network.given_graph import with_graph
from sfumato.protocols.base import FederatedProtocol
from sfumato.protocols.view_recorder import observer_name
from sfumato.run_folder.contents import refuse_folders_in_run
from sfumato.run_folder.lock import only_writer
from sfumato.run_folder.reader import REPORT_FILE, load_run
from sfumato.schedule.base import Plan
from sfumato.schedule.resolve import resolve
from sfumato.simulation.checkpoint import Checkpoint
from sfumato.simulation.finished_run import Run
from sfumato.simulation.folder_writer import FolderWriter
from sfumato.simulation.input_hashes import check_inputs
from sfumato.simulation.plays import Play, check_folders, default_folder, plays_of, twins_of
from sfumato.simulation.rank_start import FolderFollower, facts_of_rank, shared_checkpoint
from sfumato.simulation.resume import (
    existing_checkpoint,
    is_complete,
    observers_to_record,
    refuse_existing_run,
    refuse_mixed_continuation,
    spec_of_checkpoint,
)
from sfumato.simulation.run_progress import run_progress
from sfumato.simulation.seed_runs import SeedRuns
from sfumato.simulation.tracking import requested_trackers, tracked
from sfumato.simulation.training_loop import Session
from sfumato.spec.document import SPEC_HASH, Spec, require_spec
from sfumato.spec.frozen import FrozenSpec, versions
from sfumato.spec.other_words import refusing_keys
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


class RunOptions(TypedDict, total=False):
    """The arguments of `run` by name."""

    data: Any
    model: nn.Module | None
    graph: Any
    on_round: Callable[[RoundResult], object] | None
    out: str | Path | None
    device: str
    resume: bool
    force: bool
    record_views: Sequence[str]
    progress: bool
    track: str | Sequence[str]
    baseline: bool


@overload
def run(spec: Spec, *, seeds: None = None, **options: Unpack[RunOptions]) -> Run: ...
@overload
def run(spec: Spec, *, seeds: int, **options: Unpack[RunOptions]) -> SeedRuns: ...
@refusing_keys
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
    seeds: int | None = None,
    baseline: bool = False,
) -> Run | SeedRuns:
    """Train ``spec`` and write everything to a run folder, which `sfumato.load_run` reads.

    All guarantees are those of all rounds of the spec, and hold for fewer.
    ``device``, ``resume``, ``force``, ``record_views`` and ``track`` are those of `run_rounds`.

    Args:
        spec: as loaded.
        data: in place of ``data.source``: a pandas DataFrame, a tuple of arrays (features, labels[, sites])
            or a torch Dataset. The folder keeps its hash.
        model: in place of ``model.kind``: a module, which is copied. The folder keeps its hash.
        graph: in place of ``topology``: a NetworkX graph (`sfumato.network.given_graph`), which the folder's
            spec holds.
        on_round: called after every round; where it returns True, or raises, the run stops, to be resumed.
        out: the run folder; default ``runs/NAME``.
        progress: whether a bar is drawn, on a terminal and in a notebook.
        seeds: how many seeds are trained, from the spec's on, in ``out/seed-N``; ``None``: only the spec's.
        baseline: whether the twin without noise (same data, seed, schedule, clip) is trained too, in
            ``out-without-noise``. It has no guarantee: its folder is as private as the data.

    Returns:
        The run, finished or stopped; the runs of all seeds where ``seeds`` is given.

    Raises:
        SfumatoError: as of `run_rounds`; a SpecError also where arguments do not go together.
    """
    require_spec(spec)
    if out is not None and not str(out):
        raise SpecError(Argument("out"), out, "is empty; give a folder")
    folder = Path(out) if out is not None else default_folder(spec)
    spec = with_given_model(with_given(with_graph(spec, graph), data), model)
    plays = plays_of(spec, folder, seeds)
    options = {"device": device, "resume": resume, "force": force}
    with given(data), giving_model(model):
        twins = twins_of(spec, folder, seeds) if baseline else []
        check_folders(folder, goes_on=resume or force, several=seeds is not None, baseline=baseline)
        for play in plays:
            _played(play, on_round, progress=progress, record_views=record_views, track=track, **options)
        for twin in twins:
            _played(twin, None, progress=progress, **options)
    done = _finished(folder, plays, twins, data, model)
    return done[0] if seeds is None else SeedRuns(folder, done)


def _finished(
    folder: Path, plays: Sequence[Play], twins: Sequence[Play], data: Any, model: nn.Module | None
) -> tuple[Run, ...]:
    """The runs of ``plays``, which are done, each with its twin if there are ``twins``.

    With twins the report in ``folder`` is written again, as it says what privacy costs.

    Args:
        folder: that the report is written to.
        plays: the runs.
        twins: their twins, in the same order, or none.
        data: as given to `run`, for the runs.
        model: as given to `run`, for the runs.
    """
    if twins:
        from sfumato.report import write_report  # slow to import

        write_report([folder], folder / REPORT_FILE)
    silent = [Run(load_run(twin.folder), data, model) for twin in twins]
    pairs = zip_longest(plays, silent)
    return tuple(Run(load_run(play.folder), data, model, twin) for play, twin in pairs)


def _played(
    play: Play, on_round: Callable[[RoundResult], object] | None, *, progress: bool, **options: Any
) -> None:
    """Train one run, until its last round or until ``on_round`` returns True.

    ``progress``: whether a bar is drawn; ``options``: further arguments of `run_rounds`.
    """
    with (
        run_progress(play.spec, wanted=progress) as shown,
        closing(run_rounds(play.spec, out=play.folder, on_step=shown.step, **options)) as playing,
    ):
        for result in playing:
            if progress:
                shown.round(result.round, result.rounds, result.metrics)
            answer = None if on_round is None else on_round(result)
            if isinstance(answer, bool | np.bool_) and answer:
                return


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
    device, writes = picked_device(device), ranks.rank == 0
    require_same(ranks, facts_of_rank(plan, device, observers))
    with only_writer(out, argument=Argument("out")) if writes else nullcontext():
        found = _checkpoint_to_continue(plan, out, resume=resume, force=force) if writes else None
        playing = partial(_run_in_folder, device=device, on_step=on_step, ranks=ranks, played_by=played_by)
        tracking = partial(tracked, trackers if writes else (), spec)
        yield from playing(plan, out, shared_checkpoint(found, ranks, device), observers, tracking=tracking)


def _checkpoint_to_continue(plan: Plan, out: Path, *, resume: bool, force: bool) -> Checkpoint | None:
    """The checkpoint in ``out`` to continue from; ``None`` to start at the first round.

    Args:
        plan: of the run.
        out: the run folder.
        resume: whether a run in it is continued.
        force: whether a run in it is replaced.

    Raises:
        SpecError: another run is there, or a run that is to be neither continued nor replaced.
    """
    refuse_folders_in_run(out)
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
    """Start the run in ``out``, or continue it from ``existing``; yields every round when it is done.

    The arguments are those of `run_rounds`; ``observers``: whose views are recorded.
    """
    inputs = plan.spec.hashes
    if existing is not None:
        refuse_mixed_continuation(existing, out, deployed=played_by is not None)
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
    with closing(writer), repeatable_arithmetic(device):
        interval = _SECONDS_BETWEEN_CHECKPOINTS if played_by is None else 0.0
        yield from _run_remaining_rounds(session, writer, tracking, on_step, interval)


def _run_remaining_rounds(
    session: Session,
    writer: FolderWriter | FolderFollower,
    tracking: _Tracking,
    on_step: Callable[[str], object],
    interval: float,
) -> Generator[RoundResult]:
    """Train the remaining rounds and write their results; yields every round when it is done.

    Args:
        session: of the run.
        writer: of its folder.
        tracking: where metrics are sent.
        on_step: called with the name of every step that begins, except rounds.
        interval: seconds from one checkpoint to the next.
    """
    position, saved_at = writer.start, time.monotonic()
    on_step("training")
    try:
        with tracking(one.metrics for one in writer.rounds()) as send:
            while position.state.round < session.rounds(position.state):
                raise_lost_interrupt()
                done, row = session.next(position)
                writer.add(done, row)
                position = done  # only after the round has been written
                due = time.monotonic() - saved_at >= interval
                if position.state.is_shared:
                    due = session.ranks.of_first(due)
                if due:
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
    """The spec of ``plan`` as it is written to a run folder, with versions and the ``hashes`` of inputs."""
    inputs = {name: value for name, value in hashes.items() if name != SPEC_HASH}
    return FrozenSpec.of(plan.spec, inputs, versions())
