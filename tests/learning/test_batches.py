from __future__ import annotations

from itertools import chain

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sfumato.errors import SpecError
from sfumato.learning.batches import BatchPlan, plan_epochs, plan_poisson, plan_steps

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


def generators(count: int, seed: int = 0) -> list[np.random.Generator]:
    return [np.random.default_rng([seed, device]) for device in range(count)]


@settings(deadline=None)
@given(SIZES, st.integers(1, 6), st.integers(1, 9))
def test_poisson_batches_hold_a_devices_own_rows_once_each(sizes: list[int], batch: int, steps: int) -> None:
    devices = devices_of(sizes)
    plan = plan_poisson(devices, steps=steps, batch_size=batch, rngs=generators(len(sizes)))
    assert plan.divisor == batch
    for device, rows in enumerate(devices):
        batches = rows_of(plan, device)
        assert len(batches) == (steps if len(rows) else 0)
        for drawn in batches:
            assert len(set(drawn)) == len(drawn)
            assert set(drawn) <= set(rows.tolist())
            if len(rows) <= batch:
                assert sorted(drawn) == rows.tolist()


def test_a_devices_poisson_batches_do_not_depend_on_the_others() -> None:
    devices = devices_of([12, 7, 30])
    whole = plan_poisson(devices, steps=4, batch_size=5, rngs=generators(3))
    alone = plan_poisson(devices[1:2], steps=4, batch_size=5, rngs=generators(3)[1:2])
    assert rows_of(alone, 0) == rows_of(whole, 1)


def starts_of(persons: list[int]) -> np.ndarray:
    """Where the rows of persons with so many rows each begin, and their number."""
    return np.concatenate([[0], np.cumsum(np.array(persons, dtype=np.int64))])


ROWS_OF_PERSONS = st.lists(st.lists(st.integers(1, 5), max_size=8), min_size=1, max_size=4)


@settings(deadline=None)
@given(ROWS_OF_PERSONS, st.integers(1, 6), st.integers(1, 9))
def test_a_batch_of_persons_holds_one_row_of_each(held: list[list[int]], batch: int, steps: int) -> None:
    devices = devices_of([sum(persons) for persons in held])
    starts = [starts_of(persons) for persons in held]
    rngs = generators(len(held))
    plan = plan_poisson(devices, steps=steps, batch_size=batch, rngs=rngs, persons=starts)
    assert plan.divisor == batch
    for device, rows in enumerate(devices):
        whose = dict(zip(rows.tolist(), np.repeat(np.arange(len(held[device])), held[device]), strict=True))
        for drawn in rows_of(plan, device):
            people = [int(whose[row]) for row in drawn]
            assert len(set(people)) == len(people)
            if len(held[device]) <= batch:
                assert sorted(people) == list(range(len(held[device])))


def test_persons_are_drawn_alike_and_bring_each_row_alike() -> None:
    """However many rows a person has. Frequencies, off by five and a half standard deviations at most."""
    rows, steps, rate = [1, 2, 5], 60_000, 1 / 3
    rng = np.random.default_rng(8)
    plan = plan_poisson([np.arange(8)], steps=steps, batch_size=1, rngs=[rng], persons=[starts_of(rows)])
    filled = np.arange(plan.width) < plan.counts[0].numpy()[:, None]
    found = np.bincount(plan.rows[0].numpy()[filled], minlength=8)
    chances = np.repeat(rate / np.array(rows), rows)
    deviation = (found - steps * chances) / np.sqrt(steps * chances * (1 - chances))
    assert np.abs(deviation).max() < LIMIT
    assert plan_poisson([], steps=1, batch_size=1, rngs=[], persons=[]).devices == 0


def test_persons_of_a_device_do_not_depend_on_the_others() -> None:
    devices, starts = devices_of([6, 9]), [starts_of([1, 2, 3]), starts_of([4, 5])]
    whole = plan_poisson(devices, steps=6, batch_size=1, rngs=generators(2), persons=starts)
    alone = plan_poisson(devices[1:], steps=6, batch_size=1, rngs=generators(2)[1:], persons=starts[1:])
    assert rows_of(alone, 0) == rows_of(whole, 1)


# Of draws at the right rate, all of these stay within five and a half standard deviations, but for a
# probability of 4 x 4e-8.
LIMIT = 5.5


def deviations(plan: BatchPlan, size: int, rate: float) -> dict[str, float]:
    """How far draws are from independent ones at ``rate``, in standard deviations; devices of equal size."""
    drawn = np.zeros((plan.devices, plan.rows.shape[1], size), dtype=bool)
    for device in range(plan.devices):
        for step, rows in enumerate(rows_of(plan, device)):
            drawn[device, step, np.array(rows, dtype=int) - 100 - device * size] = True
    centred = (drawn - rate) / np.sqrt(rate * (1 - rate))

    def scaled(products: np.ndarray) -> float:
        return float(products.sum() / np.sqrt(products.size))

    return {
        "rate": scaled(centred),
        "other examples": scaled(centred[:, :, 0::2] * centred[:, :, 1::2]),
        "next step": scaled(centred[:, 0::2] * centred[:, 1::2]),
        "other devices": scaled(centred[0::2] * centred[1::2]),
    }


def test_poisson_draws_are_independent_at_the_stated_rate() -> None:
    devices = devices_of([24] * 200)
    plan = plan_poisson(devices, steps=50, batch_size=6, rngs=generators(200))
    found = deviations(plan, 24, 6 / 24)
    assert max(map(abs, found.values())) < LIMIT, found
    for wrong in (5.5 / 24, 6.5 / 24):
        assert abs(deviations(plan, 24, wrong)["rate"]) > LIMIT
    shuffled = deviations(
        plan_steps(devices, steps=50, batch_size=6, rng=np.random.default_rng(0)), 24, 6 / 24
    )
    assert abs(shuffled["other examples"]) > LIMIT
    assert abs(shuffled["next step"]) > LIMIT
    same = plan_poisson(devices, steps=50, batch_size=6, rngs=[np.random.default_rng(1) for _ in devices])
    assert abs(deviations(same, 24, 6 / 24)["other devices"]) > LIMIT


def test_poisson_needs_steps_and_a_batch_size() -> None:
    with pytest.raises(SpecError, match=r"training\.local_steps"):
        plan_poisson([np.arange(3)], steps=0, batch_size=1, rngs=generators(1))
    with pytest.raises(SpecError, match=r"training\.batch_size"):
        plan_poisson([np.arange(3)], steps=1, batch_size=0, rngs=generators(1))
