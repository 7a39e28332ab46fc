from __future__ import annotations

import pytest
import torch

from sfumato.learning.evaluation import evaluate
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
