from __future__ import annotations

import pytest
import torch

from sfumato.learning.evaluation import evaluate, evaluate_stack
from sfumato.learning.models import build_model
from sfumato.learning.parameters import ParameterLayout


@pytest.mark.parametrize("batch_size", [1, 7, 100])
def test_equals_the_module_itself(batch_size: int) -> None:
    model = build_model("cnn-small", shape=(1, 8, 8), classes=10, seed=0)
    layout = ParameterLayout.of(model)
    generator = torch.Generator().manual_seed(0)
    features = torch.randn(50, 1, 8, 8, generator=generator)
    labels = torch.randint(0, 10, (50,), generator=generator)
    logits = model(features).detach()
    score = evaluate(model, layout.read(model), features, labels, batch_size=batch_size)
    assert score.accuracy == pytest.approx(float((logits.argmax(1) == labels).float().mean()))
    assert score.loss == pytest.approx(float(torch.nn.functional.cross_entropy(logits, labels)), rel=1e-5)


def test_a_stack_is_its_rows() -> None:
    models = [build_model("softmax", shape=(4,), classes=3, seed=seed) for seed in range(3)]
    layout = ParameterLayout.of(models[0])
    stack = torch.stack([layout.read(model) for model in models])
    features = torch.randn(20, 4, generator=torch.Generator().manual_seed(0))
    labels = torch.arange(20) % 3
    scores = evaluate_stack(models[0], stack, features, labels)
    assert scores == [evaluate(models[0], row, features, labels) for row in stack]
    assert len({score.loss for score in scores}) == 3
