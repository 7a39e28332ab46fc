"""Models with dropout, for examples of shape (1, 8, 8), as users write them."""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional


def layers() -> nn.Module:
    return nn.Sequential(
        nn.Flatten(),
        nn.Dropout(0.2),
        nn.Linear(64, 12),
        nn.Dropout(0.5, inplace=True),
        nn.Tanh(),
        nn.Linear(12, 10),
    )


def channels() -> nn.Module:
    return nn.Sequential(
        nn.Conv2d(1, 6, 3), nn.Tanh(), nn.Dropout2d(0.4), nn.MaxPool2d(2), nn.Flatten(), nn.Linear(54, 10)
    )


def chain() -> nn.Module:
    """Layers that all have gradients written by hand: dropout of pixels, channels, and flat features."""
    return nn.Sequential(
        nn.Dropout2d(0.3),
        nn.Dropout(0.1),
        nn.Conv2d(1, 4, 3),
        nn.ReLU(),
        nn.Dropout2d(0.4),
        nn.Dropout(0.2),
        nn.MaxPool2d(2),
        nn.Flatten(),
        nn.Dropout(0.3),
        nn.Linear(36, 12),
        nn.Dropout(0.2),
        nn.ReLU(),
        nn.Dropout(0.5),
        nn.Linear(12, 10),
    )


def chain_from_pixels() -> nn.Module:
    """As `chain`, with dropout of the flat input, and layers without."""
    return nn.Sequential(
        nn.Flatten(), nn.Dropout(0.2), nn.Linear(64, 12), nn.ReLU(), nn.Dropout(0.5), nn.Linear(12, 10)
    )


class Shared(nn.Module):
    """One layer of dropout at two places of different width."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.second, self.head = nn.Linear(64, 12), nn.Linear(12, 7), nn.Linear(7, 10)
        self.drop = nn.Dropout(0.3)

    def forward(self, x: Tensor) -> Tensor:
        x = self.drop(torch.tanh(self.first(x.flatten(1))))
        return self.head(self.drop(torch.tanh(self.second(x))))


class TimeFirst(nn.Module):
    """Reads rows as a sequence, whose axis comes before that of the examples."""

    def __init__(self, network: type[nn.RNNBase] = nn.GRU) -> None:
        super().__init__()
        self.rows, self.drop, self.head = network(8, 6), nn.Dropout(0.5), nn.Linear(6, 10)

    def forward(self, x: Tensor) -> Tensor:
        found, _ = self.rows(x[:, 0].transpose(0, 1))
        return self.head(self.drop(found).mean(dim=0))


def shared() -> nn.Module:
    return Shared()


def time_first() -> nn.Module:
    return TimeFirst()


def lstm() -> nn.Module:
    return TimeFirst(nn.LSTM)


class Function(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(64, 10)

    def forward(self, x: Tensor) -> Tensor:
        return self.linear(functional.dropout(x.flatten(1), 0.5))


class Mixing(nn.Module):
    """Drops entries of a tensor in which examples cannot be told apart."""

    def __init__(self, *, weights: bool) -> None:
        super().__init__()
        self.linear, self.drop, self.weights = nn.Linear(64, 10), nn.Dropout(0.5), weights

    def forward(self, x: Tensor) -> Tensor:
        if self.weights:
            return x.flatten(1) @ self.drop(self.linear.weight).mT
        return self.linear(self.drop(x.flatten()).view(-1, 64))


class OwnDropout(nn.Dropout):
    pass


def function() -> nn.Module:
    return Function()


def of_weights() -> nn.Module:
    return Mixing(weights=True)


def of_all_together() -> nn.Module:
    return Mixing(weights=False)


def alpha() -> nn.Module:
    return nn.Sequential(nn.Flatten(), nn.AlphaDropout(0.5), nn.Linear(64, 10))


def subclass() -> nn.Module:
    return nn.Sequential(nn.Flatten(), OwnDropout(0.5), nn.Linear(64, 10))


def hooked() -> nn.Module:
    drop = nn.Dropout(0.5)
    drop.register_forward_hook(lambda module, inputs, output: None)
    return nn.Sequential(nn.Flatten(), drop, nn.Linear(64, 10))


def wrong_rank() -> nn.Module:
    return nn.Sequential(nn.Flatten(), nn.Dropout2d(0.5), nn.Linear(64, 10))


class Encoder(nn.Module):
    """Rows as tokens of a transformer."""

    def __init__(self, *, inside: float) -> None:
        super().__init__()
        self.layer = nn.TransformerEncoderLayer(8, 2, 16, dropout=0.1, batch_first=True)
        self.layer.self_attn.dropout = inside
        self.head = nn.Linear(8, 10)

    def forward(self, x: Tensor) -> Tensor:
        return self.head(self.layer(x[:, 0]).mean(dim=1))


def transformer() -> nn.Module:
    return Encoder(inside=0.1)


def transformer_without_inner() -> nn.Module:
    return Encoder(inside=0.0)
