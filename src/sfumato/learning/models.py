"""Models by name, and what a model must be like to train one copy a device."""

from __future__ import annotations

import inspect
import warnings
from collections.abc import Mapping, Sequence
from copy import deepcopy

import torch
from torch import Tensor, nn
from torch.func import functional_call, vmap
from torch.nn.modules.batchnorm import _NormBase

from sfumato.errors import SpecError
from sfumato.learning.architectures import BUILT_IN, Norm
from sfumato.learning.dropout import DropoutLayout, with_seeded_dropout
from sfumato.learning.given_model import given_model
from sfumato.learning.parameters import ParameterLayout
from sfumato.learning.partial_training import Trained, partly_trained
from sfumato.random import initialisation_seed
from sfumato.spec.limits import MAX_PARAMETERS
from sfumato.user_code import GIVEN, call_user_code, describe_error, find_factory

_PLACE = "model.kind"
_INSTEAD = (
    "write dropout as layers of their own (torch.nn.Dropout, Dropout1d, Dropout2d, Dropout3d), whose masks "
    "are drawn from the spec's seed, and give dropout=0 to layers that drop inside (nn.LSTM, "
    "nn.MultiheadAttention; of an nn.TransformerEncoderLayer set self_attn.dropout = 0.0)"
)


def build_model(
    kind: str,
    *,
    shape: tuple[int, ...],
    classes: int,
    seed: int,
    hidden: int | Sequence[int] = 200,
    bias: bool = True,
    norm: Norm = "group",
    trained: Trained = "all",
    rank: int = 4,
    vocabulary: int | None = None,
    every_token: bool = False,
) -> nn.Module:
    """Build and initialise a model; the same seed gives the same parameters.

    Args:
        kind: a built-in name, or ``"package.module:factory"``: a callable that returns a ``torch.nn.Module``
            and may take ``input_shape``, ``classes`` and ``vocabulary`` as keywords; or ``"python:TYPE"``, a
            copy of the module that was given in Python, with its parameters. The module maps ``[B, *shape]``
            to outputs ``[B, classes]``.
        shape: of one example, channels first, e.g. ``(1, 28, 28)``.
        classes: number of outputs: classes, targets, or tokens.
        seed: the run's seed; parameters come from its initialisation stream. The global generator is left as
            it was.
        hidden: mlp only: width of the hidden layer, or of each.
        bias: softmax only: with or without bias.
        norm: vgg11 only: with or without normalisation.
        trained: which part is trained; see `partly_trained`.
        rank: of adapters.
        vocabulary: examples are int64 token ids below it; without, they are float32.
        every_token: whether there are outputs for every token of an example, ``[B, T, classes]``.

    Raises:
        SpecError: an unknown kind, a factory that cannot be imported or called, a model that does not take
            such examples, keeps batch statistics, or draws random numbers.
    """
    with torch.random.fork_rng(devices=[]):
        # Not torch.manual_seed, which would also seed the CUDA generators that the fork leaves out.
        torch.default_generator.manual_seed(initialisation_seed(seed))
        if kind.startswith(GIVEN):
            model = deepcopy(given_model(kind))
        elif ":" in kind:
            tokens = {} if vocabulary is None else {"vocabulary": vocabulary}
            model = _from_factory(kind, {"input_shape": shape, "classes": classes, **tokens})
        elif kind in BUILT_IN:
            model = _built_in(kind, shape, classes, hidden, bias, norm)
        else:
            allowed = f"must be one of {', '.join(BUILT_IN)}, or package.module:factory"
            raise SpecError(_PLACE, kind, allowed)
        model = with_seeded_dropout(partly_trained(model.float().cpu(), trained, rank))
        examples = torch.zeros(3, *shape, dtype=torch.float32 if vocabulary is None else torch.int64)
        outputs = (3, *(shape if every_token else ()), classes)
        check_model(model, kind=kind, examples=examples, outputs=outputs)
    return model


