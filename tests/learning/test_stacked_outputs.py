import pytest
import torch
from torch import Tensor, nn

from sfumato.learning import stacked_outputs
from sfumato.learning.models import build_model
from sfumato.learning.parameters import ParameterLayout
from sfumato.learning.stacked_outputs import outputs_of, stacks_of

DRAWN = torch.Generator().manual_seed(4)
FEATURES = torch.randn(7, 1, 8, 8, generator=DRAWN)


def models_like(model: nn.Module, count: int) -> Tensor:
    start = ParameterLayout.of(model).read(model)
    return start + 0.3 * torch.randn(count, len(start), generator=DRAWN)


def one_by_one(model: nn.Module, models: Tensor, features: Tensor) -> Tensor:
    """Outputs ``[B, C, ...]`` of the module itself, with the parameters of one model after the other."""
    layout, found = ParameterLayout.of(model), []
    for flat in models:
        layout.write(flat, model)
        found.append(model(features).detach())
    return torch.stack(found, dim=1)


@pytest.mark.parametrize("kind", ["softmax", "mlp", "cnn-small"])
@pytest.mark.parametrize("bias", [True, False])
def test_stacks_are_the_models_themselves(kind: str, bias: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    model = build_model(kind, shape=(1, 8, 8), classes=5, seed=0, bias=bias)
    models = models_like(model, 11)
    a_model = models.shape[1] + (stacked_outputs._floats_of_chain(model, FEATURES) or 0)
    monkeypatch.setattr(stacked_outputs, "_STACK_FLOATS", 4 * a_model)
    found = torch.empty(7, 11, 5)
    sizes = []
    for some in stacks_of(model, 11, FEATURES):
        outputs = outputs_of(model, models[some], FEATURES)
        found[:, some] = outputs
        sizes.append(outputs.shape[1])
    assert sizes == ([1] * 11 if kind == "cnn-small" else [4, 4, 3])  # memory bounds a stack
    torch.testing.assert_close(found, one_by_one(model, models, FEATURES))


class Counting(nn.Module):
    """Adds how often it has been called."""

    def __init__(self) -> None:
        super().__init__()
        self.linear, self.calls = nn.Linear(64, 5), 0

    def forward(self, x: Tensor) -> Tensor:
        self.calls += 1
        return self.linear(x.flatten(1)) + self.calls


def test_what_a_module_keeps_reaches_no_other_model() -> None:
    model = Counting()
    models = models_like(model, 3)
    found = outputs_of(model, models, FEATURES)
    assert model.calls == 0
    torch.testing.assert_close(found, one_by_one(model.linear, models, FEATURES.flatten(1)) + 1)
