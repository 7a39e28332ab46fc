from __future__ import annotations

import pytest
import torch

from sfumato.errors import SpecError
from sfumato.learning.models import build_model
from sfumato.learning.parameters import ParameterLayout

FMNIST, CIFAR, DIGITS = (1, 28, 28), (3, 32, 32), (1, 8, 8)


@pytest.mark.parametrize(
    ("kind", "shape", "classes", "options", "parameters"),
    [
        ("softmax", FMNIST, 10, {}, 7_850),
        ("softmax", FMNIST, 10, {"bias": False}, 7_840),
        ("softmax", (20,), 3, {}, 63),
        ("mlp", FMNIST, 10, {"hidden": 200}, 159_010),
        ("mlp", FMNIST, 10, {"hidden": [64, 32]}, 784 * 64 + 64 + 64 * 32 + 32 + 330),
        ("cnn-small", FMNIST, 10, {}, 28_938),
        ("cnn", FMNIST, 10, {}, 1_663_370),
        ("resnet18", FMNIST, 62, {}, 11_199_486),
        ("resnet18", CIFAR, 10, {}, 11_173_962),
        ("vgg11", CIFAR, 10, {}, 9_756_426),
        ("vgg11", FMNIST, 62, {}, 9_781_950),
        ("vgg11", CIFAR, 10, {"norm": "none"}, 9_750_922),  # as PFELS states
    ],
)
def test_parameter_counts(
    kind: str, shape: tuple[int, ...], classes: int, options: dict[str, object], parameters: int
) -> None:
    model = build_model(kind, shape=shape, classes=classes, seed=0, **options)
    assert ParameterLayout.of(model).total == parameters


@pytest.mark.parametrize("kind", ["softmax", "mlp", "cnn-small", "user_models:hand_made"])
def test_the_seed_decides_and_the_global_generator_is_left_alone(kind: str) -> None:
    state = torch.get_rng_state()
    vectors = []
    for seed in (1, 1, 2):
        model = build_model(kind, shape=DIGITS, classes=10, seed=seed)
        vectors.append(ParameterLayout.of(model).read(model))
    assert torch.equal(vectors[0], vectors[1])
    assert not torch.equal(vectors[0], vectors[2])
    assert torch.equal(torch.get_rng_state(), state)


@pytest.mark.parametrize(
    "name", ["plain", "sized", "anything", "dropout", "no_dropout", "stateless_instance_norm", "hand_made"]
)
def test_takes_a_users_factory(name: str) -> None:
    model = build_model(f"user_models:{name}", shape=DIGITS, classes=10, seed=0)
    assert model(torch.zeros(2, *DIGITS)).shape == (2, 10)


@pytest.mark.parametrize(
    ("name", "reason"),
    [
        ("batch_norm", "batch statistics"),
        ("stateless_batch_norm", "batch statistics"),
        ("instance_norm", "batch statistics"),
        ("noisy", "random numbers"),
        ("frozen", "no trainable parameters"),
        ("wrong_classes", r"not to \[3, 7\]"),
        ("broken", "no weights"),
        (
            "ends_the_program",
            r"the factory failed: it ended the program \(SystemExit: 0\) \(.*user_models.py",
        ),
        ("raises_its_own", r"OwnError: no weights today \(.*user_models.py, line \d+, in raises_its_own\)"),
        ("ends_in_its_forward_pass", r"it ended the program \(SystemExit\) \(.*, in forward\)"),
        ("breaks_in_its_forward_pass", r"KeyError: .*, in forward\)"),
        ("not_a_module", "not int"),
        ("NOT_CALLABLE", "callable"),
        ("missing", "has no missing"),
    ],
)
def test_refuses_a_users_factory(name: str, reason: str) -> None:
    with pytest.raises(SpecError, match=reason) as refusal:
        build_model(f"user_models:{name}", shape=DIGITS, classes=10, seed=0)
    assert refusal.value.place == "model.kind"


@pytest.mark.parametrize("name", ["layers", "channels", "shared", "time_first", "transformer_without_inner"])
def test_takes_layers_of_dropout_and_applies_none_outside_of_training(name: str) -> None:
    model = build_model(f"dropout_models:{name}", shape=DIGITS, classes=10, seed=0)
    x, state = torch.ones(3, *DIGITS), torch.get_rng_state()
    assert torch.equal(model(x.clone()), model(x.clone()))
    assert torch.equal(torch.get_rng_state(), state)


@pytest.mark.parametrize(
    ("name", "reason"),
    [
        ("function", "its forward pass draws random numbers .* write dropout as layers of their own"),
        ("transformer", "its forward pass draws .* self_attn.dropout = 0.0"),
        ("alpha", r"^(?s:.*)1 draws random numbers that follow from no seed; write dropout as layers"),
        ("subclass", "draws random numbers"),
        ("hooked", "draws random numbers"),
        ("of_weights", r"a tensor of shape \[10, 64\] for a batch of 2; one axis must count the examples"),
        ("of_all_together", r"a tensor of shape \[128\] for a batch of 2"),
        ("wrong_rank", "Dropout2d needs inputs of 4 dimensions here, not of 2"),
    ],
)
def test_refuses_dropout_without_masks_for_every_example(name: str, reason: str) -> None:
    with pytest.raises(SpecError, match=reason) as refusal:
        build_model(f"dropout_models:{name}", shape=DIGITS, classes=10, seed=0)
    assert refusal.value.place == "model.kind"
    assert refusal.value.value == f"dropout_models:{name}"


@pytest.mark.parametrize(
    ("kind", "shape", "reason"),
    [
        ("transformer", FMNIST, "must be one of softmax"),
        ("no_such_package.nets:make", FMNIST, "cannot be imported"),
        (":make", FMNIST, "cannot be imported"),
        ("sys:exit", FMNIST, r"the factory failed: it ended the program \(SystemExit\)$"),
        ("os:_exit", FMNIST, "the factory failed: TypeError"),
        ("builtins:quit", FMNIST, "the factory failed: it ended the program"),
        ("user_models_that_end:make", FMNIST, r"cannot be imported: it ended the program .*_end.py, line 3"),
        ("cnn-small", (20,), "needs images"),
        ("cnn", (1, 3, 3), "at least 4 x 4"),
        ("resnet18", (1, 4, 4), "at least 8 x 8"),
        ("vgg11", DIGITS, "at least 17 x 17"),
    ],
)
def test_refuses_what_it_cannot_build(kind: str, shape: tuple[int, ...], reason: str) -> None:
    with pytest.raises(SpecError, match=reason) as refusal:
        build_model(kind, shape=shape, classes=10, seed=0)
    assert refusal.value.place == "model.kind"


def test_a_users_model_that_takes_other_examples_is_refused() -> None:
    with pytest.raises(SpecError, match="does not take examples of shape"):
        build_model("user_models:plain", shape=FMNIST, classes=10, seed=0)
