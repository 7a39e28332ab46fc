"""Runs that were started from the page: each a process of `sfumato run` with a new run folder."""

from __future__ import annotations

import shutil
import signal
import subprocess
import tempfile
import threading
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from sfumato.errors import RunError, SfumatoError
from sfumato.explore.edited_spec import with_name_suffix
from sfumato.interrupts import wait_or_kill
from sfumato.own_command import own_command
from sfumato.report.figures.curves import score_figures
from sfumato.report.figures.epsilon_curves import epsilon_figures
from sfumato.report.figures.figure import Figure
from sfumato.report.results.series import load_series
from sfumato.run_folder.beside import next_free
from sfumato.run_folder.reader import REPORT_FILE, SPEC_FILE, holds_run
from sfumato.spec.document import MAX_NAME, Spec
from sfumato.spec.load import dump_spec
from sfumato.spec.privacy import NoiseBySource

PILOT_ROUNDS = 5
_INTERRUPTED = 130
_PATIENCE_S = 60.0
_ROOM = 6  # letters for the number of a folder
State = Literal["running", "finished", "stopped", "failed"]


@dataclass(frozen=True)
class StartedRun:
    """A run that was started from the page.

    Attributes:
        number: of the job, from 1.
        what: ``run`` or ``pilot``.
        folder: of the run.
        rounds: of the setting; a pilot plays fewer.
        process: of the command.
        errors: what the command printed to its standard error.
    """

    number: int
    what: str
    folder: Path
    rounds: int
    process: subprocess.Popen[bytes]
    errors: Path

    @property
    def state(self) -> State:
        """The state of the run: ``running``, ``finished``, ``stopped`` (by a signal) or ``failed``."""
        status = self.process.poll()
        if status is None:
            return "running"
        if status == 0:
            return "finished"
        return "stopped" if status in (_INTERRUPTED, -signal.SIGTERM) else "failed"

    @property
    def report(self) -> Path | None:
        """Path of the report; ``None`` until the run has written it.

        ``None``, too, for a run that was stopped or failed.
        """
        page = self.folder / REPORT_FILE
        return page if self.state == "finished" and page.is_file() else None

    def stop(self) -> None:
        """Terminate the process of the run, which writes a checkpoint first; does nothing if it has ended."""
        if self.process.poll() is None:
            self.process.terminate()

    def state_sentence(self) -> str:
        """The state of the run in a sentence.

        Of a failed one it is the last line that the command printed to its standard error.
        """
        match self.state:
            case "running":
                return f"The {self.what} in {self.folder} is running."
            case "finished":
                return f"The {self.what} in {self.folder} is finished."
            case "stopped" if not holds_run(self.folder):
                return f"The {self.what} was stopped before its first round."
            case "stopped":
                spec = self.folder / SPEC_FILE
                return (
                    f"The {self.what} was stopped; continue it with: sfumato run {spec} --out {self.folder} "
                    "--resume"
                )
        lines = self.errors.read_text("utf-8", errors="replace").strip().splitlines()
        return lines[-1] if lines else f"The {self.what} failed with status {self.process.returncode}."


class Jobs:
    """All runs started from the page, one at a time; `close` stops them.

    Args:
        runs: the folder that gets a folder for every run.
    """

    def __init__(self, runs: Path) -> None:
        self.runs = runs
        self._scratch = Path(tempfile.mkdtemp(prefix="sfumato-explore-"))
        self._jobs: dict[int, StartedRun] = {}
        self._one = threading.Lock()

    def __getitem__(self, number: int) -> StartedRun:
        return self._jobs[number]

    def __contains__(self, number: object) -> bool:
        return number in self._jobs

    def start(self, spec: Spec) -> StartedRun:
        """Start a run of ``spec`` as `sfumato run` does, in a new folder.

        Raises:
            RunError: another run is not finished.
        """
        return self._start(spec, "run", spec.training.rounds)

    def pilot(self, spec: Spec, resolved: Spec) -> StartedRun:
        """Start a run of the first rounds of a setting, with the noise that all of its rounds need.

        Args:
            spec: the setting's.
            resolved: with every source of noise written out.

        Raises:
            RunError: another run is not finished.
        """
        rounds = min(PILOT_ROUNDS, spec.training.rounds)
        noise = resolved.privacy.noise
        if isinstance(noise, NoiseBySource):  # not the noise that so few rounds would be given
            noise = noise.model_copy(update={"calibrated_from": None})
        short = resolved.model_copy(
            update={
                "training": resolved.training.model_copy(update={"rounds": rounds}),
                "privacy": resolved.privacy.model_copy(update={"noise": noise}),
                "evaluate_every": 1,
            }
        )
        return self._start(with_name_suffix(short, "-pilot"), "pilot", spec.training.rounds)

    def close(self) -> None:
        """Stop all runs, and wait up to a minute each for their checkpoints; then they are killed."""
        for job in self._jobs.values():
            job.stop()
        for job in self._jobs.values():
            wait_or_kill(job.process, _PATIENCE_S)
        shutil.rmtree(self._scratch, ignore_errors=True)

    def _start(self, spec: Spec, what: str, rounds: int) -> StartedRun:
        """Start a process that runs ``spec`` in a new folder.

        ``what``: ``run`` or ``pilot``; ``rounds``: of the setting, of which a pilot's ``spec`` has fewer.

        Raises:
            RunError: another run is not finished.
        """
        with self._one:
            if any(job.state == "running" for job in self._jobs.values()):
                raise RunError("another run is not finished: stop it, or wait for its end")
            number, folder = len(self._jobs) + 1, new_folder(self.runs, spec.name)
            file, errors = self._scratch / f"{number}.yaml", self._scratch / f"{number}.txt"
            named = spec.model_copy(update={"name": folder.name})
            file.write_text(dump_spec(named), encoding="utf-8")
            command = own_command("run", str(file), "--out", str(folder), "--quiet")
            with errors.open("wb") as said:
                process = subprocess.Popen(
                    command, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=said,
                    start_new_session=True,
                )  # fmt: skip
            self._jobs[number] = StartedRun(number, what, folder, rounds, process, errors)
            return self._jobs[number]


def new_folder(runs: Path, name: str) -> Path:
    """A path in ``runs`` where nothing is yet: ``NAME``, or ``NAME-2`` and so on; it is not made."""
    folder = runs / name
    return folder if not folder.exists() else next_free(runs / name[: MAX_NAME - _ROOM])


def curves(job: StartedRun) -> tuple[Figure | None, Figure | None, int]:
    """Figures of the score and of ε over the rounds written so far, and the number of these rounds.

    ``None``, ``None`` and 0 before the first are written, and while they are being written. A run writes its
    rounds with every checkpoint, a few seconds apart.
    """
    if not holds_run(job.folder):
        return None, None, 0
    try:
        series = load_series([job.folder])
    except (SfumatoError, OSError, ValueError):
        return None, None, 0  # it is being written
    if not len(series[0].first.metrics):
        return None, None, 0
    score, epsilon = (next(iter(found), None) for found in (score_figures(series), epsilon_figures(series)))
    return score, epsilon, series[0].rounds_played
