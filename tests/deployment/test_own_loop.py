"""A device that trains with a loop of its owner's: its figures hold whatever the loop returns."""

from __future__ import annotations

import os
import signal
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from deployed_parties import NO_BATCHES, Stage, staged
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from rehearsals import STAR, TREE, rehearsed, spec_of
from torch import nn
from torch.nn.functional import cross_entropy
from torch.utils.data import TensorDataset

from sfumato.deployment.messages import RoundPosition
from sfumato.deployment.own_loop import LoopTask, OwnLoop, made_up_rows
from sfumato.errors import SpecError
from sfumato.interrupts import interrupted_by
from sfumato.run_folder.reader import MODEL_FILE

pytestmark = pytest.mark.usefixtures("no_report")

FIRST = RoundPosition(0, 0)


def plain_sgd(model: nn.Module, rows: TensorDataset, task: LoopTask) -> nn.Module:
    """What Sfumato's engine does with all rows in every batch."""
    features, labels = rows.tensors
    optimizer = torch.optim.SGD(model.parameters(), lr=task.learning_rate)
    for _ in range(task.local_steps or 0):
        optimizer.zero_grad()
        cross_entropy(model(features), labels).backward()
        optimizer.step()
    return model


def adding(value: float) -> Any:
    """A loop that adds a number to every parameter."""

    def train(model: nn.Module, rows: TensorDataset, task: LoopTask) -> dict[str, torch.Tensor]:
        return {name: parameter.detach() + value for name, parameter in model.named_parameters()}

    return train


def message(stage: Stage, loop: Any) -> np.ndarray[Any, Any]:
    """What device 0 would send before noise, in round 1, from a model of zeros."""
    stage.loop = OwnLoop.given(loop)
    return stage.data(0).message(FIRST, np.zeros(stage.terms.parameters, np.float32), NO_BATCHES)


@pytest.mark.parametrize("value", [1e-4, 3.0, -1e15])
def test_what_a_loop_returns_is_clipped(value: float, tmp_path: Path) -> None:
    with staged(STAR, tmp_path) as stage:
        sent = message(stage, adding(value)).astype(float)
        length = abs(value) * np.sqrt(len(sent))
        assert np.linalg.norm(sent) <= 1.0
        assert sent == pytest.approx(np.full(len(sent), value * min(1, 1 / length)), rel=1e-4)
        assert stage.told == []


class SilentError(Exception):
    """An error without a message."""

    def __str__(self) -> str:
        raise ValueError("no message")


def _fails_with(error: BaseException) -> Any:
    def train(model: nn.Module, rows: TensorDataset, task: LoopTask) -> nn.Module:
        if task.is_trial:
            return model
        raise error

    return train


def _fails_elsewhere(model: nn.Module, rows: TensorDataset, task: LoopTask) -> nn.Module:
    """It leaves another default device."""
    if not task.is_trial:
        torch.set_default_device("meta")
        raise ValueError("not here")
    return model


@pytest.mark.parametrize(
    ("loop", "said"),
    [
        (_fails_with(SilentError()), "SilentError"),
        (_fails_with(KeyboardInterrupt()), "it raised KeyboardInterrupt"),
        (_fails_with(ValueError("\ud800")), "ValueError"),
        (_fails_elsewhere, "not here"),
    ],
    ids=["no message", "interrupt of its own", "half a character", "another device"],
)
def test_no_failure_ends_the_party(loop: Any, said: str, tmp_path: Path) -> None:
    """That it ends would tell of the rows."""
    with staged(STAR, tmp_path) as stage, interrupted_by(signal.SIGTERM):
        try:
            assert not message(stage, loop).any()
        finally:
            torch.set_default_device(None)
        (told,) = stage.told
        assert said in told


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf, 1e30])
def test_what_has_no_length_is_sent_as_zeros_and_only_the_owner_is_told(value: float, tmp_path: Path) -> None:
    with staged(STAR, tmp_path) as stage:
        assert not message(stage, adding(value)).any()
        (told,) = stage.told
        assert told.startswith(
            "device:0, round 1, aggregation 1: an update of zeros is sent, with its noise: "
        )
        assert told.endswith("the loop returned a model that is not finite")


