from __future__ import annotations

import pytest
import torch

from sfumato.learning.norms import drop_non_finite_, row_norms, scale_factors


@pytest.mark.parametrize("length", [1, 1023, 1024, 5000, 3_000_000])
def test_norms_are_exact_at_any_length(length: int) -> None:
    stack = torch.rand(2, length, generator=torch.Generator().manual_seed(0))
    exact = stack.double().norm(dim=1)
    assert ((row_norms(stack).double() / exact - 1).abs() < 2e-6).all()


@pytest.mark.parametrize("length", [3, 5000, 3_000_000])
def test_scaled_vectors_stay_within_the_bound(length: int) -> None:
    stack = torch.rand(3, length, generator=torch.Generator().manual_seed(0)) * torch.tensor(
        [[1.0], [1e10], [1e-12]]
    )
    bound = 1e-3
    scaled = stack * scale_factors(row_norms(stack), bound)[:, None]
    norms = scaled.double().norm(dim=1)
    assert (norms <= bound).all()
    torch.testing.assert_close(norms[:2], torch.full((2,), bound).double(), rtol=1e-5, atol=0)
    assert torch.equal(scaled[2], stack[2])


def test_what_is_not_finite_is_dropped() -> None:
    inf, nan = float("inf"), float("nan")
    stack = torch.tensor([[1.0, nan], [inf, 0.0], [1e30, 1e30], [3.0, 4.0]])
    norms = row_norms(stack)
    drop_non_finite_(stack, norms)
    assert stack[:2].eq(0).all()
    assert stack[3].tolist() == [3.0, 4.0]
    assert scale_factors(norms, 10.0)[[0, 1, 3]].tolist() == [0.0, 0.0, 1.0]


@pytest.mark.parametrize("length", [2, 650, 5000])
def test_a_norm_that_rounding_made_smaller_stays_within_the_bound(length: int) -> None:
    stack = torch.randn(2000, length, generator=torch.Generator().manual_seed(1))
    for row in stack:
        bound = float(row_norms(row[None])[0])  # as computed; the true norm may be larger
        scaled = row * scale_factors(row_norms(row[None]), bound)
        assert float(scaled.double().norm()) <= bound
