"""A training loop of the owner's own in the place of Sfumato's engine: a model goes in, a model comes out.

*Who chooses it.* The owner of a device, on its own machine: `loop` in its consent (`loop_code`). Nothing that
whoever deploys writes leads to code that a device runs.

*What it is.* A function ``train(model, rows, task)``. It is handed the model of the question, the device's
own rows and a `LoopTask`, and returns the trained model, or its trainable parameters by name.

*Why every ε of the device stands.* An ε of a device is about messages of which each is a vector of length at
most the bound b that the schedule declared, plus noise; what the vector is, and how it follows from the rows,
the models before and the device's own coins, is left open (composition is adaptive). So the loop is not
trusted with a figure: the update, returned minus received, is computed here, clipped to `privacy.clip` here,
looked at once more (`keep_within_`), rounded and noised as any. A loop that returns anything else is worth an
update of zeros, which is no longer than b either.

*What is refused, because it does not stand.* An ε of a record or a person follows from our clip of its
gradient, or from our draws of mini-batches, and the loop does neither. So the unit must be the device, the
clip one of updates, and mini-batches not drawn (`require_own_loop_fits`). The ledger books an ε of records in
every run: with shuffled mini-batches it is that of a device whose data are all replaced, which holds for any
loop.

*A loop that fails.* Whether it fails in a round may depend on the rows, and so would a refusal. So the device
sends zeros with its noise, as for an update that is not finite, and only its owner is told, in the party's
log. To find mistakes before that, the loop is tried when a party starts, on made-up rows of the same shapes
and with the run's first model: what fails there is refused with one line, and tells of no row.

*How often it runs.* An answer is recorded before it is sent, and is sent again, so for an answer that left
the loop ran once for its (run, round, aggregation). A party that ends before it recorded one runs it again,
also where the loop takes the signal that ends it for an error.

*What is assumed of it.* It sees the rows of its own device only: what it learned from another device would
be in a message that is charged to its own. It does not read the key, the memory, the ledger or the noise of
its party, as code that runs with its owner's rights could, and it sends nothing elsewhere. Nothing of it has
to be secret: neither its code, nor its state between rounds, nor the coins that it draws. Time is not
covered: how long it trains, that it never ends, or that it takes its process down with it (`os._exit`, no
memory, a crash of a library in C), may tell of the rows.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from copy import deepcopy
from dataclasses import dataclass
from functools import partial
from typing import Any, TypeAlias

import numpy as np
import torch
from torch import Tensor, nn
from torch.utils.data import TensorDataset

from sfumato.arguments import Argument, ErrorPlace
from sfumato.deployment.loop_code import LoopCode
from sfumato.deployment.messages import Model, RoundPosition
from sfumato.deployment.refusals import require_own_loop_fits
from sfumato.deployment.terms import DeploymentTerms
from sfumato.errors import SpecError, first_line
from sfumato.interrupts import may_come_from_signal, raise_lost_interrupt
from sfumato.learning.norms import row_norms
from sfumato.learning.parameters import ParameterLayout
from sfumato.protocols.tree.local_work import local_task
from sfumato.schedule.local_steps import learning_rate
from sfumato.spec.training import Training
from sfumato.user_code import call_user_code, describe_error


@dataclass(frozen=True)
class LoopTask:
    """What the spec asks a training loop to do; the loop may do otherwise.

    Attributes:
        party: the device: ``device:3``, or its name.
        round: from 0 on.
        aggregation: of the round, from 0 on; there are several where edges average within a round.
        local_steps: until this aggregation; ``None`` where the spec counts epochs (`training.local_epochs`).
        learning_rate: of this round.
        training: the section `training` of the spec: batch size, epochs, momentum, rounds.
        is_trial: whether the rows are made up: a try before the first round, whose result is thrown away.
    """

    party: str
    round: int
    aggregation: int
    local_steps: int | None
    learning_rate: float
    training: Training
    is_trial: bool


TrainingLoop: TypeAlias = Callable[[nn.Module, TensorDataset, LoopTask], nn.Module | Mapping[str, Any]]
"""Trains a model on rows: a data set of pairs (features, target). Returns the model, or its trainable
parameters by name, as tensors or arrays."""


@dataclass(frozen=True)
class OwnLoop:
    """A training loop of a device's owner.

    Attributes:
        train: the function.
        place: where the owner named it, for errors.
        named: how the owner named it.
        described: in words.
    """

    train: TrainingLoop
    place: ErrorPlace
    named: str
    described: str

    @classmethod
    def of(cls, code: LoopCode) -> OwnLoop:
        """The loop that a file defines. The file is executed to find it, which its owner has agreed to.

        Raises:
            SpecError: the code fails, or has no such function.
        """
        return cls(code.found(), code.place, code.named, code.described)

    @classmethod
    def given(cls, train: TrainingLoop) -> OwnLoop:
        """The loop that is the Python function ``train``.

        Raises:
            SpecError: it cannot be called.
        """
        place, named = Argument("loop"), getattr(train, "__qualname__", type(train).__name__)
        if not callable(train):
            raise SpecError(place, train, "must be a function of a model, rows and a task")
        return cls(train, place, named, named)

    def in_words(self, party: str) -> str:
        """A sentence on what the owner of a party agrees to by using this loop."""
        sends = "whatever it returns, what is sent is clipped, rounded and noised as said here"
        return f"{party} trains with its owner's own loop, {self.described}: {sends}."

    def trained(
        self, model: nn.Module, rows: TensorDataset, task: LoopTask, layout: ParameterLayout
    ) -> Tensor:
        """Run the loop; returns the trainable parameters, float32 ``[M]``, which may be not finite.

        Args:
            model: to start from; it may be changed.
            rows: of the device.
            task: what is asked.
            layout: of the model.

        Raises:
            SpecError: the loop raised an error, or returned something else than the model.
            KeyboardInterrupt: the party is to end; also if the loop caught that, or failed because of it.
        """
        place, named = str(self.place), self.named
        try:
            returned = call_user_code(place, named, "the loop failed", partial(self.train, model, rows, task))
        except KeyboardInterrupt as error:
            if may_come_from_signal():
                raise
            raise SpecError(place, named, "the loop failed: it raised KeyboardInterrupt") from error
        finally:
            raise_lost_interrupt()
        wrong = "the loop must return the model that it trained, or its parameters by name"
        return call_user_code(place, named, wrong, partial(_flat, returned, layout))


class LoopTraining:
    """The training of a device by a loop of its owner.

    Args:
        loop: of the owner.
        device: its number.
        terms: of the run.
        model: the initial one.
        rows: of the device.
        outputs: number of outputs of the model.
        say: called with a sentence when the loop fails.

    Raises:
        SpecError: the spec's protection needs Sfumato's own training, or the loop fails on made-up rows.
    """

    def __init__(
        self,
        loop: OwnLoop,
        device: int,
        terms: DeploymentTerms,
        model: nn.Module,
        rows: TensorDataset,
        outputs: int,
        say: Callable[[str], object],
    ) -> None:
        require_own_loop_fits(terms.plan.spec)
        self._loop, self._terms, self._party, self._say = loop, terms, terms.name(device), say
        self._model, self._rows, self._layout = model, rows, ParameterLayout.of(model)
        clip = local_task(terms.plan.spec, 0).clip_of(self._layout)
        assert clip is not None  # what is refused sees to it
        self._clip = clip
        if len(rows):
            made_up = made_up_rows(rows, terms.plan.spec.data.vocabulary or outputs)
            task = self._task(RoundPosition(0, 0), is_trial=True)
            loop.trained(deepcopy(model), made_up, task, self._layout)

    def update(self, start: Model, position: RoundPosition) -> Tensor:
        """The clipped update ``[1, M]``; zeros where the loop fails, or what it returns is not finite.

        Args:
            start: the model to start from ``[M]``.
            position: of the aggregation.
        """
        before = torch.from_numpy(start)
        model = deepcopy(self._model)
        self._layout.write(before, model)
        try:
            after = self._loop.trained(model, self._rows, self._task(position), self._layout)
            update = (after - before)[None]
            if not bool(row_norms(update).isfinite().all()):
                wrong = "the loop returned a model that is not finite"
                raise SpecError(self._loop.place, self._loop.named, wrong)
            return self._clip.clip_(update).vectors
        except Exception as error:  # a refusal would tell whether it failed; only the owner is told
            problem = first_line(error) if isinstance(error, SpecError) else describe_error(error)
        self._say(f"{self._party}, {position}: an update of zeros is sent, with its noise: {problem}")
        return torch.zeros_like(before)[None]  # wherever the loop left new tensors to be made

    def _task(self, position: RoundPosition, *, is_trial: bool = False) -> LoopTask:
        """What the owner's loop is asked to do at ``position``: steps, step size, training section."""
        plan = self._terms.plan
        training = plan.spec.training
        steps = (
            None if training.local_epochs is not None else plan.aggregations[position.aggregation].local_steps
        )
        rate = learning_rate(training, position.round)
        return LoopTask(self._party, position.round, position.aggregation, steps, rate, training, is_trial)