def test_every_message_is_within_its_bound_whatever_is_returned(tmp_path: Path) -> None:
    """Per layer, which is the narrower clip: the bound of the account is that of all layers."""
    clip = {"kind": "update", "per_layer": [0.5, 0.25]}
    document = STAR | {
        "model": {"kind": "mlp", "hidden": [2]},
        "privacy": {"clip": clip, "noise": {"multiplier": 1.0}},
    }
    with staged(document, tmp_path) as stage:
        returned: dict[str, Any] = {}
        stage.loop = OwnLoop.given(lambda model, rows, task: returned or model)
        data, layout = stage.data(0), stage.data(0)._own._layout  # type: ignore[union-attr]
        start = np.zeros(layout.total, np.float32)

        @settings(max_examples=40, deadline=None)
        @given(arrays(np.float64, layout.total, elements=st.floats(width=64)))
        def holds(vector: np.ndarray[Any, Any]) -> None:
            with np.errstate(over="ignore"):
                returned.update({k: v.numpy() for k, v in layout.unflatten(torch.tensor(vector)).items()})
                sent = data.message(FIRST, start, NO_BATCHES).astype(float)
            for most, (begin, end) in zip((0.5, 0.25), layout.layer_spans, strict=True):
                assert np.linalg.norm(sent[begin:end]) <= most

        holds()


@pytest.mark.parametrize("document", [STAR, TREE], ids=["star", "edges that average in a round"])
def test_a_loop_that_does_what_the_engine_does_trains_the_same_model(
    document: dict[str, Any], tmp_path: Path
) -> None:
    """With the same noise, to the rounding of float32: start, steps, rate, rows and sign are the spec's."""
    rate = {"kind": "step", "initial": 0.1, "decay": 0.5, "every": 1}
    document = document | {"training": document["training"] | {"batch_size": "all", "learning_rate": rate}}
    models = []
    for name, loop in (("engine", {}), ("loop", {"loop": plain_sgd})):
        (tmp_path / name).mkdir()
        folder = rehearsed(spec_of(document), tmp_path / name, **loop)
        models.append(torch.load(folder.path / MODEL_FILE, weights_only=True))
    ours, own = models
    assert all(torch.allclose(ours[key], own[key], rtol=0, atol=1e-6) for key in ours)


RECORDS = {"unit": "record", "clip": {"kind": "update", "norm": 1.0}, "noise": {"multiplier": 1.0}}
EXAMPLES = {"unit": "record", "clip": {"kind": "example", "norm": 1.0}, "noise": {"multiplier": 1.0}}
STEPS = {"clip": {"kind": "step", "norm": 1.0}, "noise": {"multiplier": 1.0}}
POISSON = STAR["training"] | {"batches": "poisson", "local_steps": 1}


@pytest.mark.parametrize(
    ("changes", "key"),
    [
        ({"privacy": RECORDS}, "privacy.unit: got 'record'; must be device"),
        ({"privacy": RECORDS | {"unit": "both"}}, "privacy.unit: got 'both'; must be device"),
        ({"privacy": EXAMPLES, "training": POISSON}, "privacy.unit: got 'record'; must be device"),
        ({"privacy": STEPS}, "privacy.clip.kind: got 'step'; must be update"),
        ({"training": POISSON}, "training.batches: got 'poisson'; must be shuffled"),
    ],
)
def test_what_needs_training_of_ours_is_refused(changes: dict[str, Any], key: str, tmp_path: Path) -> None:
    with pytest.raises(SpecError) as caught:
        rehearsed(spec_of(STAR | changes), tmp_path, simulated=False, loop=plain_sgd)
    assert str(caught.value).startswith(key)


def nothing(model: nn.Module, rows: TensorDataset, task: LoopTask) -> None:
    """Forgets to return the model."""


def transposed(model: nn.Module, rows: TensorDataset, task: LoopTask) -> dict[str, torch.Tensor]:
    return {
        name: parameter.mT if parameter.ndim > 1 else parameter
        for name, parameter in model.named_parameters()
    }


def renamed(model: nn.Module, rows: TensorDataset, task: LoopTask) -> dict[str, torch.Tensor]:
    return {f"net.{name}": parameter for name, parameter in model.named_parameters()}


def broken(model: nn.Module, rows: TensorDataset, task: LoopTask) -> nn.Module:
    raise RuntimeError("no GPU\nhere")


def ending(model: nn.Module, rows: TensorDataset, task: LoopTask) -> nn.Module:
    raise SystemExit(0)


