"""Checks of a run folder before a run is continued: the same run, the same observers, no damage."""

from __future__ import annotations

import logging
from pathlib import Path

from sfumato.arguments import Argument
from sfumato.durable_files import short_hash
from sfumato.errors import RunError, SpecError
from sfumato.network.inlining import DISTANCES, TOPOLOGY_FILE
from sfumato.privacy.observers import Party
from sfumato.protocols.tree.state import DeployedState
from sfumato.run_folder.contents import is_derived, is_own
from sfumato.run_folder.damage import check_folder
from sfumato.run_folder.lock import ways_to_continue
from sfumato.run_folder.manifest import read_manifest
from sfumato.run_folder.reader import holds_run
from sfumato.run_folder.seal import CHECKPOINT_FILE
from sfumato.schedule.base import Plan
from sfumato.schedule.local_steps import learning_rate
from sfumato.schedule.rows.watch import watched_coalitions
from sfumato.simulation import checkpoint as checkpoints
from sfumato.simulation.checkpoint import Checkpoint
from sfumato.spec.diff import changed_values, first_difference
from sfumato.spec.document import Spec
from sfumato.spec.load import load_spec
from sfumato.spec.privacy import NoiseByMultiplier, NoiseBySource
from sfumato.spec.topology import TreeTopology
from sfumato.user_text import parse_yaml

LOG = logging.getLogger("sfumato")
_MAY_CHANGE = ("training.rounds", "evaluate_every", "watch", "versions", "hashes")
_FILES = {"topology.sites": TOPOLOGY_FILE, "topology.groups": TOPOLOGY_FILE, DISTANCES: DISTANCES}


def refuse_existing_run(out: Path) -> None:
    """Refuse a folder ``out`` that holds a run.

    Raises:
        SpecError: it does; the message says how to continue.
    """
    if holds_run(out):
        raise SpecError(Argument("out"), str(out), f"already holds a run; {ways_to_continue(out)}")


def existing_checkpoint(plan: Plan, out: Path) -> Checkpoint | None:
    """The checkpoint in ``out`` to continue the run of ``plan`` from; ``None`` if there is none.

    Raises:
        SpecError: it belongs to another run, or the spec has changed in a way that a run cannot.
        RunError: it is damaged.
    """
    existing = checkpoints.load(out)
    if existing is None:
        if holds_run(out):
            LOG.warning("%s: is missing; the run starts from the beginning", out / CHECKPOINT_FILE)
        return None
    before, now, done = spec_of_checkpoint(existing), plan.spec, existing.position.state.round
    if now.control is not None and now.training.rounds != before.training.rounds:
        raise SpecError(
            "training.rounds",
            now.training.rounds,
            f"the run in {out} has {before.training.rounds}; with adaptive control the number of rounds "
            "determines the budget and cannot change",
        )
    if now.control is not None and _coalitions(now, plan) != _coalitions(before, plan):
        raise SpecError(
            "watch",
            list(now.watch or ()),
            f"the run in {out} has {list(before.watch or ())}; with adaptive control every coalition in "
            "watch has a budget, so they cannot change",
        )
    if now.control is None and now.training.rounds < done:
        raise SpecError("training.rounds", now.training.rounds, f"{done} rounds of this run are done already")
    _refuse_another_run(before, now, done, out)
    return existing


def spec_of_checkpoint(existing: Checkpoint) -> Spec:
    """The resolved spec of the run that the checkpoint ``existing`` is of, parsed from the text in it.

    Raises:
        SpecError: the text is not a spec that this version reads.
    """
    return load_spec(parse_yaml(existing.spec, CHECKPOINT_FILE))


def refuse_mixed_continuation(existing: Checkpoint, out: Path, *, deployed: bool) -> None:
    """Refuse to continue by simulation a run that real parties began, or the other way round.

    Args:
        existing: the checkpoint of the run.
        out: its folder, for the message.
        deployed: whether real parties are to continue it.

    Raises:
        SpecError: the run was begun the other way.
    """
    was_deployed = existing.position.state.kind == DeployedState.kind
    if was_deployed != deployed:
        began = "real parties began" if was_deployed else "a simulation began"
        again = "sfumato deploy" if was_deployed else "sfumato run"
        raise SpecError(Argument("resume"), None, f"cannot go on in {out}: {began} this run; use {again}")


