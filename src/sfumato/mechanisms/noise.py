"""Gaussian noise from addressed streams: the same address, the same noise, whatever was drawn before."""

from __future__ import annotations

import torch
from torch import Tensor

from sfumato.random import Stream, torch_seed


def gaussian(size: int, std: float, *, seed: int, key: tuple[int, ...], device: torch.device) -> Tensor:
    """Noise ``N(0, std^2 I)`` of ``size`` coordinates, float32 ``[size]``.

    Floating-point Gaussians are idealised in the accounts, and a published seed regenerates the noise:
    this is for simulation.

    Args:
        size: number of coordinates.
        std: standard deviation a coordinate.
        seed: of the run.
        key: address within the stream NOISE, e.g. (round, aggregation, tier, party).
        device: where it is drawn; other kinds of device draw other numbers.
    """
    generator = torch.Generator(device=device).manual_seed(torch_seed(seed, Stream.NOISE, *key))
    return torch.randn(size, generator=generator, device=device).mul_(std)
