"""What tests of several folders share."""

from __future__ import annotations

import gc
from collections.abc import Generator, Iterator

import pytest
from hypothesis import HealthCheck, settings
from no_report import without_report

pytest_plugins = ["needs", "slow", "no_fsync"]

# a test is not wrong because the machine is busy
settings.register_profile("untimed", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.register_profile("thorough", settings.get_profile("untimed"), max_examples=400)  # make test-slow
settings.load_profile("untimed")


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Generator[None, object, object]:
    """Modules and tests live to the end: the garbage collector need not look through them again and again.

    They are not frozen afterwards: then hypothesis 6.100, the least version, calls tests unreliable. But it
    looks for garbage more rarely than by default, which took a twelfth of the time.
    """
    gc.disable()
    try:
        return (yield)
    finally:
        gc.set_threshold(10_000, 10, 10)
        gc.enable()


def pytest_unconfigure() -> None:
    """Garbage is looked for once at the end; pytest and Python would look through all tests again."""
    gc.collect()
    gc.freeze()


@pytest.fixture
def no_report(monkeypatch: pytest.MonkeyPatch) -> None:
    """Runs end with a page of one word and without TensorBoard: both take longer than a small run."""
    without_report(monkeypatch)


@pytest.fixture(scope="module")
def no_report_in_module() -> Iterator[None]:
    """The same for all tests of a module, and for runs that they share."""
    with pytest.MonkeyPatch.context() as patch:
        without_report(patch)
        yield


@pytest.fixture
def fast_workers(monkeypatch: pytest.MonkeyPatch) -> None:
    """Sweeps fork their workers from a process that has loaded everything."""
    from forked_workers import ForkedExecutor

    from sfumato.pool import on_loky

    monkeypatch.setattr(on_loky, "ProcessPoolExecutor", ForkedExecutor)


@pytest.fixture
def coarse_losses(monkeypatch: pytest.MonkeyPatch) -> None:
    """Privacy losses on a grid eight times as coarse: still bounds."""
    from sfumato.privacy.losses import hidden_draws

    monkeypatch.setattr(hidden_draws, "_FINEST_INTERVAL", 8e-4)
