"""Steps of models one after another, as a GPU takes those of models with convolutions."""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.func import functional_call, grad, vmap

from sfumato.learning.gradients import one_by_one
from sfumato.learning.parameters import ParameterLayout


def test_one_model_after_another_has_the_gradients_of_all_at_once() -> None:
    model = nn.Sequential(nn.Conv1d(1, 3, 3), nn.GroupNorm(1, 3), nn.Flatten(), nn.Linear(12, 5))
    layout, generator = ParameterLayout.of(model), torch.Generator().manual_seed(0)
    models = layout.unflatten(torch.randn(4, layout.total, generator=generator))

    def loss(
        parameters: dict[str, Tensor],
        features: Tensor,
        labels: Tensor,
        weights: Tensor,
        masks: tuple[Tensor, ...],
    ) -> Tensor:
        outputs = functional_call(model, parameters, (features * masks[0],))
        return (nn.functional.cross_entropy(outputs, labels, reduction="none") * weights).sum()

    features, weights = torch.rand(4, 2, 1, 6, generator=generator), torch.rand(4, 2, generator=generator)
    labels = torch.randint(5, (4, 2), generator=generator)
    masks = (torch.randint(2, features.shape, generator=generator).float(),)
    given = models, features, labels, weights, masks
    torch.testing.assert_close(one_by_one(grad(loss))(*given), vmap(grad(loss))(*given))
