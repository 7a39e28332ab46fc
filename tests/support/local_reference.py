"""What vectorised training must equal: one device after another, plain modules, torch.optim."""

from __future__ import annotations

import copy
from collections.abc import Callable

import numpy as np
import torch
from torch import Tensor, nn

from sfumato.learning.batches import BatchPlan
from sfumato.learning.local_training import LocalSGD
from sfumato.learning.parameters import ParameterLayout
from sfumato.learning.rounding_margin import with_margin
from sfumato.mechanisms.gaussian import add_gaussian_


def train_one(
    model: nn.Module,
    start: Tensor,
    batches: BatchPlan,
    device: int,
    features: Tensor,
    labels: Tensor,
    sgd: LocalSGD,
) -> Tensor:
    layout = ParameterLayout.of(model)
    sgd = with_margin(sgd, batches, start[None], noisy=False)
    model = copy.deepcopy(model)
    layout.write(start, model)
    optimizer = optimizer_of(model, sgd)
    for step in range(int(batches.steps[device])):
        rows = batches.rows[device, step, : batches.counts[device, step]].long()
        optimizer.zero_grad()
        losses = nn.functional.cross_entropy(model(features[rows]), labels[rows], reduction="none")
        (losses.sum() / (batches.divisor or len(rows))).backward()
        if sgd.step_clip is not None:
            nn.utils.clip_grad_norm_(model.parameters(), sgd.step_clip)
        optimizer.step()
    return layout.read(model) - start


def optimizer_of(model: nn.Module, sgd: LocalSGD) -> torch.optim.Optimizer:
    """Of torch; SGD without momentum has decoupled decay as its L2 term, with momentum torch has none."""
    adam, shared = sgd.adam, {"lr": sgd.learning_rate, "weight_decay": sgd.weight_decay}
    if adam is not None:
        betas = (adam.beta1, adam.beta2)
        return torch.optim.AdamW(model.parameters(), betas=betas, eps=adam.epsilon, **shared)
    assert not (sgd.momentum and sgd.weight_decay)
    return torch.optim.SGD(model.parameters(), momentum=sgd.momentum, **shared)


def train_all(
    model: nn.Module,
    start: Tensor,
    group_of: Tensor,
    batches: BatchPlan,
    features: Tensor,
    labels: Tensor,
    sgd: LocalSGD,
) -> Tensor:
    updates = [
        train_one(model, start[group_of[p]], batches, p, features, labels, sgd)
        for p in range(batches.devices)
    ]
    return torch.stack(updates)


def data_of(
    shape: tuple[int, ...], classes: int = 10, examples: int = 64, seed: int = 0
) -> tuple[Tensor, Tensor]:
    rng = np.random.default_rng(seed)
    features = torch.from_numpy(rng.standard_normal((examples, *shape), dtype=np.float32))
    return features, torch.from_numpy(rng.integers(0, classes, examples))


def devices_of(sizes: list[int], seed: int = 0) -> list[np.ndarray]:
    order = np.random.default_rng(seed).permutation(sum(sizes))
    return np.split(order, np.cumsum(sizes)[:-1])


def one_example_at_a_time(
    model: nn.Module,
    start: Tensor,
    data: tuple[Tensor, Tensor],
    batches: BatchPlan,
    device: int,
    sgd: LocalSGD,
    std: float,
    key_of: Callable[[int], bytes],
) -> Tensor:
    """The update of one device by plain autograd: every example clipped by itself, noise at every step."""
    layout = ParameterLayout.of(model)
    sgd = with_margin(sgd, batches, start[None], noisy=std > 0)
    position, velocity = start.clone().requires_grad_(), torch.zeros_like(start)
    adam = sgd.adam and torch.optim.Adam(
        [position], sgd.learning_rate, (sgd.adam.beta1, sgd.adam.beta2), sgd.adam.epsilon
    )
    assert sgd.example_clip is not None
    assert batches.divisor is not None
    for step in range(int(batches.steps[device])):
        total = torch.zeros_like(start)
        for row in batches.rows[device, step, : int(batches.counts[device, step])].tolist():
            module = copy.deepcopy(model)
            layout.write(position.detach(), module)
            nn.functional.cross_entropy(module(data[0][row : row + 1]), data[1][row : row + 1]).backward()
            parts = [torch.zeros_like(p) if p.grad is None else p.grad for p in module.parameters()]
            gradient = torch.cat([part.flatten() for part in parts])
            total += gradient * min(1.0, sgd.example_clip / float(gradient.norm()))
        noise, key = torch.zeros(1, len(start)), key_of(step)
        add_gaussian_(noise, np.array([std]), lambda _, key=key: key)
        slope = (total + noise[0]) / batches.divisor
        velocity = sgd.momentum * velocity + slope
        with torch.no_grad():
            position *= 1 - sgd.learning_rate * sgd.weight_decay
            if adam is None:
                position -= sgd.learning_rate * velocity
            else:
                position.grad = slope
                adam.step()
    return position.detach() - start
