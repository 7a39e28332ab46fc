"""No record moves what is added up from clipped gradients by more than is charged, in float32."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch
from rounding_search import SETTINGS, SUBJECTS, Search
from scipy.stats import poisson
from torch import Tensor

from sfumato.errors import SpecError
from sfumato.learning.batches import plan_poisson
from sfumato.learning.example_clip import ProductTarget, product_of
from sfumato.learning.local_training import LocalSGD
from sfumato.learning.rounding_margin import largest_likely_batch, with_margin
from sfumato.learning.tape import Memory, Tape

FAST = {"softmax": 100, "mlp": 40, "cnn-small": 12, "module, torch.func": 12, "module, by itself": 6}


@pytest.mark.parametrize("setting", SETTINGS)
@pytest.mark.parametrize("name", FAST)
def test_the_largest_move_that_a_search_finds_is_within_what_is_charged(name: str, setting: str) -> None:
    subject = replace(SUBJECTS[name], batch=FAST[name], pool=8)
    assert 0.3 < Search(subject, SETTINGS[setting]).largest(2) <= 1


@pytest.mark.slow
@pytest.mark.parametrize("setting", SETTINGS)
@pytest.mark.parametrize("name", SUBJECTS)
def test_the_largest_move_that_a_long_search_finds_is_within_what_is_charged(name: str, setting: str) -> None:
    assert 0.3 < Search(SUBJECTS[name], SETTINGS[setting]).largest(12) <= 1


@pytest.mark.parametrize("examples", [3, 100, 1000])
@pytest.mark.parametrize(("pixels", "outputs", "inputs"), [(1, 3, 40), (9, 2, 3), (9, 12, 30), (4, 12, 30)])
def test_one_example_among_many_moves_a_sum_by_its_own_length(
    pixels: int, outputs: int, inputs: int, examples: int
) -> None:
    """All others point one way, so their sum is as long as it can be; terms of the one cancel each other."""
    rng = np.random.default_rng(5)

    def drawn(*shape: int) -> Tensor:
        return torch.from_numpy(rng.standard_normal(shape, dtype=np.float32))

    dy, x = drawn(1, 1, pixels, outputs), drawn(1, 1, pixels, inputs)
    dy, x = dy.repeat(2, examples, 1, 1), x.repeat(2, examples, 1, 1)
    for place, sign in enumerate((1, -1)):
        x[place, -1] = x[place, -1] * sign
    if pixels > 1:  # what the first two pixels add is a small part of their terms
        dy[:, -1, 1] = -dy[:, -1, 0] * (1 + 1e-5)
        x[:, -1, 1] = x[:, -1, 0]
    total = torch.zeros(2, outputs, inputs)
    product = product_of(dy.clone(), x.clone(), ProductTarget(total, None, 0.0, 1.0), Tape(Memory()))
    norms = product.squares().sqrt()
    product.add_((1 / norms).float(), None)
    moved = float((total[0].double() - total[1].double()).norm())
    assert moved == pytest.approx(2, rel=2 * largest_likely_batch(examples) * (36 + examples / 32) * 2.0**-24)


def plan(steps: int, batch_size: int):
    return plan_poisson([np.arange(40)], steps=steps, batch_size=batch_size, rngs=[np.random.default_rng(0)])


def test_margins_are_small_and_follow_from_public_figures() -> None:
    start = torch.ones(1, 100)

    def share(sgd: LocalSGD, steps: int, batch_size: int, *, noisy: bool = False) -> float:
        kept = with_margin(sgd, plan(steps, batch_size), start, noisy=noisy)
        one, other = kept.example_clip or kept.step_clip, sgd.example_clip or sgd.step_clip
        assert one is not None
        assert other is not None
        return 1 - one / other

    steps, examples = LocalSGD(0.1, step_clip=2.0), LocalSGD(0.1, example_clip=2.0)
    assert 0 < share(steps, 1, 8) < share(steps, 20, 8) < 1e-4
    assert 0 < share(examples, 1, 8, noisy=True) < share(examples, 1, 8) < 5e-4
    assert share(examples, 1, 600) < 2e-2
    assert share(examples, 50, 600, noisy=True) == share(examples, 1, 600, noisy=True) < 1e-2
    assert share(replace(examples, weight_decay=0.1), 1, 8) > share(examples, 1, 8)


def test_where_single_precision_is_too_coarse_the_clip_is_refused() -> None:
    with pytest.raises(SpecError, match="fewer local steps"):
        with_margin(LocalSGD(0.1, example_clip=1.0), plan(2000, 600), torch.zeros(1, 3), noisy=False)
    decaying = LocalSGD(1e-3, example_clip=1e-3, weight_decay=10.0)
    with pytest.raises(SpecError, match="weight decay"):
        with_margin(decaying, plan(1, 600), torch.full((1, 10), 100.0), noisy=False)


def test_more_examples_than_expected_are_rare() -> None:
    """Against the exact law of the largest possible device, Poisson: the tail below 1e-30."""
    for expected in (1, 5, 16, 100, 600, 5000):
        assert 0 < poisson.sf(largest_likely_batch(expected), expected) < 1e-30
