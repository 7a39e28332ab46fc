"""An Opacus loop trains a device: `sfumato deploy spec.yaml --local --loop opacus_loop.py:train`.

Opacus clips the gradient of every row and adds noise to it on the device. That protects rows, and Opacus
accounts for it. What Sfumato accounts for, and what a consent is about, is the whole device, and does not
count on the noise of Opacus. It needs `pip install opacus`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
from opacus import PrivacyEngine
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

if TYPE_CHECKING:
    from sfumato.deployment.own_loop import LoopTask


def train(model: nn.Module, rows: TensorDataset, task: LoopTask) -> nn.Module:
    """One epoch of DP-SGD."""
    private, optimizer, loader = PrivacyEngine().make_private(
        module=model,
        optimizer=torch.optim.SGD(model.parameters(), lr=task.learning_rate),
        data_loader=DataLoader(rows, batch_size=task.training.batch_size),
        noise_multiplier=1.0,
        max_grad_norm=1.0,
    )
    for features, labels in loader:
        optimizer.zero_grad()
        nn.functional.cross_entropy(private(features), labels).backward()
        optimizer.step()
    return private._module  # the model itself: Opacus puts another module around it
