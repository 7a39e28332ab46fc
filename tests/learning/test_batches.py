from __future__ import annotations

from itertools import chain

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sfumato.errors import SpecError
from sfumato.learning.batches import BatchPlan, plan_epochs, plan_steps

SIZES = st.lists(st.integers(0, 12), min_size=1, max_size=8)


def devices_of(sizes: list[int]) -> list[np.ndarray]:
    return np.split(np.arange(sum(sizes)) + 100, np.cumsum(sizes)[:-1])


def rows_of(plan: BatchPlan, device: int) -> list[list[int]]:
    steps = int(plan.steps[device])
    return [plan.rows[device, s, : plan.counts[device, s]].tolist() for s in range(steps)]


@settings(deadline=None)
@given(SIZES, st.integers(1, 6), st.integers(1, 3))
def test_epochs_visit_every_example_once_each(sizes: list[int], batch_size: int, epochs: int) -> None:
    devices = devices_of(sizes)
    plan = plan_epochs(devices, epochs=epochs, batch_size=batch_size, rng=np.random.default_rng(0))
    for device, rows in enumerate(devices):
        batches = rows_of(plan, device)
        per_epoch = -(-len(rows) // batch_size)
        assert len(batches) == epochs * per_epoch
        for epoch in range(epochs):
            of_epoch = batches[epoch * per_epoch : (epoch + 1) * per_epoch]
            assert sorted(chain(*of_epoch)) == rows.tolist()
            assert all(len(batch) == batch_size for batch in of_epoch[:-1])


@settings(deadline=None)
@given(SIZES, st.integers(1, 6), st.integers(1, 9))
def test_steps_draw_without_replacement_inside_a_pass(sizes: list[int], batch_size: int, steps: int) -> None:
    devices = devices_of(sizes)
    plan = plan_steps(devices, steps=steps, batch_size=batch_size, rng=np.random.default_rng(0))
    for device, rows in enumerate(devices):
        batches = rows_of(plan, device)
        assert len(batches) == (steps if len(rows) else 0)
        if len(rows) < batch_size:
            assert all(sorted(batch) == rows.tolist() for batch in batches)
            continue
        a_pass = len(rows) // batch_size
        for first in range(0, len(batches), a_pass):
            used = list(chain(*batches[first : first + a_pass]))
            assert len(set(used)) == len(used)
            assert set(used) <= set(rows.tolist())
        assert all(len(batch) == batch_size for batch in batches)


def test_steps_sample_uniformly() -> None:
    devices = [np.arange(5)] * 4000
    plan = plan_steps(devices, steps=1, batch_size=2, rng=np.random.default_rng(1))
    shares = np.bincount(plan.rows.numpy().ravel(), minlength=5) / plan.rows.numel()
    assert np.abs(shares - 0.2).max() < 0.02


def test_passes_are_reshuffled() -> None:
    plan = plan_epochs([np.arange(50)], epochs=2, batch_size=50, rng=np.random.default_rng(0))
    first, second = rows_of(plan, 0)
    assert first != second
    assert first != sorted(first)


def test_the_generator_decides() -> None:
    devices = devices_of([7, 3, 7])
    plans = [
        plan_epochs(devices, epochs=2, batch_size=2, rng=np.random.default_rng(seed)) for seed in (1, 1, 2)
    ]
    assert plans[0].rows.equal(plans[1].rows)
    assert not plans[0].rows.equal(plans[2].rows)


def test_ten_thousand_devices() -> None:
    plan = plan_epochs(
        np.split(np.arange(600_000), 10_000), epochs=5, batch_size=10, rng=np.random.default_rng(0)
    )
    assert plan.rows.shape == (10_000, 30, 10)


@pytest.mark.parametrize("sizes", [[], [0], [0, 0]])
def test_nobody_has_data(sizes: list[int]) -> None:
    devices = [np.arange(0) for _ in sizes]
    for plan in (
        plan_epochs(devices, epochs=1, batch_size=3, rng=np.random.default_rng(0)),
        plan_steps(devices, steps=2, batch_size=3, rng=np.random.default_rng(0)),
    ):
        assert plan.devices == len(sizes)
        assert plan.steps.tolist() == [0] * len(sizes)


def test_refusals() -> None:
    rng = np.random.default_rng(0)
    with pytest.raises(SpecError, match="local_steps"):
        plan_steps([np.arange(3)], steps=0, batch_size=1, rng=rng)
    with pytest.raises(SpecError, match="local_epochs"):
        plan_epochs([np.arange(3)], epochs=0, batch_size=1, rng=rng)
    with pytest.raises(SpecError, match="batch_size"):
        plan_epochs([np.arange(3)], epochs=1, batch_size=0, rng=rng)
