"""Runs with adaptive control, and the state that they end in."""

from __future__ import annotations

from pathlib import Path

import sfumato as sf
from sfumato.protocols.adaptive.state import AdaptiveState
from sfumato.simulation.checkpoint import load
from sfumato.spec.load import load_spec


def played(spec: Path, out: Path, *changes: str) -> tuple[sf.Run, AdaptiveState]:
    run = sf.run(load_spec(spec, list(changes)), out=out)
    held = load(out)
    assert held is not None
    assert isinstance(held.position.state, AdaptiveState)
    return run, held.position.state
