"""Gradient matching finds the image behind an update, and says how well it explains it."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from torch import Tensor, nn
from torch.nn.functional import one_hot

from sfumato.attacks.gradient_matching import (
    FeatureBounds,
    Reconstruction,
    Simulation,
    invert_by_cosine,
    invert_by_distance,
    mismatch,
)
from sfumato.learning.local_training import LocalSGD
from sfumato.learning.parameters import ParameterLayout

CLASSES, SHAPE = 4, (1, 1, 6, 6)
BOX = FeatureBounds(torch.tensor(0.0), torch.tensor(1.0))


def simulation(*, steps: int = 1, images: int = 1, clip: float | None = None) -> Simulation:
    torch.manual_seed(0)
    model = nn.Sequential(nn.Flatten(), nn.Linear(36, 24), nn.Sigmoid(), nn.Linear(24, CLASSES))
    start = ParameterLayout.of(model).read(model)
    slots = torch.arange(images).expand(1, steps, images)
    weights = torch.full((1, steps, images), 1 / images)
    return Simulation(model, start, LocalSGD(0.5, 0.0, None), clip, slots, weights, torch.ones(1))


def truth(count: int, seed: int = 5) -> tuple[Tensor, Tensor]:
    rng = torch.Generator().manual_seed(seed)
    smooth = nn.functional.interpolate(
        torch.rand(count, 1, 2, 2, generator=rng), size=(6, 6), mode="bilinear"
    )
    return smooth, torch.arange(count) % CLASSES


def rng() -> np.random.Generator:
    return np.random.default_rng(11)


@pytest.mark.parametrize("steps", [1, 3])
@pytest.mark.parametrize("clip", [None, 0.01])
def test_cosine_finds_the_image(steps: int, clip: float | None) -> None:
    """Through several steps, and though clipping hides how long the update was."""
    simulate = simulation(steps=steps, clip=clip)
    images, labels = truth(1)
    seen = simulate(images, one_hot(labels, CLASSES).float())

    def find(iterations: int) -> Reconstruction:
        return invert_by_cosine(
            simulate, seen, labels, CLASSES, BOX, SHAPE, rng(), iterations=iterations, variation=1e-3
        )

    found = find(150)
    assert found.mismatch < 1e-3
    assert float((found.images - images).abs().mean()) < 0.05
    assert torch.equal(find(10).images, find(10).images)


@pytest.mark.parametrize("known", [True, False])
def test_distance_finds_image_and_label(known: bool) -> None:
    simulate = simulation()
    images, labels = truth(1)
    labels = labels + 2
    seen = simulate(images, one_hot(labels, CLASSES).float())
    found = invert_by_distance(
        simulate, seen, labels if known else None, CLASSES, BOX, SHAPE, rng(), iterations=200
    )
    assert found.labels.tolist() == [2]
    assert found.mismatch < 1e-4
    assert float((found.images - images).abs().mean()) < 0.05


def test_noise_is_explained_worse_and_images_stay_in_their_range() -> None:
    simulate = simulation(clip=0.01)
    images, labels = truth(1)
    seen = simulate(images, one_hot(labels, CLASSES).float())
    noisy = seen + 0.01 * torch.from_numpy(rng().standard_normal(seen.shape, np.float32))
    for attack in (
        lambda s: invert_by_cosine(
            simulate, s, labels, CLASSES, BOX, SHAPE, rng(), iterations=100, variation=0.01
        ),
        lambda s: invert_by_distance(simulate, s, labels, CLASSES, BOX, SHAPE, rng(), iterations=50),
    ):
        found = attack(noisy)
        assert found.mismatch > 0.5 > attack(seen).mismatch
        assert float(found.images.min()) >= 0.0
        assert float(found.images.max()) <= 1.0


def test_mismatch_is_scale_free() -> None:
    a, b = torch.tensor([1.0, 0.0]), torch.tensor([1.0, 1.0])
    assert float(mismatch(a, 7 * a)) == pytest.approx(0.0, abs=1e-6)
    assert float(mismatch(a, -a)) == pytest.approx(2.0, abs=1e-6)
    assert float(mismatch(a, b)) == pytest.approx(1 - 0.5**0.5, abs=1e-6)
