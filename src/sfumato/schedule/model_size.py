"""How many parameters and layers a built-in model has, by arithmetic: the schedule never builds one."""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import pairwise

from sfumato.data.builtin_datasets import BUILT_IN
from sfumato.data.dataset_sizes import dataset_facts
from sfumato.errors import DataError, SpecError
from sfumato.spec.document import Spec
from sfumato.spec.limits import MAX_PARAMETERS
from sfumato.spec.model import Model

Shape = tuple[int, ...]


def parameter_count(spec: Spec) -> int | None:
    """M, the number of trained parameters of the spec's model; ``None`` if only building it can tell.

    That is a model of the user's own, one of which a part is trained, or data whose shape is neither
    tabulated nor on this machine.
    """
    if spec.model.trained != "all":
        return None
    known = None if ":" in spec.model.kind else _shape_and_classes(spec)
    if known is None:
        return None
    shape, classes = known
    match spec.model.kind:
        case "softmax":
            return (math.prod(shape) + spec.model.bias) * classes
        case "mlp":
            hidden = spec.model.hidden
            return _perceptron_size(
                [math.prod(shape), *([hidden] if isinstance(hidden, int) else hidden), classes]
            )
        case _ if len(shape) != 3:
            return None  # the run refuses: these take images
        case "cnn-small":
            pixels = math.prod(-(-side // 4) for side in shape[1:])
            return _conv_size(shape[0], 16, 5) + _conv_size(16, 32, 5) + _linear_size(32 * pixels, classes)
        case "cnn":
            pixels = math.prod(side // 4 for side in shape[1:])
            return (
                _conv_size(shape[0], 32, 5)
                + _conv_size(32, 64, 5)
                + _perceptron_size([64 * pixels, 512, classes])
            )
        case "resnet18":
            return _resnet18_size(shape[0], classes)
        case "vgg11":
            pixels = math.prod(-(-side // 32) for side in shape[1:])
            widths = (shape[0], 64, 128, 256, 256, 512, 512, 512, 512)
            normalised = 2 if spec.model.norm == "group" else 0  # numbers for each channel
            body = sum(_conv_size(a, b, 3) + normalised * b for a, b in pairwise(widths))
            return body + _perceptron_size([512 * pixels, 512, 512, classes])
    return None


def check_model_size(spec: Spec) -> None:
    """Refuse a built-in perceptron that is too large, and clip norms that are not one for each layer.

    Raises:
        SpecError: more parameters than are allowed, or another number of layers than norms.
    """
    _check_layer_norms(spec)
    if spec.model.kind != "mlp":
        return
    parameters = parameter_count(spec)
    if parameters is not None and parameters > MAX_PARAMETERS:
        hidden = spec.model.hidden
        allowed = f"makes {parameters:,} parameters; at most {MAX_PARAMETERS:,}: every device holds a copy"
        raise SpecError("model.hidden", hidden if isinstance(hidden, int) else list(hidden), allowed)


_LAYERS = {"softmax": 1, "cnn-small": 3, "cnn": 4, "resnet18": 41, "vgg11": 19}
_VGG11_CONVOLUTIONS = 8
_LINEAR_LAYERS = {"cnn": 2, "vgg11": 3}
"""Of the models that have other linear layers than the last one, beside the perceptron."""


def layer_count(model: Model) -> int | None:
    """Number of layers of the model with trained parameters; ``None`` if only building it can tell."""
    if ":" in model.kind:
        return None
    if model.trained == "head":
        return 1
    if model.kind == "mlp":
        return 2 if isinstance(model.hidden, int) else len(model.hidden) + 1
    if model.kind == "vgg11" and model.norm == "none" and model.trained == "all":
        return _LAYERS["vgg11"] - _VGG11_CONVOLUTIONS
    return (_LAYERS if model.trained == "all" else _LINEAR_LAYERS).get(model.kind)


def _check_layer_norms(spec: Spec) -> None:
    """Raise a `SpecError` if the clip norms of layers are not as many as the model's layers."""
    clip, layers = spec.privacy.clip, layer_count(spec.model)
    if clip is not None and clip.per_layer is not None and layers not in (None, len(clip.per_layer)):
        allowed = f"must list one norm for each of the {layers} layers"
        raise SpecError("privacy.clip.per_layer", list(clip.per_layer), allowed)


def _shape_and_classes(spec: Spec) -> tuple[Shape, int] | None:
    """The shape of an example and the number of classes; ``None`` where the data set is not tabulated."""
    if spec.data.source in BUILT_IN:
        known = BUILT_IN[spec.data.source].facts
        return known.input_shape, known.outputs
    try:
        known = dataset_facts(spec.data, 1)  # the number of devices has no bearing on the shape
    except DataError:
        return None
    return known.input_shape, known.outputs


def _linear_size(width: int, following: int) -> int:
    """The number of parameters of a linear layer from ``width`` values to ``following``, bias included."""
    return (width + 1) * following


def _perceptron_size(widths: Sequence[int]) -> int:
    """The number of parameters of a perceptron whose layers have these widths."""
    return sum(_linear_size(a, b) for a, b in pairwise(widths))


def _conv_size(channels: int, following: int, side: int, *, bias: bool = True) -> int:
    """Number of parameters of a convolution to ``following`` channels with square filters of ``side``.

    Args:
        channels: number of input channels.
        following: number of output channels.
        side: of a filter.
        bias: whether each output channel has a bias.
    """
    return channels * following * side * side + following * bias


def _resnet18_size(channels: int, classes: int) -> int:
    """Number of parameters of a ResNet-18, whose convolutions have no bias and a normalisation behind each.

    ``channels``: of an image; ``classes``: number of outputs.
    """

    def normed(width: int, following: int, side: int) -> int:
        return _conv_size(width, following, side, bias=False) + 2 * following

    total, width = normed(channels, 64, 3), 64
    for following in (64, 128, 256, 512):
        total += normed(width, following, 3) + 3 * normed(following, following, 3)
        total += normed(width, following, 1) if width != following else 0
        width = following
    return total + _linear_size(width, classes)
