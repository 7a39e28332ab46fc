"""Model sizes by arithmetic against the models themselves."""

from __future__ import annotations

from typing import Any

import pytest

from sfumato.accounting import account
from sfumato.data.builtin_datasets import BUILT_IN
from sfumato.errors import SpecError
from sfumato.learning.models import build_model
from sfumato.learning.parameters import ParameterLayout
from sfumato.schedule.model_size import layer_count, parameter_count
from sfumato.spec.document import Spec
from sfumato.spec.model import Model


def _spec(model: dict[str, Any], data: dict[str, Any], **sections: Any) -> Spec:
    return Spec.model_validate(
        {
            "name": "x",
            "protocol": "dp-fedavg",
            "data": data,
            "model": model,
            "topology": {"kind": "star", "devices": 4},
            "training": {"rounds": 1, "local_steps": 1, "batch_size": 1, "learning_rate": 0.1},
            **sections,
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
        {"kind": "vgg11", "norm": "none"},
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
        norm=spec.model.norm,
    )
    assert parameter_count(spec) == sum(p.numel() for p in built.parameters())


MODELS: list[dict[str, Any]] = [
    {"kind": kind, "trained": trained}
    for kind in ("softmax", "mlp", "cnn-small", "cnn", "resnet18", "vgg11")
    for trained in ("all", "head", "adapters")
] + [
    {"kind": "mlp", "hidden": hidden, "trained": t}
    for hidden in ([7], [7, 5, 3])
    for t in ("all", "adapters")
]
MODELS += [{"kind": "vgg11", "norm": "none", "trained": trained} for trained in ("all", "head", "adapters")]


@pytest.mark.parametrize("model", MODELS)
def test_layer_count_is_the_built_models(model: dict[str, Any]) -> None:
    written, known = Model(**model), BUILT_IN["cifar10"].facts
    settings = {"hidden": written.hidden, "norm": written.norm, "trained": written.trained, "seed": 0}
    try:
        built = build_model(written.kind, shape=known.input_shape, classes=10, **settings)
    except SpecError:  # there is nothing to adapt
        assert layer_count(written) is None
        return
    assert layer_count(written) == len(ParameterLayout.of(built).layer_spans)


@pytest.mark.parametrize(
    "model", [{"kind": "softmax"}, {"kind": "mlp"}, {"kind": "mlp", "hidden": [5, 4]}, {"kind": "cnn"}]
)
def test_norms_of_layers_are_as_many_as_layers(model: dict[str, Any]) -> None:
    layers = layer_count(Model(**model))
    assert layers is not None
    for count in (layers - 1, layers, layers + 1):
        if count == 0:
            continue
        clip = {"kind": "update", "per_layer": [0.5] * count}
        spec = _spec(model, {"source": "digits"}, privacy={"clip": clip, "noise": {"multiplier": 1.0}})
        if count == layers:
            account(spec, observer="cloud")
            continue
        with pytest.raises(SpecError) as caught:
            account(spec, observer="cloud")
        assert caught.value.place == "privacy.clip.per_layer"
        assert caught.value.allowed == f"must list one norm for each of the {layers} layers"


def test_layers_of_a_model_of_ones_own_are_counted_by_the_run() -> None:
    clip = {"kind": "update", "per_layer": [0.5] * 9}
    privacy = {"clip": clip, "noise": {"multiplier": 1.0}}
    account(_spec({"kind": "package.module:make"}, {"source": "digits"}, privacy=privacy), observer="cloud")


def test_parameter_count_is_unknown_for_a_model_of_ones_own() -> None:
    assert parameter_count(_spec({"kind": "package.module:make"}, {"source": "fashion-mnist"})) is None


@pytest.mark.needs("hub")
def test_parameter_count_is_unknown_for_data_elsewhere() -> None:
    assert parameter_count(_spec({"kind": "softmax"}, {"source": "nowhere/at-all"})) is None


def test_parameter_count_of_synthetic_data_does_not_depend_on_their_number() -> None:
    few = _spec({"kind": "softmax"}, {"source": "synthetic", "examples_per_device": 3})
    many = _spec({"kind": "softmax"}, {"source": "synthetic", "examples_per_device": 300})
    assert parameter_count(few) == parameter_count(many) is not None