def check_model(model: nn.Module, *, kind: str, examples: Tensor, outputs: tuple[int, ...]) -> None:
    """Refuse a model that cannot be trained one copy a device.

    Args:
        model: with its initial parameters.
        kind: as in the spec.
        examples: zeros, ``[B, ...]``.
        outputs: shape that the model must give for them.

    Raises:
        SpecError: it is too large, does not take such examples, gives another shape, keeps batch statistics,
            or draws random numbers that follow from no seed.
    """
    for name, module in model.named_modules():
        if isinstance(module, _NormBase) and (not _is_instance_norm(module) or module.track_running_stats):
            allowed = (
                f"{name or type(module).__name__} keeps batch statistics, which mix examples and leave a "
                "device outside the clipped update; use group or layer normalisation"
            )
            raise SpecError(_PLACE, kind, allowed)
        if isinstance(module, nn.modules.dropout._DropoutNd) and module.p > 0:
            allowed = (
                f"{name or type(module).__name__} draws random numbers that follow from no seed; {_INSTEAD}"
            )
            raise SpecError(_PLACE, kind, allowed)
    layout = ParameterLayout.of(model)
    if layout.total > MAX_PARAMETERS:
        raise SpecError(_PLACE, kind, f"has {layout.total:,} parameters; at most {MAX_PARAMETERS:,}")
    try:
        own = deepcopy(model)  # its forward pass may change what it keeps beside its parameters
        before = torch.default_generator.get_state()
        found = own(examples.clone())
        is_random = not torch.equal(torch.default_generator.get_state(), before) or _draws_under_vmap(
            own, examples
        )
        if not is_random:
            DropoutLayout.of(own, examples[:1])
    except KeyboardInterrupt:
        raise
    except SpecError as error:  # of dropout layers
        raise SpecError(_PLACE, kind, error.allowed) from error
    except BaseException as error:  # the model's own code may raise anything, even end the program
        raise SpecError(_PLACE, kind, _does_not_take(tuple(examples.shape[1:]), error)) from error
    if is_random:
        allowed = f"its forward pass draws random numbers that follow from no seed; {_INSTEAD}"
        raise SpecError(_PLACE, kind, allowed)
    if not isinstance(found, Tensor) or tuple(found.shape) != outputs:
        got = list(found.shape) if isinstance(found, Tensor) else type(found).__name__
        allowed = f"must map {list(examples.shape)} to logits {list(outputs)}, not to {got}"
        raise SpecError(_PLACE, kind, allowed)


def _draws_under_vmap(model: nn.Module, examples: Tensor) -> bool:
    """Whether the model draws random numbers as ``torch.func.vmap`` finds it, from its own generators too.

    ``examples``: any that the model takes, ``[B, ...]``.
    """
    layout = ParameterLayout.of(model)
    two = layout.unflatten(layout.read(model).repeat(2, 1))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)  # of operations that vmap follows slowly
        try:
            vmap(lambda parameters, x: functional_call(model, parameters, (x,)))(
                two, torch.stack([examples, examples])
            )
        except RuntimeError as error:
            return "randomness" in str(error)
    return False


def _does_not_take(shape: tuple[int, ...], error: BaseException) -> str:
    """The text that a model does not take examples of this shape, and why."""
    return f"the model does not take examples of shape {shape}: {describe_error(error)}"


def _is_instance_norm(module: nn.Module) -> bool:
    """Whether a module is one of torch's instance normalisations."""
    return isinstance(module, nn.modules.instancenorm._InstanceNorm)


def _built_in(
    kind: str, shape: tuple[int, ...], classes: int, hidden: int | Sequence[int], bias: bool, norm: Norm
) -> nn.Module:
    """Make a built-in model.

    Args:
        kind: its name.
        shape: of one example.
        classes: number of outputs.
        hidden: widths of an mlp's hidden layers; not used by others.
        bias: of softmax; not used by others.
        norm: of vgg11; not used by others.

    Raises:
        SpecError: it cannot take examples of this shape.
    """
    try:
        if kind == "softmax":
            return BUILT_IN[kind](shape, classes, bias=bias)
        if kind == "mlp":
            return BUILT_IN[kind](
                shape, classes, hidden=[hidden] if isinstance(hidden, int) else list(hidden)
            )
        if kind == "vgg11":
            return BUILT_IN[kind](shape, classes, norm=norm)
        return BUILT_IN[kind](shape, classes)
    except ValueError as error:
        raise SpecError(_PLACE, kind, _does_not_take(shape, error)) from error


def _from_factory(kind: str, known: Mapping[str, object]) -> nn.Module:
    """The module that the factory ``kind`` (``package.module:factory``) returns.

    It is given those of ``known`` that it accepts as keywords.

    Raises:
        SpecError: it cannot be imported, fails, or returns something else.
    """
    factory = find_factory(_PLACE, kind)

    def make() -> object:
        accepted = inspect.signature(factory).parameters
        takes_any = any(p.kind is p.VAR_KEYWORD for p in accepted.values())
        return factory(**{key: known[key] for key in known if takes_any or key in accepted})

    model = call_user_code(_PLACE, kind, "the factory failed", make)
    if not isinstance(model, nn.Module):
        raise SpecError(_PLACE, kind, f"must return a torch.nn.Module, not {type(model).__name__}")
    return model
