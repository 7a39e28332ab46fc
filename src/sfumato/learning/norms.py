"""Norms of stacked vectors, and scaling them to a bound: the arithmetic that clipping rests on."""

from __future__ import annotations

import math

import torch
from torch import Tensor

# A float32 sum over a whole vector underestimates: by 3e-4 at ten million entries. Blocks this short, added
# up in float64, stay within 2e-6; `_MARGIN` then keeps a scaled vector's true norm at or below its bound.
_BLOCK = 1024
_MARGIN = 1 - 4e-6


def row_norms(stack: Tensor) -> Tensor:
    """The l2 norm of every row.

    Args:
        stack: float32 ``[P, M]``.

    Returns:
        float32 ``[P]``; not finite where a row holds anything not finite (or overflows).
    """
    blocks = stack.shape[1] // _BLOCK
    tail: Tensor = torch.linalg.vector_norm(stack[:, blocks * _BLOCK :], dim=1)
    if blocks == 0:
        return tail
    head = torch.linalg.vector_norm(torch.unflatten(stack[:, : blocks * _BLOCK], 1, (blocks, _BLOCK)), dim=2)
    squares: Tensor = head.double().square_().sum(dim=1).add_(tail.double().square_())
    return squares.sqrt_().float()


def scale_factors(norms: Tensor, bound: float) -> Tensor:
    """The factors that shorten vectors of l2 norms ``norms`` to at most ``bound``, float32 ``[P]``.

    1 below the bound, 0 for a norm not finite. A norm that equals the bound up to rounding may be larger than
    it was computed, so it is scaled too.

    Args:
        norms: float32 ``[P]``.
        bound: the largest norm allowed.
    """
    # infinite for a norm of 0, 0 for an infinite one, nan for nan
    return (bound * _MARGIN / norms).clamp_(max=1.0).nan_to_num_(nan=0.0)


def drop_non_finite_(stack: Tensor, norms: Tensor) -> None:
    """Zero, in place, the rows of ``stack`` ``[P, M]`` whose entry of ``norms`` ``[P]`` is not finite.

    A diverged device must not break a bound (``0 * nan`` is ``nan``), nor tell by an abort that it diverged.
    """
    if stack.is_cuda:  # to ask whether there is any would wait for the GPU
        stack.masked_fill_(~norms.isfinite()[:, None], 0.0)
    elif not math.isfinite(float(norms.sum())):  # one operation; a sum that only overflows does no harm
        stack[~norms.isfinite()] = 0.0


def clip_factors(stack: Tensor, bound: float) -> tuple[Tensor, Tensor]:
    """Norms of the rows of ``stack`` ``[P, M]``, and the factors that bring them within ``bound``.

    Rows that are not finite are zeroed, in place; their factor is 0.

    Returns:
        Norms and factors, float32 ``[P]`` each.
    """
    norms = row_norms(stack)
    drop_non_finite_(stack, norms)
    return norms, scale_factors(norms, bound)


def add_clipped_(total: Tensor, rows: Tensor, bound: float, weights: Tensor) -> Tensor:
    """Add rows, clipped and then weighted, to ``total``, in place.

    Args:
        total: float64 ``[P, M]``, so that the sum of many rows is not rounded by its own length.
        rows: ``[P, M]``; those that are not finite are zeroed.
        bound: the largest norm allowed.
        weights: of the rows ``[P]``; a row of weight 0 is not added.

    Returns:
        Which of the rows that count were clipped, bool ``[P]``.
    """
    norms, factors = clip_factors(rows, bound)
    total.addcmul_(rows, (factors * weights)[:, None])
    return ~(norms <= bound) & (weights > 0)