def observers_to_record(requested: tuple[str, ...], existing: Checkpoint, out: Path) -> tuple[str, ...]:
    """Names of the observers whose views a resumed run records: ``requested``, or those of ``existing``.

    Raises:
        SpecError: others are requested, which cannot be added after the first round.
    """
    if requested and set(requested) != set(existing.observers) and existing.position.state.round > 0:
        recorded = " and ".join(existing.observers) or "no observer"
        raise SpecError(
            Argument("record_views"),
            ", ".join(requested),
            f"the run in {out} has recorded {recorded}; leave this option out to continue",
        )
    return requested or existing.observers


def is_complete(out: Path) -> bool:
    """Whether the run in ``out`` is finished and undamaged; logs files that are to be rewritten or removed.

    Raises:
        RunError: a damaged file cannot be written again.
    """
    found = check_folder(out)
    for lost in found:
        path = out / lost.name
        if not is_own(lost.name):
            LOG.warning("%s: %s; it is removed from the run", path, lost.what)
        elif is_derived(lost.name):
            LOG.warning("%s: %s; it is written again from %s", path, lost.what, CHECKPOINT_FILE)
        else:
            again = (
                f"it cannot be restored; start a new run, or replace this one with {Argument('force', True)}"
            )
            raise RunError(f"{path}: {lost.what}; {again}")
    return not found and read_manifest(out).finished


def _coalitions(spec: Spec, plan: Plan) -> set[frozenset[Party]]:
    """The sets of parties whose ε a spec asks to follow."""
    return set(map(frozenset, watched_coalitions(spec, plan.parties)))


def _only_adds_sources(before: Spec, now: Spec) -> bool:
    """Whether later trust adds sources of noise, and those of the finished rounds keep their multipliers."""
    old, new = before.privacy.noise, now.privacy.noise
    if now.trust.from_ is None or not (isinstance(old, NoiseBySource) and isinstance(new, NoiseBySource)):
        return False
    kept, of_owner = (
        {owner: source.multipliers for source in noise.sources for owner in source.owners}
        for noise in (old, new)
    )
    by_multiplier = isinstance(new.calibrated_from, NoiseByMultiplier)
    return by_multiplier and all(of_owner.get(owner) == stated for owner, stated in kept.items())


def _with_drawn_moves_until(spec: Spec, last: int) -> Spec:
    """``spec`` with the moves of the rounds up to ``last``, where they were drawn round by round."""
    topology = spec.topology
    moves = topology.moves if isinstance(topology, TreeTopology) else None
    if moves is None or moves.drawn_at is None:
        return spec
    drawn = moves.model_copy(update={"trace": tuple(move for move in moves.trace or () if move[0] <= last)})
    return spec.model_copy(update={"topology": topology.model_copy(update={"moves": drawn})})


def _refuse_another_run(before: Spec, now: Spec, done: int, out: Path) -> None:
    """Raise `SpecError` if ``now`` is the spec of another run than ``before``.

    Only the number of rounds may change, if the ``done`` finished rounds stay the same.
    """
    common = min(before.training.rounds, now.training.rounds)
    before, now = _with_drawn_moves_until(before, common), _with_drawn_moves_until(now, common)
    sized = "privacy.noise.sources"  # follows from other keys, so another difference is the better reason
    for key, (old, new) in sorted(
        changed_values(before, now).items(), key=lambda one: (one[0] == sized, one[0])
    ):
        if key.startswith(_MAY_CHANGE) or (key == sized and _only_adds_sources(before, now)):
            continue
        where, old, new = first_difference(key, old, new)
        hint = ""
        if key == sized:
            hint = (
                " (the noise was calibrated for the former number of rounds; only a run whose noise is a "
                "multiplier can be extended); give a new folder"
            )
        file = _FILES.get(key)
        if file in now.hashes and file in before.hashes:
            then, today = short_hash(before.hashes[file]), short_hash(now.hashes[file])
            hint = f" ({file}: the file had SHA-256 {then} when the run was started, it has {today} now)"
        raise SpecError(
            Argument("resume", True, key=where),
            new,
            f"the run in {out} has {old!r}{hint or '; only training.rounds may increase'}",
        )
    if any(learning_rate(before.training, k) != learning_rate(now.training, k) for k in range(done)):
        raise SpecError(
            "training.rounds",
            now.training.rounds,
            "the learning-rate schedule depends on the number of rounds; start a new run",
        )
