"""Adam and weight decay at local steps: where the account rests on plain steps they are refused."""

from __future__ import annotations

import copy
import math
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor
from tree_worlds import Library, spec_of

from sfumato.accounting import account
from sfumato.engine.base import EngineSettings, LocalTask
from sfumato.engine.local import LocalEngine
from sfumato.errors import EnvelopeError, SpecError
from sfumato.learning.batches import BatchPlan
from sfumato.learning.local_training import AdamMoments, LocalSGD
from sfumato.learning.models import build_model
from sfumato.learning.parameters import ParameterLayout
from sfumato.schedule.local_steps import momentum_gain
from sfumato.spec import document
from sfumato.spec.document import Spec
from sfumato.verify.spec_facts import optimizer_problems

TRAINING = {"rounds": 2, "local_steps": 3, "batch_size": 4, "learning_rate": 0.3}
ADAM, DECAY = {"optimizer": "adam"}, {"weight_decay": 0.5}
STEP = {"clip": {"kind": "step", "norm": 1.0}, "noise": {"multiplier": 2.0}}
UPDATE = STEP | {"clip": {"kind": "update", "norm": 1.0}}
EXAMPLE = {"clip": {"kind": "example", "norm": 1.0}, "noise": {"multiplier": 2.0}, "unit": "record"}
AT_STEP = EXAMPLE | {"noise": {"multiplier": 2.0, "at": "step"}}
POISSON = {"batches": "poisson"}
GROUPS = {
    "protocol": "dp-ogl",
    "topology": {"kind": "groups", "structure": "ring", "groups": 3, "devices": 6},
    "trust": {"trusted_aggregators": 1.0},
}
SECURE = {
    "protocol": "dp-fedavg",
    "topology": {"kind": "star", "devices": 6},
    "transport": {"devices_to_cloud": "secure-aggregation"},
}
CONTROL = {"control": {"smoothness": 1.0}}
BOTH = (ADAM, DECAY)


def of(training: dict[str, Any], **sections: Any) -> Spec:
    return spec_of(**sections, training=TRAINING | training)


REFUSED: dict[str, tuple[dict[str, Any], dict[str, Any], str]] = {
    "adam, steps": ({"privacy": STEP}, ADAM, "a clip of steps bounds gradients"),
    "adam, steps, no noise": (
        {"privacy": STEP | {"noise": "none"}},
        ADAM,
        "a clip of steps bounds gradients",
    ),
    "decay, steps": ({"privacy": STEP}, DECAY, "a part of the model that it starts from"),
    "adam, examples": ({"privacy": EXAMPLE}, ADAM | POISSON, "may turn a whole step of Adam"),
    "adam, examples in groups": (GROUPS | {"privacy": EXAMPLE}, ADAM | POISSON, "may turn a whole step"),
    "decay, examples in groups": (GROUPS | {"privacy": EXAMPLE}, DECAY | POISSON, "models that nobody sees"),
    **{
        f"{next(iter(which))}, {name}": (sections, which | more, said)
        for which in BOTH
        for name, sections, more, said in (
            ("masked examples", SECURE | {"privacy": EXAMPLE}, POISSON, r"by their gradients|a whole step"),
            ("masked noise", SECURE | {"privacy": AT_STEP}, POISSON, "bounded by their gradients"),
            ("scaffold", {}, {"drift_correction": "scaffold"}, "follow from plain steps"),
            ("control", CONTROL, {}, "by a theorem on plain steps"),
        )
    },
}


@pytest.mark.parametrize("name", REFUSED)
def test_what_is_not_derived_is_refused(name: str) -> None:
    sections, training, reason = REFUSED[name]
    with pytest.raises((SpecError, ValueError), match=reason):
        of(training, **sections)


