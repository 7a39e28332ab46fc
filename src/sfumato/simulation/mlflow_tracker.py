"""A run at MLflow (extra ``mlflow``): on this machine, or at the server of ``MLFLOW_TRACKING_URI``."""

from __future__ import annotations

import os
import re
import time
from collections.abc import Mapping
from typing import Any

from sfumato.simulation.tracking import Tracker

_EXPERIMENT = "sfumato"
_LONGEST_VALUE = 500


def start(name: str, settings: Mapping[str, str]) -> Tracker:
    """Start a run called ``name``, with ``settings``, in the MLflow experiment ``MLFLOW_EXPERIMENT_NAME``.

    The default experiment is ``sfumato``.
    """
    import mlflow
    from mlflow.entities import Param

    # the client sends what it is told; the functions of the module add user, program and commit
    client = mlflow.MlflowClient()
    title = os.environ.get("MLFLOW_EXPERIMENT_NAME", _EXPERIMENT)
    known = client.get_experiment_by_name(title)
    experiment = client.create_experiment(title) if known is None else known.experiment_id
    run = client.create_run(experiment, run_name=name).info.run_id
    params = [Param(_allowed(key), value[:_LONGEST_VALUE]) for key, value in settings.items()]
    client.log_batch(run, params=params)
    return _MlflowRun(client, run)


class _MlflowRun:
    def __init__(self, client: Any, run: str) -> None:
        self._client, self._run = client, run

    def add(self, number: int, scalars: Mapping[str, float]) -> None:
        """Send the scalars of round ``number`` to MLflow; see `Tracker.add`."""
        from mlflow.entities import Metric

        now = time.time_ns() // 1_000_000
        metrics = [Metric(_allowed(name), value, now, number) for name, value in scalars.items()]
        self._client.log_batch(self._run, metrics=metrics)

    def close(self, *, finished: bool) -> None:
        """End the run in MLflow as FINISHED or FAILED; see `Tracker.close`."""
        self._client.set_terminated(self._run, "FINISHED" if finished else "FAILED")


def _allowed(name: str) -> str:
    """``name`` with a replacement for characters that MLflow does not allow, such as a coalition's comma."""
    return re.sub(r"[^\w./ -]", "_", name)
