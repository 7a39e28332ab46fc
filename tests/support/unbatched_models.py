"""Modules whose devices cannot be trained side by side by ``torch.func.vmap``."""

from __future__ import annotations

import torch
from torch import Tensor, nn


class Rows(nn.Module):
    """Reads an image row by row."""

    def __init__(self, network: type[nn.RNNBase] = nn.LSTM) -> None:
        super().__init__()
        self.rows = network(8, 6, batch_first=True)
        self.head = nn.Linear(6, 10)

    def forward(self, x: Tensor) -> Tensor:
        return self.head(self.rows(x.flatten(1, 2))[0][:, -1])


class Branching(nn.Module):
    """Chooses a layer by the whole batch: rows that only fill a batch up would change the choice."""

    def __init__(self) -> None:
        super().__init__()
        self.one, self.other = nn.Linear(64, 10), nn.Linear(64, 10)

    def forward(self, x: Tensor) -> Tensor:
        x = x.flatten(1)
        return self.one(x) if x.mean() > 0 else self.other(x)


class Counting(nn.Module):
    """Adds up what it has seen in a buffer, in place, and uses it; keeps its last batch as well."""

    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(64, 10)
        self.register_buffer("seen", torch.zeros(64))
        self.last: Tensor | None = None

    def forward(self, x: Tensor) -> Tensor:
        x = x.flatten(1)
        self.seen.add_(x.mean(dim=0).detach())
        self.last = x
        return self.linear(x + 0.1 * self.seen)


def lstm() -> nn.Module:
    return Rows()


def branching() -> nn.Module:
    return Branching()


def counting() -> nn.Module:
    return Counting()


class _Drawing(nn.Module):
    """Draws random numbers where vmap cannot follow it that far."""

    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(64, 10)

    def forward(self, x: Tensor) -> Tensor:
        x = x.flatten(1)
        return self.linear(x + torch.randn(64)) if x.sum() > -1 else self.linear(x)


def drawing() -> nn.Module:
    return _Drawing()


def lstm_with_dropout() -> nn.Module:
    model = Rows()
    model.rows = nn.LSTM(8, 6, num_layers=2, dropout=0.5, batch_first=True)
    return model
