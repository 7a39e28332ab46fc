"""Local training of pfl-research: `sfumato deploy spec.yaml --local --loop pfl_loop.py:train`.

`Net` is what a pfl app has: a module with `loss` and `metrics`. `train` does with it what
`FederatedAveraging` does with one user. It needs `pip install pfl`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
from pfl.data.pytorch import PyTorchTensorDataset
from pfl.hyperparam import NNTrainHyperParams
from pfl.internal.bridge import FrameworkBridgeFactory
from pfl.model.pytorch import PyTorchModel
from torch import nn
from torch.utils.data import TensorDataset

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

    def loss(self, images: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
        """The mean loss of a batch."""
        return nn.functional.cross_entropy(self(images), labels)

    def metrics(self, images: torch.Tensor, labels: torch.Tensor) -> dict[str, object]:
        """Nothing is measured on the device."""
        return {}


def train(model: nn.Module, rows: TensorDataset, task: LoopTask) -> dict[str, torch.Tensor]:
    """One epoch for one user."""
    net = Net()
    with torch.no_grad():
        for own, given in zip(net.parameters(), model.parameters(), strict=True):
            own.copy_(given)
    user = PyTorchModel(net, torch.optim.SGD, torch.optim.SGD(net.parameters(), lr=1.0))
    settings = NNTrainHyperParams(
        local_num_epochs=1, local_learning_rate=task.learning_rate, local_batch_size=task.training.batch_size
    )
    FrameworkBridgeFactory.sgd_bridge().do_sgd(user, PyTorchTensorDataset(rows.tensors), settings)
    names = [name for name, _ in model.named_parameters()]
    return dict(zip(names, user.pytorch_model.parameters(), strict=True))
