"""The two jobs of a point and seed, which workers do: to account for it, and to train it."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from sfumato.spec import load_spec


def account_point(spec: Mapping[str, Any], folder: Path) -> None:
    """Compute ε of a point's spec and write it to the point's ``folder``; torch is not imported.

    ``spec``: of the point and seed, as plain values.

    Raises:
        SpecError: the spec does not resolve, or another process is writing there.
        RunError: a file cannot be written, or a folder is in its place.
    """
    from sfumato.sweeps.point_result import write_accounting

    write_accounting(load_spec(spec), folder)


def train_point(spec: Mapping[str, Any], folder: Path, device: str, track: tuple[str, ...]) -> None:
    """Train a point in its ``folder``, resumed from a checkpoint if there is one; then add its metrics.

    Args:
        spec: of the point and seed, as plain values.
        folder: of the run.
        device: auto, cpu or cuda.
        track: experiment trackers, by name.

    Raises:
        SfumatoError: as of `run_rounds`.
    """
    from sfumato.simulation.run import run_rounds
    from sfumato.sweeps.point_result import add_metrics

    for _ in run_rounds(load_spec(spec), out=folder, resume=True, device=device, track=track):
        pass
    add_metrics(folder)