@pytest.mark.parametrize(
    ("loop", "said"),
    [
        (
            nothing,
            "got 'nothing'; the loop must return the model that it trained, or its parameters by name:",
        ),
        (nothing, "ValueError: it returned NoneType"),
        (transposed, "1.weight is [16, 10] and must be [10, 16]"),
        (renamed, "there is no 1.weight; there are net.1.weight, net.1.bias"),
        (broken, "got 'broken'; the loop failed: RuntimeError: no GPU here ("),
        (broken, f"{Path(__file__).name}, line {broken.__code__.co_firstlineno + 1}, in broken)"),
        (ending, "got 'ending'; the loop failed: it ended the program (SystemExit: 0)"),
        (3, "loop: got 3; must be a function of a model, rows and a task"),
    ],
)
def test_a_loop_that_fails_on_made_up_rows_is_refused(loop: Any, said: str, tmp_path: Path) -> None:
    with pytest.raises(SpecError) as caught:
        rehearsed(spec_of(STAR), tmp_path, simulated=False, loop=loop)
    assert said in str(caught.value)
    assert str(caught.value).startswith("loop: got ")
    assert len(str(caught.value).splitlines()) == 1


def test_a_loop_that_fails_on_rows_sends_zeros_with_noise(tmp_path: Path) -> None:
    """No refusal tells of the data: the parent gets an answer like any, and the owner a line."""

    def fails(model: nn.Module, rows: TensorDataset, task: LoopTask) -> nn.Module:
        if task.is_trial:
            return model
        raise ValueError(f"row {float(rows.tensors[0].sum())}")

    with staged(STAR, tmp_path) as stage:
        stage.loop = OwnLoop.given(fails)
        released, _ = stage.play(np.zeros(stage.terms.parameters, np.float32))
        assert np.isfinite(released).all()
        assert released.any()  # noise
        assert [told.partition(",")[0] for told in sorted(stage.told)] == ["device:0", "device:1", "device:2"]
        assert "the loop failed: ValueError: row " in stage.told[0]


def test_a_loop_runs_once_for_an_answer_that_left(tmp_path: Path) -> None:
    """A restarted party sends the recorded bytes; one that ended before it recorded any runs it again."""
    seen: list[tuple[int, bool]] = []

    def counted(model: nn.Module, rows: TensorDataset, task: LoopTask) -> nn.Module:
        seen.append((task.round, task.is_trial))
        return model

    with staged(STAR, tmp_path) as stage:
        stage.loop = OwnLoop.given(counted)
        question = stage.cloud().ask(0, np.zeros(stage.terms.parameters, np.float32))[0]
        answers = stage.device(0).receive(question)
        assert stage.device(0).receive(question) == answers
        stage.restart(0)
        assert stage.device(0).receive(question) == answers
        assert [trial for _, trial in seen] == [True, False, True]
        stage.forget_last(0)
        stage.running.pop(0)
        assert stage.device(0).number == 0
        assert [trial for _, trial in seen] == [True, False, True, True]


def test_a_party_that_is_ended_while_its_loop_runs_sends_nothing(tmp_path: Path) -> None:
    """Whatever the loop makes of the signal: otherwise zeros would be the answer of that round for ever."""

    def deaf(model: nn.Module, rows: TensorDataset, task: LoopTask) -> nn.Module:
        if not task.is_trial:
            with suppress(KeyboardInterrupt):
                os.kill(os.getpid(), signal.SIGTERM)
            raise RuntimeError("a worker was killed")
        return model

    with staged(STAR, tmp_path) as stage:
        stage.loop = OwnLoop.given(deaf)
        question = stage.cloud().ask(0, np.zeros(stage.terms.parameters, np.float32))[0]
        device = stage.device(0)
        with interrupted_by(signal.SIGTERM), pytest.raises(KeyboardInterrupt):
            device.receive(question)
        assert stage.memory(0).last(stage.terms.session) is None
        assert stage.told == []


def test_a_trial_sees_no_row() -> None:
    rows = TensorDataset(torch.full((5, 2), 7.0), torch.full((5,), 3))
    features, labels = made_up_rows(rows, 3).tensors
    assert features.shape == (5, 2)
    assert labels.tolist() == [0, 1, 2, 0, 1]
    others = made_up_rows(TensorDataset(torch.zeros(5, 2), torch.zeros(5, dtype=torch.int64)), 3).tensors
    assert torch.equal(features, others[0])
    assert torch.equal(labels, others[1])


def test_its_owner_reads_that_its_loop_trains(tmp_path: Path) -> None:
    words: list[str] = []
    rehearsed(spec_of(STAR), tmp_path, simulated=False, loop=plain_sgd, on_words=words.append)
    assert (
        "device:0 trains with its owner's own loop, plain_sgd: whatever it returns, what is sent is clipped,"
        in (" ".join(words))
    )
