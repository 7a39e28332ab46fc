"""A run at Weights & Biases (extra ``wandb``); ``WANDB_MODE=offline`` keeps it on this machine."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any

from sfumato.simulation.tracking import Tracker

_PROJECT = "sfumato"


def start(name: str, settings: Mapping[str, str]) -> Tracker:
    """Start the run ``name`` in the W&B project ``WANDB_PROJECT`` (default: sfumato).

    ``settings``: of the run, by key, for W&B to show.
    """
    import wandb

    # by default the library also sends the console, the program, the machine and what is installed
    nothing_else = wandb.Settings(
        console="off",
        disable_code=True,
        disable_git=True,
        disable_job_creation=True,
        save_code=False,
        x_disable_machine_info=True,
        x_disable_meta=True,
        x_disable_stats=True,
        x_save_requirements=False,
    )
    project = os.environ.get("WANDB_PROJECT", _PROJECT)
    return _WandbRun(
        wandb.init(
            project=project, name=name, config=dict(settings), settings=nothing_else, reinit="create_new"
        )
    )


class _WandbRun:
    def __init__(self, run: Any) -> None:
        self._run = run

    def add(self, number: int, scalars: Mapping[str, float]) -> None:
        """Send the scalars of round ``number`` to W&B; see `Tracker.add`."""
        self._run.log(dict(scalars), step=number)

    def close(self, *, finished: bool) -> None:
        """End the run in W&B as finished or failed; see `Tracker.close`."""
        self._run.finish(exit_code=0 if finished else 1)
