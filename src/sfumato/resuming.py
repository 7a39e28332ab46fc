"""What a run folder holds already, and whether a spec may go on with it."""

from __future__ import annotations

from pathlib import Path

from sfumato import checkpoint as checkpoints
from sfumato.checkpoint import Checkpoint
from sfumato.errors import RunError, SpecError
from sfumato.protocols.recording import read_observers
from sfumato.run_folder import CHECKPOINT_FILE, SPEC_FILE
from sfumato.schedule.learning_rate import learning_rate
from sfumato.schedule.plan import Plan
from sfumato.spec.changes import changes
from sfumato.spec.document import Spec
from sfumato.spec.load import load_spec

_MAY_CHANGE = ("training.rounds", "evaluate_every", "watch", "versions")


def held_checkpoint(plan: Plan, out: Path, resume: bool) -> Checkpoint | None:
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


def observers_held(asked: tuple[str, ...], held: Checkpoint, out: Path) -> tuple[str, ...]:
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
    sized = "privacy.noise.sources"  # follows from the rest, so whatever else differs is the better reason
    for key, (old, new) in sorted(changes(before, now).items(), key=lambda one: (one[0] == sized, one[0])):
        if key.startswith(_MAY_CHANGE):
            continue
        hint = ""
        if key == sized:
            hint = (
                " (noise was sized for the rounds then asked for; extend a run whose noise is a multiplier)"
            )
        raise SpecError(
            f"--resume: {key}",
            new,
            f"the run in {out} has {old!r}{hint}; only training.rounds may grow",
        )
    if any(learning_rate(before.training, k) != learning_rate(now.training, k) for k in range(done)):
        raise SpecError(
            "training.rounds",
            now.training.rounds,
            "this learning-rate schedule depends on it; start a new run",
        )
