"""loky's workers, forked from a process that has imported torch and what a point of a sweep needs.

To import that takes several seconds of a processor. In every other respect they are what loky starts:
processes of their own, with the environment of the moment.
"""

from __future__ import annotations

import multiprocessing.forkserver
import os
from collections.abc import Callable
from functools import cache
from typing import Any

import pytest
from joblib.externals.loky.process_executor import ProcessPoolExecutor
from no_report import without_report_as_asked

LOADED = ["no_fsync", "sfumato.simulation.run", "sfumato.sweeps.point_result", "sfumato.report.page.sections"]


class ForkedExecutor(ProcessPoolExecutor):  # type: ignore[misc]
    """loky's executor, which gives its workers ``env`` only if it starts them afresh."""

    def __init__(
        self, size: int, *, env: dict[str, str], initializer: Callable[..., None], initargs: tuple[Any, ...]
    ) -> None:
        begun = (os.environ | env, initializer, initargs)
        super().__init__(size, context=_forking(), initializer=_begin, initargs=begun)


def _begin(environment: dict[str, str], initializer: Callable[..., None], initargs: tuple[Any, ...]) -> None:
    os.environ.clear()
    os.environ.update(environment)
    without_report_as_asked()
    initializer(*initargs)


@cache
def _forking() -> multiprocessing.context.BaseContext:
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(LOADED)
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("OMP_NUM_THREADS", "1")
        multiprocessing.forkserver.ensure_running()
    return context
