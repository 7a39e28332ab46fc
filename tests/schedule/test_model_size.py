"""Model sizes by arithmetic against the models themselves."""

from __future__ import annotations

from typing import Any

import pytest

from sfumato.data.builtin_datasets import BUILT_IN
from sfumato.learning.models import build_model
from sfumato.schedule.model_size import parameter_count
from sfumato.spec.document import Spec


def _spec(model: dict[str, Any], data: dict[str, Any]) -> Spec:
    return Spec.model_validate(
        {
            "name": "x",
            "protocol": "dp-fedavg",
            "data": data,
            "model": model,
            "topology": {"kind": "star", "devices": 4},
            "training": {"rounds": 1, "local_steps": 1, "batch_size": 1, "learning_rate": 0.1},
        }
    )


@pytest.mark.parametrize("source", ["fashion-mnist", "cifar10", "femnist"])
@pytest.mark.parametrize(
    "model",
    [
        {"kind": "softmax"},
        {"kind": "softmax", "bias": False},
        {"kind": "mlp", "hidden": 7},
        {"kind": "mlp", "hidden": [7, 5]},
        {"kind": "cnn-small"},
        {"kind": "cnn"},
        {"kind": "resnet18"},
        {"kind": "vgg11"},
    ],
)
def test_parameter_count_is_the_built_models(model: dict[str, Any], source: str) -> None:
    spec = _spec(model, {"source": source})
    known = BUILT_IN[source].facts
    built = build_model(
        spec.model.kind,
        shape=known.input_shape,
        classes=known.classes,
        seed=0,
        hidden=spec.model.hidden,
        bias=spec.model.bias,
    )
    assert parameter_count(spec) == sum(p.numel() for p in built.parameters())


def test_parameter_count_is_unknown_for_a_model_of_ones_own() -> None:
    assert parameter_count(_spec({"kind": "package.module:make"}, {"source": "fashion-mnist"})) is None


@pytest.mark.needs("hub")
def test_parameter_count_is_unknown_for_data_elsewhere() -> None:
    assert parameter_count(_spec({"kind": "softmax"}, {"source": "nowhere/at-all"})) is None


def test_parameter_count_of_synthetic_data_does_not_depend_on_their_number() -> None:
    few = _spec({"kind": "softmax"}, {"source": "synthetic", "examples_per_device": 3})
    many = _spec({"kind": "softmax"}, {"source": "synthetic", "examples_per_device": 300})
    assert parameter_count(few) == parameter_count(many) is not None
