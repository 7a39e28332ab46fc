from __future__ import annotations

import pytest
import torch
from torch import nn

from sfumato.errors import SpecError
from sfumato.learning.models import build_model
from sfumato.learning.parameters import ParameterLayout


def test_round_trip() -> None:
    model = build_model("cnn-small", shape=(1, 8, 8), classes=10, seed=0)
    other = build_model("cnn-small", shape=(1, 8, 8), classes=10, seed=1)
    layout = ParameterLayout.of(model)
    flat = layout.read(model)
    assert flat.shape == (layout.total,)
    layout.write(flat, other)
    assert all(torch.equal(a, b) for a, b in zip(model.parameters(), other.parameters(), strict=True))
    assert torch.equal(layout.flatten(model.state_dict()), flat)
    assert torch.equal(layout.flatten(layout.unflatten(flat)), flat)


def test_views_of_stacks_share_memory() -> None:
    model = nn.Linear(3, 2)
    layout = ParameterLayout.of(model)
    stack = torch.zeros(5, 8)
    views = layout.unflatten(stack)
    assert views["weight"].shape == (5, 2, 3)
    views["bias"].fill_(1)
    assert stack.sum() == 10


def test_layers_hold_weight_and_bias() -> None:
    model = nn.Sequential(nn.Linear(3, 2), nn.ReLU(), nn.Linear(2, 2, bias=False))
    layout = ParameterLayout.of(model)
    assert layout.sizes == (6, 2, 4)
    assert layout.spans == ((0, 6), (6, 8), (8, 12))
    assert layout.layer_spans == ((0, 8), (8, 12))


def test_scalars_have_a_place() -> None:
    model = nn.Module()
    model.scale = nn.Parameter(torch.tensor(2.0))
    layout = ParameterLayout.of(model)
    assert layout.unflatten(torch.ones(4, 1))["scale"].shape == (4,)


def test_refusals() -> None:
    with pytest.raises(SpecError, match="no trainable"):
        ParameterLayout.of(nn.ReLU())
    with pytest.raises(SpecError, match="must be 8 long"):
        ParameterLayout.of(nn.Linear(3, 2)).unflatten(torch.zeros(7))
