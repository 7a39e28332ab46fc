"""A Flower client trains a device: `sfumato deploy spec.yaml --local --loop flower_loop.py:train`.

`Net` and `Client` are what a Flower app has. `train` is all that is added: it hands the model over as Flower
does, as a list of arrays, and gives what `fit` returns back by name. Without Flower the client has no base
class; nothing else of Flower is used.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

try:
    from flwr.client import NumPyClient
except ImportError:
    NumPyClient = object

if TYPE_CHECKING:
    from sfumato.deployment.own_loop import LoopTask


class Net(nn.Module):
    """The app's own model; its parameters have the shapes of those of the spec's, in the same order."""

    def __init__(self) -> None:
        super().__init__()
        self.hidden, self.output = nn.Linear(64, 32), nn.Linear(32, 10)

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        """Logits ``[B, 10]`` of images ``[B, 1, 8, 8]``."""
        return self.output(torch.relu(self.hidden(images.flatten(1))))


class Client(NumPyClient):
    """The app's client."""

    def __init__(self, net: nn.Module, loader: DataLoader) -> None:
        self.net, self.loader = net, loader

    def fit(
        self, parameters: list[np.ndarray], config: dict[str, Any]
    ) -> tuple[list[np.ndarray], int, dict[str, Any]]:
        """Train one epoch from ``parameters``."""
        with torch.no_grad():
            for own, given in zip(self.net.parameters(), parameters, strict=True):
                own.copy_(torch.from_numpy(given))
        optimizer = torch.optim.SGD(self.net.parameters(), lr=config["lr"])
        for features, labels in self.loader:
            optimizer.zero_grad()
            nn.functional.cross_entropy(self.net(features), labels).backward()
            optimizer.step()
        trained = [parameter.detach().numpy() for parameter in self.net.parameters()]
        return trained, len(self.loader.dataset), {}


def train(model: nn.Module, rows: TensorDataset, task: LoopTask) -> dict[str, np.ndarray]:
    """Let the client fit."""
    client = Client(Net(), DataLoader(rows, batch_size=task.training.batch_size, shuffle=True))
    names, start = zip(*model.named_parameters(), strict=True)
    config = {"server_round": task.round + 1, "lr": task.learning_rate}
    trained, _, _ = client.fit([parameter.detach().numpy().copy() for parameter in start], config)
    return dict(zip(names, trained, strict=True))
