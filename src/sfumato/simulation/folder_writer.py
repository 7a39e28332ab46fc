"""Writes a run folder so that a resumed run can repair it after a kill at any moment (docs/run-folder.md).

A run is determined by its checkpoint and the log of rounds: the checkpoint's seal holds the resolved spec and
the length of the log that belongs to it. All other files are derived from these two. The order of writing is
therefore::

    begin   manifest (unfinished), stale files away, checkpoint, log, spec, privacy, ledger, manifest
    save    log, checkpoint
    finish  metrics, ledger, privacy, groups, model, manifest (finished), report, manifest
"""

from __future__ import annotations

import io
from collections.abc import Iterator, Mapping
from dataclasses import replace
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import torch

from sfumato.accounting import PrivacyReport
from sfumato.durable_files import hash_file, replacing, write_archive
from sfumato.families import family_of
from sfumato.learning.parameters import ParameterLayout
from sfumato.run_folder.contents import intact_other_files, remove_final_files, remove_run, remove_views
from sfumato.run_folder.label_counts import write_test_labels
from sfumato.run_folder.manifest import FileRecord, Manifest, write_manifest
from sfumato.run_folder.metrics_table import METRICS_FILE, columns_of, read_metrics, tables_of, write_metrics
from sfumato.run_folder.reader import (
    LEDGER_FILE,
    MODEL_FILE,
    PRIVACY_FILE,
    REPORT_FILE,
    SPEC_FILE,
    TENSORBOARD_FOLDER,
    TEST_LABELS_FILE,
    add_hashes,
    write_ledger,
    write_privacy,
    write_spec,
    write_text,
)
from sfumato.run_folder.rounds_log import (
    EMPTY,
    ROUNDS_FILE,
    LoggedRound,
    RoundsLog,
    SealedPrefix,
    read_rounds,
    write_next,
)
from sfumato.run_folder.seal import CHECKPOINT_FILE
from sfumato.run_folder.view_files import OBSERVERS_FILE, round_file, slug, write_observers
from sfumato.simulation import checkpoint as checkpoints
from sfumato.simulation.after_run import with_realised
from sfumato.simulation.checkpoint import Checkpoint, TrainingPosition
from sfumato.simulation.training_loop import Session
from sfumato.spec.frozen import FrozenSpec


