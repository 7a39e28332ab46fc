"""Losses of one example each, by name or by a user's own function.

Every built-in loss has its gradient at the model's outputs in closed form, for `sequential`; a user's own is
differentiated by autograd. Losses of several outputs are means over the outputs, so that a step does not grow
with their number.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TypeAlias

import torch
from torch import Tensor
from torch.nn import functional

from sfumato.user_code import call_user_code, find_factory

_PLACE = "training.loss"

# A CPU computes a softmax over fewer classes up to five times as fast where those of an example lie apart.
_FEW_CLASSES = 16

PerExample: TypeAlias = Callable[[Tensor, Tensor], Tensor]
"""Losses ``[B]`` of outputs ``[B, ...]`` and targets ``[B, ...]``."""

WriteGradient: TypeAlias = Callable[[Tensor, Tensor, Tensor], None]
"""Writes the gradient of every example's loss at the outputs ``[n, B, K]``, given outputs and targets."""


@dataclass(frozen=True)
class Loss:
    """The loss of an example.

    Attributes:
        name: as in the spec.
        of_examples: see `PerExample`.
        write_gradient: see `WriteGradient`: called with outputs, targets and where to write; ``None`` for a
            loss that only autograd can follow.
    """

    name: str
    of_examples: PerExample
    write_gradient: WriteGradient | None = None


def _softmax_minus_one_hot(outputs: Tensor, labels: Tensor, out: Tensor) -> None:
    """Write the gradient of cross-entropy by ``outputs`` ``[n, B, classes]`` to ``out``, of that shape.

    ``labels``: ``[n, B]``.
    """
    if outputs.is_contiguous():
        torch.softmax(outputs, dim=2, out=out)
    else:  # by output, see `layers.Product`
        torch.softmax(outputs.mT, dim=1, out=out.mT)
    if out.is_cuda:  # where repeatable arithmetic sorts what is scattered
        out.sub_((labels.unsqueeze(2) == torch.arange(out.shape[2], device=out.device)).float())
    else:
        out.scatter_add_(2, labels.unsqueeze(2), out.new_full((), -1.0).expand(*out.shape[:2], 1))


def _sigmoid_minus_target(outputs: Tensor, targets: Tensor, out: Tensor) -> None:
    """Write the gradient of mean binary cross-entropy at ``outputs`` ``[n, B, K]`` to ``out``."""
    torch.sigmoid(outputs, out=out)
    out.sub_(targets).div_(out.shape[2])


def _twice_the_error(outputs: Tensor, targets: Tensor, out: Tensor) -> None:
    """Write ``2 (outputs - targets) / K`` to ``out``, all ``[n, B, K]``.

    That is the gradient of an example's squared error, which is a mean over its K outputs, at the outputs.
    """
    torch.sub(outputs, targets, out=out)
    out.mul_(2 / out.shape[2])


def _clamped_error(outputs: Tensor, targets: Tensor, out: Tensor) -> None:
    """Write the gradient of mean Huber loss (δ = 1) at ``outputs`` ``[n, B, K]`` to ``out``."""
    torch.sub(outputs, targets, out=out)
    out.clamp_(-1, 1).div_(out.shape[2])


def _sign_of_error(outputs: Tensor, targets: Tensor, out: Tensor) -> None:
    """Write the gradient of mean absolute error at ``outputs`` ``[n, B, K]`` to ``out``."""
    torch.sub(outputs, targets, out=out)
    out.sign_().div_(out.shape[2])


def cross_entropies(outputs: Tensor, labels: Tensor) -> Tensor:
    """Cross-entropy of every example, ``[B]``, of logits ``[B, classes]`` and labels ``[B]``."""
    if outputs.shape[1] >= _FEW_CLASSES or outputs.is_cuda:
        return functional.cross_entropy(outputs, labels, reduction="none")
    return functional.cross_entropy(outputs.mT.unsqueeze(0), labels.unsqueeze(0), reduction="none")[0]


def _next_token_loss(outputs: Tensor, tokens: Tensor) -> Tensor:
    """Mean cross-entropy of tokens 2 to T, each predicted from those before it, of every example, ``[B]``.

    ``outputs``: logits ``[B, T, tokens of the vocabulary]``; ``tokens``: ``[B, T]``.
    """
    predicted = outputs[:, :-1].flatten(0, 1)
    found = functional.cross_entropy(predicted, tokens[:, 1:].flatten(), reduction="none")
    return found.view(len(tokens), -1).mean(dim=1)


def _mean_over_outputs(loss: Callable[..., Tensor]) -> PerExample:
    """Make a function that gives the mean of ``loss`` over the outputs of each example, ``[B]``.

    ``loss`` takes outputs and targets ``[B, ...]`` and ``reduction="none"``, as those of torch.nn.functional.
    """

    def of_examples(outputs: Tensor, targets: Tensor) -> Tensor:
        found: Tensor = loss(outputs, targets, reduction="none")
        return found.flatten(1).mean(dim=1)

    return of_examples


CROSS_ENTROPY = Loss("cross-entropy", cross_entropies, _softmax_minus_one_hot)
NEXT_TOKEN = Loss("cross-entropy", _next_token_loss)
_OF_NUMBERS = (
    Loss("squared-error", _mean_over_outputs(functional.mse_loss), _twice_the_error),
    Loss("absolute-error", _mean_over_outputs(functional.l1_loss), _sign_of_error),
    Loss("huber", _mean_over_outputs(functional.huber_loss), _clamped_error),
)
_OF_LABEL_SETS = Loss(
    "binary-cross-entropy",
    _mean_over_outputs(functional.binary_cross_entropy_with_logits),
    _sigmoid_minus_target,
)

BUILT_IN: Mapping[str, tuple[Loss, ...]] = {
    "classification": (CROSS_ENTROPY,),
    "regression": _OF_NUMBERS,
    "multi-label": (_OF_LABEL_SETS,),
    "next-token": (NEXT_TOKEN,),
}
"""Those that `sfumato.spec.model.LOSSES` names, by task; the first is the default."""


def loss_of(task: str, name: str | None) -> Loss:
    """The loss of every example that a spec names.

    Args:
        task: ``data.task``.
        name: ``training.loss``, checked by the spec: a built-in name, or ``package.module:function``, a
            function of outputs ``[B, ...]`` and targets ``[B, ...]`` that returns the loss of every example,
            ``[B]``. ``None``: the usual one of the task.

    Raises:
        SpecError: the function cannot be imported.
    """
    if name is None:
        return BUILT_IN[task][0]
    for known in BUILT_IN[task]:
        if known.name == name:
            return known
    function = find_factory(_PLACE, name)

    def of_examples(outputs: Tensor, targets: Tensor) -> Tensor:
        found = function(outputs, targets)
        if not isinstance(found, Tensor) or found.shape != outputs.shape[:1]:
            got = tuple(found.shape) if isinstance(found, Tensor) else type(found).__name__
            raise ValueError(f"must return the loss of every example, [{len(outputs)}], not {got}")
        return found

    return Loss(name, of_examples)


def check_loss(loss: Loss, outputs: Tensor, targets: Tensor) -> None:
    """Refuse a user's own loss that fails on the given outputs; a built-in loss is not tried.

    Args:
        loss: to try.
        outputs: of the model for some examples, ``[B, ...]``.
        targets: of these examples, ``[B, ...]``.

    Raises:
        SpecError: it fails, or returns something else than one number an example.
    """
    if ":" in loss.name:
        call_user_code(_PLACE, loss.name, "the loss failed", lambda: loss.of_examples(outputs, targets))
