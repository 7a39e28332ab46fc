"""With one row of a person in a step, all its rows together move it by two clipped gradients at most."""

import numpy as np
import pytest
import torch
from torch import nn

from sfumato.engine.base import EngineSettings, LocalTask
from sfumato.engine.local import LocalEngine
from sfumato.learning.batches import plan_poisson
from sfumato.learning.local_training import LocalSGD

DEVICES, MANY, OTHERS, BATCH, NORM = 40, 20, 10, 4, 0.5


def updates(features: torch.Tensor, labels: torch.Tensor, *, by_person: bool) -> torch.Tensor:
    """Updates ``[DEVICES, M]`` of one step; person 0 has the first `MANY` rows, everybody else has one."""
    held = [np.arange(MANY + OTHERS)] * DEVICES
    starts = np.concatenate([[0], MANY + np.arange(OTHERS + 1)])
    plan = plan_poisson(
        held,
        steps=1,
        batch_size=BATCH,
        rngs=[np.random.default_rng([4, device]) for device in range(DEVICES)],
        persons=[starts] * DEVICES if by_person else None,
    )
    model = nn.Sequential(nn.Linear(3, 2))
    start = torch.zeros(1, 8)  # at which gradients of two labels are opposite
    engine = LocalEngine(model, features, labels, EngineSettings.default("cpu"))
    task = LocalTask(LocalSGD(1.0, example_clip=NORM))
    chunks = engine.train(task, start, torch.zeros(DEVICES, dtype=torch.int64), plan)
    return torch.cat([chunk.updates for chunk in chunks])


@pytest.mark.parametrize("by_person", [True, False])
def test_a_person_who_is_replaced_moves_a_step_by_two_clipped_gradients(by_person: bool) -> None:
    generator = torch.Generator().manual_seed(2)
    features = torch.randn(MANY + OTHERS, 3, generator=generator)
    labels = torch.arange(MANY + OTHERS) % 2
    other, flipped = features.clone(), labels.clone()
    features[:MANY], other[:MANY] = 10.0, 10.0
    labels[:MANY], flipped[:MANY] = 0, 1
    moved = updates(features, labels, by_person=by_person) - updates(other, flipped, by_person=by_person)
    largest, bound = float(moved.norm(dim=1).max()), 2 * NORM / BATCH
    if by_person:
        assert 0.9 * bound < largest <= bound * (1 + 1e-5)
    else:  # rows drawn by themselves: several are in a batch
        assert largest > 2 * bound
