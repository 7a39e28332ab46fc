"""Reads the vectors that a run recorded of an observer, and the plan of that run."""

from __future__ import annotations

import hashlib
import io
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from sfumato.arguments import Argument
from sfumato.errors import RunError, SpecError
from sfumato.families import require_tree
from sfumato.protocols.tree.local_work import server_optimizer
from sfumato.run_folder.reader import SPEC_FILE, VIEWS_FOLDER, RunFolder, repair_hint
from sfumato.run_folder.rounds_log import read_rounds
from sfumato.run_folder.seal import read_seal
from sfumato.run_folder.view_files import OBSERVERS_FILE, VIEW_FILE, read_observers, round_file, slug
from sfumato.schedule.base import Plan
from sfumato.schedule.control.realised_rounds import settings_of_run, with_realised_rounds
from sfumato.schedule.resolve.tree import resolve_tree
from sfumato.schedule.rows.observers import parse_coalition
from sfumato.schedule.tree import TreePlan
from sfumato.spec.document import Spec
from sfumato.spec.load import load_spec

VectorKey = tuple[int, str, int, int]
"""Aggregation (in groups, of a worker's message: the group), kind, tier and party; see `view_recorder`."""
RoundVectors = Mapping[VectorKey, Tensor]


@dataclass(frozen=True)
class RecordedView:
    """The record of one observer or coalition in a run.

    Attributes:
        folder: of the run.
        observer: name of the observer.
        hashes: SHA-256 of the record of each round, from the first round on.
    """

    folder: Path
    observer: str
    hashes: tuple[str, ...]

    @cached_property
    def rounds(self) -> tuple[int, ...]:
        """A tuple with the numbers of the recorded rounds, from 0."""
        return tuple(range(len(self.hashes)))

    def vectors(self, number: int) -> RoundVectors:
        """The vectors that the observer received in round ``number``, in order.

        Returns:
            The vectors, float32 ``[M]``, by (step, kind, tier, party).

        Raises:
            RunError: the file is missing or damaged.
        """
        path = self.folder / round_file(slug(self.observer), number)
        try:
            content = path.read_bytes()
            if hashlib.sha256(content).hexdigest() != self.hashes[number]:
                raise ValueError("its content differs from what the run wrote")
            with np.load(io.BytesIO(content), allow_pickle=False) as file:
                columns = [file[name].tolist() for name in ("step", "kind", "tier", "party")]
                vectors = torch.from_numpy(file["vector"])
            keys = zip(*columns, strict=True)
            return {
                (int(step), str(kind), int(tier), int(party)): vector
                for (step, kind, tier, party), vector in zip(keys, vectors, strict=True)
            }
        except (OSError, ValueError, KeyError) as error:
            raise RunError(f"{path}: cannot be read: {error}") from None


def plan_of_run(run: RunFolder) -> TreePlan:
    """The resolved plan of a run over a tree, with the rounds that control chose, if attacks support it.

    Raises:
        SpecError: the run was not over a tree, devices moved, or the training is not supported.
        RunError: with control, the run is not finished.
    """
    spec = load_spec(run.path / SPEC_FILE)
    require_tree(spec, "an inversion needs a run over a tree or a star")
    plan = resolve_tree(spec)
    plan.require_one_tree("attacks follow one tree through all rounds")
    require_known_training(plan.spec)
    return plan if spec.control is None else with_realised_rounds(plan, settings_of_run(run.path))


def require_known_training(spec: Spec) -> Spec:
    """``spec`` itself, if attacks can simulate what devices do in its training.

    Raises:
        SpecError: it has control variates, another task or loss than classification by cross-entropy, tokens,
            or noise at local steps.
    """
    if spec.training.keeps_variates:
        allowed = "must not be scaffold to attack a run: the attacks know no control variates of devices"
        raise SpecError("training.drift_correction.kind", "scaffold", allowed)
    if spec.data.task != "classification":
        raise SpecError("data.task", spec.data.task, "must be classification to attack a run")
    if spec.training.loss not in (None, "cross-entropy"):
        raise SpecError("training.loss", spec.training.loss, "must be cross-entropy to attack a run")
    if spec.data.vocabulary is not None:
        raise SpecError("data.vocabulary", spec.data.vocabulary, "attacks know of features that are numbers")
    if spec.privacy.step_noise:
        raise SpecError("privacy.noise.at", "step", "attacks know of noise on messages only")
    return spec