def made_up_rows(rows: TensorDataset, kinds: int) -> TensorDataset:
    """Made-up rows of the same number, shapes and types, which tell nothing else of ``rows``.

    Args:
        rows: of a device.
        kinds: number of labels or tokens: whole numbers go from 0 to ``kinds`` - 1.
    """
    return TensorDataset(*(_made_up(tensor, kinds) for tensor in rows.tensors))


def _made_up(like: Tensor, kinds: int) -> Tensor:
    if like.is_floating_point():
        return torch.linspace(0, 1, like.numel(), dtype=like.dtype).reshape(like.shape)
    return (torch.arange(like.numel()) % kinds).to(like.dtype).reshape(like.shape)


def _flat(returned: object, layout: ParameterLayout) -> Tensor:
    """The trainable parameters of what a loop returned, float32 ``[M]``.

    Raises:
        ValueError: it is something else.
    """
    if isinstance(returned, nn.Module):
        returned = dict(returned.named_parameters())
    if not isinstance(returned, Mapping):
        raise ValueError(f"it returned {type(returned).__name__}")
    found = []
    for name, shape in zip(layout.names, layout.shapes, strict=True):
        if name not in returned:
            raise ValueError(f"there is no {name}; there are {', '.join(map(str, returned))}")
        value = returned[name]
        tensor = value.detach().cpu() if isinstance(value, Tensor) else torch.from_numpy(np.array(value))
        if tuple(tensor.shape) != shape:
            raise ValueError(f"{name} is {list(tensor.shape)} and must be {list(shape)}")
        found.append(tensor.to(torch.float32).reshape(-1))
    return torch.cat(found)