ALLOWED: dict[str, tuple[dict[str, Any], dict[str, Any]]] = {
    "updates": ({}, ADAM | DECAY),
    "updates, proximal": ({}, ADAM | DECAY | {"drift_correction": {"kind": "fedprox", "mu": 1.0}}),
    "updates of records": ({"privacy": UPDATE | {"unit": "record"}}, ADAM | POISSON),
    "updates in groups": (GROUPS | {"privacy": UPDATE}, ADAM | DECAY),
    "masked updates": (SECURE, ADAM | DECAY),
    "decay, examples": ({"privacy": EXAMPLE}, DECAY | POISSON),
    "noise at steps": ({"privacy": AT_STEP}, ADAM | DECAY | POISSON),
    "noise at steps, proximal": (
        {"privacy": AT_STEP}, ADAM | DECAY | POISSON | {"drift_correction": {"kind": "fedprox", "mu": 1.0}}
    ),
    "noise at steps in groups": (GROUPS | {"privacy": AT_STEP}, ADAM | DECAY | POISSON),
    "over the air": (
        {
            "protocol": "pfels",
            "topology": {"kind": "star", "devices": 6},
            "privacy": {"clip": {"kind": "update", "norm": 1.0}, "noise": "none"},
        },
        ADAM | DECAY,
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", ALLOWED)
def test_what_is_allowed_has_the_guarantees_of_plain_steps(name: str) -> None:
    sections, training = ALLOWED[name]
    plain = {key: value for key, value in training.items() if key not in (*ADAM, *DECAY, "drift_correction")}
    found, expected = (account(of(which, **sections)).guarantees for which in (training, plain))
    assert [(g.unit, g.observer, g.epsilon) for g in found] == [
        (g.unit, g.observer, g.epsilon) for g in expected
    ]
    if name != "over the air":
        assert any(math.isfinite(g.epsilon) for g in found)


BOUNDS_BREAK = (
    "adam, steps",
    "decay, steps",
    "adam, examples",
    "adam, examples in groups",
    "decay, examples in groups",
    "optimizer, masked examples",
)


@pytest.mark.parametrize("name", [*REFUSED, *ALLOWED])
def test_verify_knows_what_the_account_refuses(name: str) -> None:
    """The checker, which shares no code, names the same settings where noise is counted."""
    sections, training, *_ = (REFUSED | ALLOWED)[name]
    plain = {key: value for key, value in training.items() if key not in (*ADAM, *DECAY)}
    spec = of(plain, **sections).model_dump(by_alias=True)
    spec["training"] |= training
    found = list(optimizer_problems(spec, in_tree="groups" not in name))
    assert bool(found) == (name in BOUNDS_BREAK)


def test_verify_wants_decay_to_shrink() -> None:
    spec = of(POISSON, privacy=EXAMPLE).model_dump(by_alias=True)
    for rate in (0.3, {"kind": "cosine", "initial": 0.1, "final": 0.3}):
        for decay, wrong in ((3.3, 0), (3.4, 1)):
            spec["training"] |= {"weight_decay": decay, "learning_rate": rate}
            assert len(list(optimizer_problems(spec, in_tree=True))) == wrong


@pytest.mark.parametrize("rate", [0.3, {"kind": "cosine", "initial": 0.1, "final": 0.3}])
def test_decay_that_turns_a_model_round_is_refused(rate: Any) -> None:
    assert of({"weight_decay": 3.3, "learning_rate": rate}).training.weight_decay == 3.3
    with pytest.raises(ValueError, match=r"at most 1 / learning_rate, 3\.33333"):
        of({"weight_decay": 3.4, "learning_rate": rate})


def test_momentum_is_of_sgd() -> None:
    with pytest.raises(ValueError, match="goes with optimizer: sgd; adam has beta1"):
        of(ADAM | {"momentum": 0.5})


# --- why: the bounds that the refused settings would break ---


SHAPE = (6,)


def message(sgd: LocalSGD, rows: list[list[int]], divisor: int | None, start: Tensor | None = None) -> Tensor:
    """The update of one device on batches of these rows."""
    rng = np.random.default_rng(3)
    features = torch.from_numpy(rng.standard_normal((12, *SHAPE), dtype=np.float32))
    labels = torch.from_numpy(rng.integers(0, 3, 12))
    model = build_model("softmax", shape=SHAPE, classes=3, seed=1)
    begin = ParameterLayout.of(model).read(model) if start is None else start
    width = max(1, *map(len, rows))
    padded = torch.tensor([[*row, *[0] * (width - len(row))] for row in rows], dtype=torch.int32)
    counts = torch.tensor([[len(row) for row in rows]], dtype=torch.int32)
    batches = BatchPlan(padded[None], counts, torch.tensor([len(rows)]), divisor)
    engine = LocalEngine(model, features, labels, EngineSettings("cpu", 1, 1 << 26))
    (chunk,) = engine.train(LocalTask(sgd), begin[None], torch.zeros(1, dtype=torch.int64), batches)
    return chunk.updates[0].double()


WITH, WITHOUT = [[0, 1, 2], [3, 4], [1, 5]], [[1, 2], [3, 4], [1, 5]]


@pytest.mark.parametrize("momentum", [0.0, 0.6])
def test_decay_takes_the_same_from_both_worlds(momentum: float) -> None:
    """A record that is drawn at the first of three steps; all start from one model, a long one."""
    start = 30 * torch.randn(21, generator=torch.Generator().manual_seed(0))
    sgd = LocalSGD(0.3, momentum, example_clip=0.1, weight_decay=2.0)
    for steps in (1, 3):
        moved = message(sgd, WITH[:steps], 3, start) - message(sgd, WITHOUT[:steps], 3, start)
        gain = [momentum_gain(left, momentum) for left in range(steps, -1, -1)]
        most = (gain[0] - gain[1]) + 2 * 2 * gain[1]  # two others may turn round in each later step
        assert 0 < float(moved.norm()) <= 0.3 * 0.1 / 3 * most
        assert float(message(sgd, WITH[:steps], 3, start).norm()) > 10  # what the decay sends


def test_one_clipped_example_moves_adam_by_more_than_is_charged() -> None:
    sgd = LocalSGD(0.3, example_clip=0.1, adam=AdamMoments())
    moved = message(sgd, WITH[:1], 3) - message(sgd, WITHOUT[:1], 3)
    assert float(moved.norm()) > 3 * 0.3 * 0.1 / 3


@pytest.mark.parametrize("optimizer", ["adam", "decay"])
def test_clipped_steps_bound_neither_adam_nor_decay(optimizer: str) -> None:
    """Three steps of gradients of at most 0.1 each; no device can be asked for Adam with clipped steps."""
    start = 30 * torch.randn(21, generator=torch.Generator().manual_seed(0))
    if optimizer == "adam":
        with pytest.raises(SpecError, match="clips of steps"):
            LocalSGD(0.3, step_clip=0.1, adam=AdamMoments())
        sgd = LocalSGD(0.3, example_clip=0.1, adam=AdamMoments())  # its gradients are as short
    else:
        sgd = LocalSGD(0.3, step_clip=0.1, weight_decay=2.0)
    assert float(message(sgd, WITH, None, start).norm()) > 5 * 3 * 0.3 * 0.1


@pytest.mark.parametrize("training", BOTH, ids=["adam", "decay"])
def test_a_build_that_accepts_them_with_clipped_steps_stops(
    training: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without the refusal, the run itself finds it: a step of Adam with such a clip, a message too long."""
    others = tuple(table for table in document.TABLES if table.__name__ != "_local_optimizer")
    assert len(others) == len(document.TABLES) - 1
    monkeypatch.setattr(document, "TABLES", others)
    clip = {"clip": {"kind": "step", "norm": 1e-3}, "noise": {"multiplier": 2.0}}
    library = Library(of(training, privacy=clip))
    with pytest.raises((SpecError, EnvelopeError), match=r"clips of steps|declared at most"):
        library.protocol.run_round(library.protocol.initial(copy.deepcopy(library.start)))
