"""A plain PyTorch loop: `sfumato deploy spec.yaml --local --loop plain_loop.py:train`."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

if TYPE_CHECKING:
    from sfumato.deployment.own_loop import LoopTask


def train(model: nn.Module, rows: TensorDataset, task: LoopTask) -> nn.Module:
    """One epoch over the rows of this device."""
    optimizer = torch.optim.SGD(model.parameters(), lr=task.learning_rate)
    loss_of = nn.CrossEntropyLoss()
    for features, labels in DataLoader(rows, batch_size=task.training.batch_size, shuffle=True):
        optimizer.zero_grad()
        loss_of(model(features), labels).backward()
        optimizer.step()
    return model
