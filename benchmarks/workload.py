"""The workload of the round benchmark: DP-FedAvg on Fashion-MNIST, 1,000 devices, 50 of them a round."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from sfumato.data.datasets import load_dataset
from sfumato.learning.models import build_model

DEVICES, CHOSEN, EXAMPLES = 1_000, 50, 60
EPOCHS, BATCH, LEARNING_RATE = 5, 10, 0.05
CLIP, NOISE_MULTIPLIER = 1.0, 1.0
FLOOR_BATCH = 500
MODELS = ("softmax", "mlp", "cnn-small")


@dataclass(frozen=True)
class Workload:
    features: Tensor
    labels: Tensor
    devices: NDArray[np.int64]
    chosen: NDArray[np.int64]
    model: nn.Module

    @classmethod
    def of(cls, kind: str) -> Workload:
        data = load_dataset("fashion-mnist")
        rng = np.random.default_rng(0)
        devices = rng.permutation(len(data.train_labels))[: DEVICES * EXAMPLES].reshape(DEVICES, EXAMPLES)
        return cls(
            torch.from_numpy(data.train_features),
            torch.from_numpy(data.train_labels),
            devices,
            rng.choice(DEVICES, CHOSEN, replace=False),
            build_model(kind, shape=data.train_features.shape[1:], classes=10, seed=0, hidden=200),
        )


def sgd_step(network: nn.Module, optimizer: torch.optim.Optimizer, features: Tensor, labels: Tensor) -> None:
    """One step of plain PyTorch on a mini-batch: the mean of its cross-entropies."""
    optimizer.zero_grad()
    nn.functional.cross_entropy(network(features), labels).backward()
    optimizer.step()
