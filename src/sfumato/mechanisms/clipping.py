"""Clipping a stack of vectors, and the sensitivity that it guarantees."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal, Protocol

import torch
from torch import Tensor

from sfumato.errors import SpecError
from sfumato.learning.norms import clip_factors, drop_non_finite_, row_norms, scale_factors


@dataclass(frozen=True)
class Clipped:
    """What clipping a stack of vectors gave.

    Attributes:
        vectors: float32 ``[P, M]``, the same memory as the input.
        norms: float32 ``[P]``, l2 norms of whole vectors before clipping. Private: for the simulator only.
        clipped: bool ``[P]``, whether a vector was changed. Private too.
    """

    vectors: Tensor
    norms: Tensor
    clipped: Tensor


class Clip(Protocol):
    """A way to bound every vector of a stack."""

    @property
    def bound(self) -> float:
        """The largest l2 norm a clipped vector can have."""

    def sensitivity(self, neighbours: Literal["zero-out", "replace"]) -> float:
        """The largest l2 distance of two sums of clipped vectors that differ in one vector.

        ``neighbours``: that vector becomes zero (``zero-out``), or any other clipped vector (``replace``).
        """

    def clip_(self, stack: Tensor) -> Clipped:
        """Clip the rows of ``stack`` (float32 ``[P, M]``) in place; rows not finite become zero.

        Returns the stack, each row's norm before clipping, and which rows were changed.
        """


@dataclass(frozen=True)
class FlatClip:
    """Scale each whole vector to an l2 norm of at most ``norm``.

    Raises:
        SpecError: ``norm`` is not a positive finite number.
    """

    norm: float

    def __post_init__(self) -> None:
        _check_norm("clip.norm", self.norm)

    @property
    def bound(self) -> float:
        """The largest l2 norm a clipped vector can have: ``norm``."""
        return self.norm

    def sensitivity(self, neighbours: Literal["zero-out", "replace"]) -> float:
        """The largest l2 distance of two sums of clipped vectors that differ in one vector.

        By ``neighbours``: the norm C where that vector becomes zero (``zero-out``), 2 C where it becomes
        another (``replace``).
        """
        return _sensitivity(self.bound, neighbours)

    def clip_(self, stack: Tensor) -> Clipped:
        """Clip the rows of ``stack`` (float32 ``[P, M]``) in place; rows not finite become zero.

        Returns the stack, each row's norm before clipping, and which rows were changed.
        """
        norms, factors = clip_factors(stack, self.norm)
        stack.mul_(factors[:, None])
        return Clipped(stack, norms, ~(norms <= self.norm))


@dataclass(frozen=True)
class PerLayerClip:
    """Scale each layer of each vector to an l2 norm of its own, S_l.

    Attributes:
        norms: the S_l, one a layer.
        layers: where the layers lie, as ``(start, stop)``; together they cover the vector, in order.

    Raises:
        SpecError: a norm is not a positive finite number, or the layers have gaps, overlap or miscount.
    """

    norms: tuple[float, ...]
    layers: tuple[tuple[int, int], ...]

    def __post_init__(self) -> None:
        for norm in self.norms:
            _check_norm("clip.norms", norm)
        if len(self.norms) != len(self.layers) or not self.layers:
            wanted = f"must list one norm for each of the {len(self.layers)} layers"
            raise SpecError("privacy.clip.per_layer", list(self.norms), wanted)
        starts = [start for start, _ in self.layers]
        if starts != [0, *(stop for _, stop in self.layers[:-1])]:
            raise SpecError("clip.layers", self.layers, "layers must cover the vector in order, without gaps")

    @property
    def bound(self) -> float:
        """The largest l2 norm a clipped vector can have: S = sqrt(sum over layers of S_l^2)."""
        return math.hypot(*self.norms)

    def sensitivity(self, neighbours: Literal["zero-out", "replace"]) -> float:
        """The largest l2 distance of two sums of clipped vectors that differ in one vector.

        By ``neighbours``: the bound S where that vector becomes zero (``zero-out``), 2 S where it becomes
        another (``replace``).
        """
        return _sensitivity(self.bound, neighbours)

    def clip_(self, stack: Tensor) -> Clipped:
        """Clip each layer of the rows of ``stack`` (float32 ``[P, M]``) in place; rows not finite become 0.

        Returns the stack, each row's norm before clipping, and which rows were changed.

        Raises:
            SpecError: the layers do not cover vectors of this length.
        """
        if self.layers[-1][1] != stack.shape[1]:
            raise SpecError("clip.layers", self.layers, f"they must cover all {stack.shape[1]} parameters")
        norms = row_norms(stack)
        drop_non_finite_(stack, norms)
        clipped = ~norms.isfinite()
        for bound, (start, stop) in zip(self.norms, self.layers, strict=True):
            layer = stack[:, start:stop]
            of_layer = row_norms(layer)
            layer.mul_(scale_factors(of_layer, bound)[:, None])
            clipped = clipped | ~(of_layer <= bound)
        return Clipped(stack, norms, clipped)


def _sensitivity(bound: float, neighbours: Literal["zero-out", "replace"]) -> float:
    """Give ``bound`` under ``zero-out``, where one vector becomes zero, twice it under ``replace``."""
    return bound if neighbours == "zero-out" else 2 * bound


def _check_norm(place: str, norm: float) -> None:
    """Raise `SpecError` for the key ``place`` unless ``norm`` is positive and finite."""
    if not (math.isfinite(norm) and norm > 0 and torch.finfo(torch.float32).tiny < norm):
        raise SpecError(place, norm, "must be a positive finite number")