def replay_rounds(
    plan: TreePlan, view: RecordedView, initial: Tensor
) -> Iterator[tuple[int, Tensor, RoundVectors]]:
    """Yield (number, global model at the beginning ``[M]``, vectors received) of every recorded round.

    The global model is public: it follows from the broadcasts of the cloud.

    Args:
        plan: of the run.
        view: of any observer; the last broadcast of a round reaches all of them.
        initial: the model that training started from ``[M]``.
    """
    server, last = server_optimizer(plan.spec.training.server), len(plan.aggregations) - 1
    memory, model = server.initial(initial), initial
    for number in view.rounds:
        vectors = view.vectors(number)
        yield number, model, vectors
        memory, model = server.step(memory, model, vectors[last, "broadcast", 0, 0] - model)


def load_view_by_name(plan: Plan, run: RunFolder, observer: str) -> RecordedView:
    """Load the recorded view of an observer, which may be named by sites, such as ``north``.

    Raises:
        SpecError: the run did not record this observer.
        RunError: the record is damaged, contains no round yet, or lacks rounds.
    """
    try:
        coalition = parse_coalition(observer, plan.parties)
    except SpecError:
        return load_view(run, observer)  # which says what was recorded
    return load_view(run, ",".join(plan.releases.party_name(party) for party in coalition))


def load_view(run: RunFolder, observer: str) -> RecordedView:
    """The recorded view of ``observer``, such as ``edge:0`` or ``device:1,device:2``, of all rounds of a run.

    Raises:
        SpecError: the run did not record this observer.
        RunError: the record is damaged, contains no round yet, or lacks rounds.
    """
    folder = run.path
    name = ",".join(dict.fromkeys(party.strip() for party in observer.split(",")))
    for damage in run.manifest.damages(folder, [OBSERVERS_FILE]):
        raise RunError(f"{folder / damage.name}: {damage.what}; {repair_hint(folder)}")
    recorded = read_observers(folder) if OBSERVERS_FILE in run.manifest.files else ()
    if name not in recorded:
        there = f"recorded: {'; '.join(recorded)}" if recorded else "it recorded no observer"
        again = Argument("record_views", [name])
        allowed = f"must be an observer that the run recorded ({there}); run it with {again}"
        raise SpecError(Argument("observer"), observer, allowed)
    at = folder / VIEWS_FOLDER / slug(name)
    if run.metrics.empty:
        raise RunError(f"{at}: contains no round yet")
    hashes = _hashes_by_round(run, slug(name))
    files = [round_file(slug(name), number) for number in range(len(run.metrics))]
    lost = [n + 1 for n, file in enumerate(files) if n not in hashes or not (folder / file).is_file()]
    if lost:
        which = ", ".join(map(str, lost[:8])) + (", ..." if len(lost) > 8 else "")
        raise RunError(
            f"{at}: round {which} of {len(files):,} is missing; an attack needs all rounds from the first "
            f"on: record them in a new run, or run again with {Argument('force', True)}"
        )
    return RecordedView(folder, name, tuple(hashes[number] for number in range(len(files))))


def _hashes_by_round(run: RunFolder, folder: str) -> dict[int, str]:
    """The SHA-256 of the file of each round, by number from 0, in ``folder``.

    Of an unfinished run they are in its log of rounds.
    """
    if run.finished:
        views = ((VIEW_FILE.fullmatch(name), record) for name, record in run.manifest.files.items())
        return {int(view[2]) - 1: record.sha256 for view, record in views if view and view[1] == folder}
    seal = read_seal(run.path)
    rounds = () if seal is None else read_rounds(run.path, seal.rounds)
    return {n: one.views[folder] for n, one in enumerate(rounds) if folder in one.views}
