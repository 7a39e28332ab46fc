"""Sums of messages: the same bits in any order, nothing longer than its bound, nothing wrapped."""

import math

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from sfumato.errors import EnvelopeError, SpecError
from sfumato.learning.batches import plan_steps
from sfumato.learning.local_training import LocalSGD
from sfumato.learning.rounding_margin import with_margin
from sfumato.protocols.sums import Sums
from sfumato.schedule import message_grid
from sfumato.schedule.message_grid import ROUNDINGS, MessageGrid


def messages_of(seed: int, count: int, length: int, *, wide: bool) -> tuple[np.ndarray, torch.Tensor]:
    rng = np.random.default_rng(seed)
    spread = 10.0 ** rng.uniform(-30 if wide else -9, 20 if wide else 0, (count, length))
    values = rng.standard_normal((count, length)) * spread
    return np.sort(rng.integers(0, 3, count)), torch.from_numpy(values.astype(np.float32))


@settings(max_examples=60, deadline=None)
@given(seed=st.integers(0, 10**6), count=st.integers(0, 90), wide=st.booleans(), parts=st.integers(1, 5))
def test_order_and_parts_change_no_bit(seed: int, count: int, wide: bool, parts: int) -> None:
    which, messages = messages_of(seed, count, 7, wide=wide)
    grid = (
        None
        if wide
        else MessageGrid.of(np.ones(1), np.zeros(0), largest=8.0, messages=max(1, count), length=7)
    )
    whole = Sums(3, 7, grid)
    whole.add(which, messages)
    expected = whole.values()
    order = np.random.default_rng(seed + 1).permutation(count)
    mixed = Sums(3, 7, grid)
    for some in np.array_split(order, parts):
        mixed.add(which[some], messages[torch.from_numpy(some)])
    assert torch.equal(mixed.values(), expected)
    exact = np.zeros((3, 7))
    for row, leaf in enumerate(which):
        exact[leaf] += messages[row].double().numpy()
    largest = float(messages.abs().max()) if count else 0.0
    off = np.abs(expected.numpy() - exact).max()
    assert off <= (count * grid.step if grid else count * largest * 2.0**-32) + largest * count * 2.0**-50


def test_processes_agree_on_the_largest_digit() -> None:
    """One holds only small messages, one only large ones."""
    small, large = torch.full((1, 2), 3.3e-7), torch.full((1, 2), 5.1e12)
    together = Sums(1, 2, None)
    together.add(np.zeros(2, np.int64), torch.cat([small, large]))

    class Told:
        def __init__(self, digit: int) -> None:
            self.digit, self.seen = digit, []

        def largest(self, values: np.ndarray) -> np.ndarray:
            return np.maximum(values, self.digit)

        def added(self, values: np.ndarray) -> np.ndarray:
            self.seen.append(values)
            return values

    one = Sums(1, 2, None, told := Told(1))  # the digit that the other reached
    one.add(np.zeros(1, np.int64), small)
    other = Sums(1, 2, None)
    other.add(np.zeros(1, np.int64), large)
    assert torch.equal(one.values() + other.values(), together.values())
    assert len(told.seen) == 1  # both digits and the count of what is not finite in one exchange


@settings(max_examples=60, deadline=None)
@given(seed=st.integers(0, 10**6), norm=st.floats(1e-3, 1e3), length=st.integers(1, 3000))
def test_what_is_added_is_no_longer_and_moves_by_less_than_the_margin(
    seed: int, norm: float, length: int
) -> None:
    rng = np.random.default_rng(seed)
    ends = torch.from_numpy(rng.standard_normal((2, length)) * 10.0 ** rng.uniform(-9, 0, (2, length)))
    ends = (ends / ends.norm(dim=1, keepdim=True) * norm).float()
    # a move that is charged may be far shorter than the message, and many messages may make the grid coarse
    move = norm * 10.0 ** rng.uniform(-4, 0)
    grid = MessageGrid.of(
        np.array([move]), np.zeros(0), largest=norm, messages=int(10 ** rng.uniform(0, 6)), length=length
    )
    sums = Sums(2, length, grid)
    heard = sums.rounded(ends)
    sums.add(np.arange(2), ends)
    assert torch.equal(sums.values().float(), heard)  # what is heard is what is added
    assert (heard.double().norm(dim=1) <= ends.double().norm(dim=1)).all()
    moved = float((heard[0].double() - heard[1].double()).norm())
    before = float((ends[0].double() - ends[1].double()).norm())
    assert moved - before <= ROUNDINGS * 2.0**-24 * move * (1 + 1e-9)


def test_the_margin_of_clipped_gradients_has_room_for_the_grid(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without it, or with a coarser grid, a message could move by more than is charged."""
    assert ROUNDINGS * 2.0**-24 >= message_grid._OF_A_MOVE
    batches = plan_steps([np.arange(4)], steps=1, batch_size=2, rng=np.random.default_rng(0))
    sgd = with_margin(LocalSGD(0.1, step_clip=1.0), batches, torch.zeros(1, 5), noisy=False)
    assert sgd.step_clip is not None
    kept = 1 - sgd.step_clip
    of_the_rest = (8 * 1 + 1056) * 2.0**-24  # docs/accounting.md
    assert kept >= of_the_rest + ROUNDINGS * 2.0**-24


def test_too_large_a_message_is_refused_and_not_wrapped() -> None:
    grid = MessageGrid.of(np.ones(1), np.ones(1), largest=11.0, messages=4, length=10)
    sums = Sums(1, 10, grid)
    limit = grid.limit * grid.step
    sums.add(np.zeros(4, np.int64), torch.full((4, 10), limit * (1 - 1e-6)))
    assert float(sums.values()[0, 0]) == pytest.approx(4 * limit, rel=1e-5)
    for wrong in (limit * 1.01, -limit * 1.01, math.inf, math.nan):
        with pytest.raises(EnvelopeError, match="room for"):
            Sums(1, 10, grid).add(np.zeros(1, np.int64), torch.full((1, 10), wrong))


def test_declared_sums_that_do_not_fit_are_refused() -> None:
    with pytest.raises(SpecError, match="64 bits"):
        MessageGrid.of(np.full(1, 1e-6), np.ones(1), largest=1e6, messages=10**6, length=10**6)


def test_a_message_that_is_not_finite_makes_no_number_of_its_sum() -> None:
    sums = Sums(2, 3, None)
    sums.add(np.array([0, 1]), torch.tensor([[1.0, 2.0, 3.0], [1.0, math.nan, 3.0]]))
    values = sums.values()
    assert values[0].tolist() == [1.0, 2.0, 3.0]
    assert values[1].isnan().all()


def test_a_loose_clip_leaves_a_fine_grid() -> None:
    grid = MessageGrid.of(np.full(1, 1e6), np.zeros(0), largest=1e6, messages=100, length=50)
    assert grid.step < 1e-6


@pytest.mark.parametrize("largest", [0.99, 1.0, 1e9])
def test_a_sum_does_not_depend_on_the_messages_of_another(largest: float) -> None:
    """A group that nothing reaches learns nothing, not even which digits another group needs."""
    rng = np.random.default_rng(7)
    mine = torch.from_numpy(rng.normal(size=(3, 400)) * 1e-3).float()
    alone, beside = Sums(2, 400, None), Sums(2, 400, None)
    for sums, other in ((alone, 0.5), (beside, largest)):
        sums.add(np.array([0]), torch.full((1, 400), other))
        sums.add(np.ones(3, np.int64), mine)
    assert torch.equal(alone.values()[1], beside.values()[1])