class FolderWriter:
    """Writes the folder of one run, as its only writer. It must be closed.

    Args:
        folder: of the run.
        session: of the run.
        spec: of the run.
        privacy: the guarantees before the first round.
        existing: the checkpoint from which the run continues; without one, a run in the folder is replaced.
    """

    def __init__(
        self,
        folder: Path,
        session: Session,
        spec: FrozenSpec,
        privacy: PrivacyReport,
        existing: Checkpoint | None,
    ) -> None:
        self._folder, self._session, self._spec, self._privacy = folder, session, spec, privacy
        self._certificates = privacy.certificates()
        # a run whose budget leaves no first round is refused here, before anything is written or removed
        position = session.initial_position() if existing is None else existing.position
        attacked = () if existing is None else (existing.fingerprint, spec.fingerprint)
        files = intact_other_files(folder, attacks_on=attacked)
        self._manifest = Manifest(spec.fingerprint, finished=False, files=files)
        write_manifest(folder, self._manifest)
        remove_final_files(folder)
        if existing is None:
            remove_run(folder)
        mark = EMPTY if existing is None else self._log_prefix(existing)
        self._save(position, mark)
        self._log = RoundsLog(folder, mark)
        remove_views(folder, behind=mark.rounds)
        self._write_declared_files()
        self.start = position if existing is None else session.continued(position)

    def close(self) -> None:
        """Close the log of rounds; rounds that were not saved are lost."""
        self._log.close()

    def rounds(self) -> Iterator[LoggedRound]:
        """Yield the metrics and views of the rounds that have been saved, from the first.

        Raises:
            RunError: the log of rounds is missing or damaged.
        """
        return read_rounds(self._folder, self._log.mark)

    def add(self, position: TrainingPosition, row: Mapping[str, float]) -> None:
        """Write the recorded views of the last round, then add ``row``, its metrics, to the log.

        ``position`` is the state after that round, which counts as done once `save` is called.
        """
        number = position.state.round - 1
        views = {
            slug(recorder.name): recorder.write(self._folder, number) for recorder in self._session.recorders
        }
        self._log.add(LoggedRound(row, views))

    def save(self, position: TrainingPosition) -> None:
        """Write the log, and a checkpoint of ``position`` to resume from; every rank calls it."""
        whole = replace(position, state=position.state.whole())
        self._save(whole, self._log.flush(position.state.round))

    def stop(self, position: TrainingPosition) -> None:
        """Save a run that was interrupted at ``position``, with its metrics up to now as a table.

        A state whose parts other ranks hold is not saved, as they may be gone: the last checkpoint stays.
        """
        if not position.state.is_shared:
            self.save(position)
        if self._log.mark.rounds > 0:
            self._add_to_manifest({METRICS_FILE: self._write_metrics()})

    def finish(self, position: TrainingPosition) -> None:
        """Save a run finished at ``position``, write all derived files, and mark the manifest as finished."""
        self.save(position)
        files = {METRICS_FILE: self._write_metrics()}
        files |= self._write_realised_privacy(position)
        files |= self._write_tensorboard()
        files |= self._write_models(position)
        files |= {name: _hashed(self._folder, name) for name in (CHECKPOINT_FILE, ROUNDS_FILE)}
        files |= self._views()
        self._add_to_manifest(files, finished=True)
        self._add_to_manifest({REPORT_FILE: _write_report(self._folder)}, finished=True)

    def _log_prefix(self, existing: Checkpoint) -> SealedPrefix:
        """The seal of the log to continue; the log is written again if this spec requests other metrics."""
        if existing.fingerprint == self._spec.fingerprint:
            return existing.rounds
        rounds = read_rounds(self._folder, existing.rounds)
        return write_next(self._folder, self._session.with_current_metrics(existing.position.state, rounds))

    def _save(self, position: TrainingPosition, mark: SealedPrefix) -> None:
        """Write the checkpoint of ``position``, with the seal ``mark`` of the log."""
        checkpoints.save(
            self._folder,
            Checkpoint(
                position=position,
                spec=self._spec.text,
                fingerprint=self._spec.fingerprint,
                observers=tuple(recorder.name for recorder in self._session.recorders),
                rounds=mark,
                device=self._session.speed.device,
            ),
        )

    def _write_declared_files(self) -> None:
        """Write what is known before the first round.

        These are the spec, guarantees, the ledger, counts of test labels and names of observers.
        """
        declared = self._session.plan.releases.to_dict() | {"certificates": self._certificates}
        files = {
            SPEC_FILE: write_spec(self._folder, self._spec.text),
            PRIVACY_FILE: write_privacy(self._folder, self._privacy.to_dict(), self._spec.hashes),
            LEDGER_FILE: write_ledger(self._folder, declared, self._spec.hashes),
        }
        if (labels := self._session.test_labels) is not None:
            files[TEST_LABELS_FILE] = write_test_labels(self._folder, labels, self._session.test_persons)
        if self._session.recorders:
            observers = [recorder.name for recorder in self._session.recorders]
            files[OBSERVERS_FILE] = write_observers(self._folder, observers)
        self._add_to_manifest(files)

    def _write_metrics(self) -> FileRecord:
        """Write ``metrics.parquet`` from the log; returns its record."""
        tables = tables_of(self.rounds(), columns_of(self.rounds()))
        return write_metrics(self._folder, tables, self._spec.hashes)

    def _write_realised_privacy(self, position: TrainingPosition) -> dict[str, FileRecord]:
        """Write ``privacy.json`` and ``ledger.json`` anew, with what the run settled; returns records."""
        session, rounds = self._session, position.state.round
        parameters = ParameterLayout.of(session.model).total
        family = family_of(session.plan.spec)
        facts: dict[str, Any] = {
            "participations": position.participations.tolist(),
            "rounds": rounds,
            "parameters": parameters,
            "sum_steps": family.sum_steps(session.plan, parameters),
        } | session.protocol.realised_facts(position.state)
        facts |= family.ex_post_facts(session.plan, rounds, parameters)
        declared = session.plan.releases.to_dict() | {"certificates": self._certificates, "realised": facts}
        privacy = with_realised(self._privacy, facts)
        return {
            LEDGER_FILE: write_ledger(self._folder, declared, self._spec.hashes),
            PRIVACY_FILE: write_privacy(self._folder, privacy.to_dict(), self._spec.hashes),
        }

    def _write_models(self, position: TrainingPosition) -> dict[str, FileRecord]:
        """Write the trained model and what else the protocol keeps; returns the records by file name."""
        session = self._session
        kept: dict[str, Any] = {
            file: tensor.cpu() for file, tensor in session.protocol.artifacts(position.state).items()
        }
        ParameterLayout.of(session.model).write(session.protocol.model(position.state), session.model)
        kept[MODEL_FILE] = {name: value.cpu() for name, value in session.model.state_dict().items()}
        return {file: self._write_archive(file, content) for file, content in kept.items()}

    def _write_archive(self, name: str, content: Any) -> FileRecord:
        """Write ``content`` to the file ``name`` as an archive of ``torch.save`` with the run's hashes in it.

        Returns:
            The record of the file.
        """
        archive = io.BytesIO()  # given a file name, torch.save would write that name into the archive
        torch.save(content, archive)
        add_hashes(archive, self._spec.hashes)
        with replacing(self._folder / name) as file:
            write_archive(archive, file)
        return FileRecord.of(file)

    def _write_tensorboard(self) -> dict[str, FileRecord]:
        """Write the metrics as event files for TensorBoard; returns their records by file name.

        Empty if TensorBoard is not installed.
        """
        if find_spec("tensorboard") is None:
            return {}
        from sfumato.simulation.tensorboard import write_scalars  # slow to import, like the report

        write_scalars(read_metrics(self._folder / METRICS_FILE)[0], self._folder / TENSORBOARD_FOLDER)
        found = sorted((self._folder / TENSORBOARD_FOLDER).iterdir())
        names = [f"{TENSORBOARD_FOLDER}/{path.name}" for path in found]
        return {name: _hashed(self._folder, name) for name in names}

    def _views(self) -> dict[str, FileRecord]:
        """The records of the recorded views of all rounds by file name, from the log."""
        found = {}
        if self._session.recorders:
            for number, one in enumerate(self.rounds()):
                for folder, sha256 in one.views.items():
                    name = round_file(folder, number)
                    found[name] = FileRecord(sha256, (self._folder / name).stat().st_size)
        return found

    def _add_to_manifest(self, files: Mapping[str, FileRecord], *, finished: bool = False) -> None:
        """Add ``files`` to the manifest and write it; ``finished``: mark the run as finished."""
        self._manifest = replace(self._manifest.adding(files), finished=finished)
        write_manifest(self._folder, self._manifest)


def _write_report(folder: Path) -> FileRecord:
    """Write the report of the run in ``folder``; returns its record."""
    from sfumato.report.page.sections import (
        page_of,  # plotly is slow to import, and only a finished run needs it
    )
    from sfumato.report.results.series import load_series

    return write_text(folder / REPORT_FILE, page_of(load_series([folder]), folder))


def _hashed(folder: Path, name: str) -> FileRecord:
    """The record (hash and size) of the file ``name`` that is already in ``folder``."""
    return FileRecord(*hash_file(folder / name))
