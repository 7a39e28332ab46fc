"""Both forms of a convolution equal autograd's, and what one device or example has does not reach another."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from local_reference import data_of, devices_of
from torch import Tensor, nn
from torch.nn.functional import conv2d

from sfumato.engine.base import EngineSettings, LocalTask
from sfumato.engine.local import LocalEngine
from sfumato.learning.batches import plan_epochs
from sfumato.learning.convolution import PatchConvolution
from sfumato.learning.grouped_convolution import GroupedConvolution
from sfumato.learning.layers import Layer, ParameterSlot
from sfumato.learning.local_training import LocalSGD
from sfumato.learning.models import build_model
from sfumato.learning.parameters import ParameterLayout
from sfumato.learning.patches import ConvolutionSizes
from sfumato.learning.sequential import as_layers
from sfumato.learning.tape import Memory, Tape

FORMS = [PatchConvolution, GroupedConvolution]


@dataclass(frozen=True)
class Case:
    sizes: ConvolutionSizes
    devices: int
    examples: int
    keep: float = 0.5
    scale: float = -2.0


@st.composite
def cases(draw: st.DrawFn) -> Case:
    """Sizes of every kind that a layer takes; kernels need not be multiples of the stride."""
    padding = draw(st.integers(0, 4))
    image = draw(st.integers(1, 9)), draw(st.integers(1, 9))
    kernel = tuple(draw(st.integers(1, min(6, side + 2 * padding))) for side in image)
    sizes = ConvolutionSizes(
        channels=draw(st.integers(1, 3)),
        image=image,
        outputs=draw(st.integers(1, 3)),
        kernel=(kernel[0], kernel[1]),
        stride=draw(st.integers(1, 7)),
        padding=padding,
        has_bias=draw(st.booleans()),
        channels_last=draw(st.booleans()),
    )
    keep = draw(st.sampled_from([0.0, 0.5, 1.0]))
    return Case(sizes, draw(st.integers(1, 3)), draw(st.integers(1, 3)), keep)


def whole_numbers(*shape: int, seed: int) -> Tensor:
    """Small ones, whose products and sums float32 holds exactly, in any order."""
    return torch.from_numpy(np.random.default_rng(seed).integers(-4, 5, shape)).float()


@dataclass
class Bound:
    """A layer with its operations and their memory."""

    parameters: Tensor
    target: Tensor
    x: Tensor
    y: Tensor
    dy: Tensor
    dx: Tensor | None
    forward: Tape
    backward: Tape

    def run(self) -> None:
        for tape in self.forward, self.backward:
            for operation in tape:
                operation()


def bound(layer: Layer, case: Case, memories: tuple[Memory, Memory]) -> Bound:
    sizes, n = case.sizes, case.devices
    channels, image = sizes.channels, sizes.image
    shape = (*image, channels) if sizes.channels_last else (channels, *image)
    x = whole_numbers(n, case.examples, *shape, seed=0)
    parameters = whole_numbers(n, layer.size + 3, seed=1)[:, : layer.size]  # rows are parts of longer ones
    target = whole_numbers(n, layer.size + 3, seed=2)[:, : layer.size]
    slot = ParameterSlot(parameters, target, case.keep, case.scale)
    forward, backward = (Tape(memory) for memory in memories)
    y = layer.forward(x, slot, forward)
    dy = whole_numbers(*y.shape, seed=3)
    dx = layer.backward(dy, slot, backward, wants_dx=sizes.channels_last)
    return Bound(parameters, target, x, y, dy, dx if sizes.channels_last else None, forward, backward)


def by_autograd(found: Bound, sizes: ConvolutionSizes) -> tuple[Tensor, Tensor, Tensor]:
    """The output, the gradient at the input, and packed gradients of the parameters."""
    outputs, images, at_inputs, gradients = sizes.outputs, [], [], []
    for x, vector, dy in zip(found.x, found.parameters, found.dy, strict=True):
        x, vector = x.clone().requires_grad_(), vector.clone().requires_grad_()
        count = sizes.patch * outputs
        kernels = vector[:count].view(outputs, *sizes.kernel, sizes.channels).movedim(-1, 1)
        if not sizes.channels_last:
            kernels = vector[:count].view(outputs, sizes.channels, *sizes.kernel)
        bias = vector[count:] if sizes.has_bias else None
        first = x.movedim(-1, 1) if sizes.channels_last else x
        y = conv2d(first, kernels, bias, sizes.stride, sizes.padding).movedim(1, -1)
        y.backward(dy)
        images.append(y.detach())
        at_inputs.append(x.grad)
        gradients.append(vector.grad)
    return torch.stack(images), torch.stack(at_inputs), torch.stack(gradients)


@pytest.mark.parametrize("form", FORMS)
@given(case=cases())
def test_every_size_equals_autograd_to_the_last_bit(form: type[Layer], case: Case) -> None:
    """Of whole numbers; also where a step of other sizes has used the memory before."""
    layer, memories = form(case.sizes), (Memory(), Memory())
    bound(layer, replace(case, devices=case.devices + 1, examples=2), memories).run()
    found = bound(layer, case, memories)
    before = found.target.clone()
    if not case.keep:
        found.target.fill_(torch.nan)  # is not read
    found.run()
    y, dx, gradients = by_autograd(found, case.sizes)
    assert torch.equal(found.y, y)
    assert found.dx is None or torch.equal(found.dx, dx)
    assert torch.equal(found.target, case.keep * before + case.scale * gradients)


@pytest.mark.parametrize("stride", [1, 2, 3, 4])
def test_the_gradient_of_one_output_pixel_is_the_kernel_where_it_was_applied(stride: int) -> None:
    """All taps differ, so that one in another place, or of another phase, is seen."""
    sizes = ConvolutionSizes(2, (9, 8), 1, (3, 5), stride, 1, has_bias=False, channels_last=True)
    layer = GroupedConvolution(sizes)
    found = bound(layer, Case(sizes, 1, 1), (Memory(), Memory()))
    found.parameters.copy_(torch.arange(1, 31))
    kernel = found.parameters.view(3, 5, 2)
    rows, columns = sizes.pixels
    for row in range(rows):
        for column in range(columns):
            found.dy.zero_()[0, 0, row, column] = 1
            found.run()
            padded = torch.zeros(9 + 2 + 3, 8 + 2 + 5, 2)
            padded[row * stride : row * stride + 3, column * stride : column * stride + 5] = kernel
            assert found.dx is not None
            assert torch.equal(found.dx[0, 0], padded[1:10, 1:9])


REAL = [
    ConvolutionSizes(1, (28, 28), 16, (5, 5), 2, 2, has_bias=True, channels_last=False),
    ConvolutionSizes(16, (14, 14), 32, (5, 5), 2, 2, has_bias=True, channels_last=True),
    ConvolutionSizes(3, (15, 16), 20, (5, 3), 1, 2, has_bias=True, channels_last=False),
    ConvolutionSizes(6, (10, 10), 16, (3, 3), 2, 1, has_bias=True, channels_last=True),
]


@pytest.mark.parametrize("sizes", REAL)
@pytest.mark.parametrize("value", [7.0, torch.nan, torch.inf])
@pytest.mark.parametrize("examples", [5, 33])
def test_an_example_changes_no_bit_of_another_one(
    sizes: ConvolutionSizes, value: float, examples: int
) -> None:
    """What docs/accounting.md, *Rounding*, assumes of passes through a model; and the same for devices."""
    case, generator = Case(sizes, 3, examples), torch.Generator().manual_seed(0)
    found = bound(GroupedConvolution(sizes), case, (Memory(), Memory()))
    for own in (found.x, found.parameters, found.dy, found.target):
        own.copy_(torch.randn(own.shape, generator=generator))
    start = found.target.clone()
    found.run()
    y, target = found.y.clone(), found.target.clone()
    dx = None if found.dx is None else found.dx.clone()
    found.target.copy_(start)
    found.x[1, 3], found.dy[1, 3] = value, value
    found.run()
    others = torch.ones(3, examples, dtype=torch.bool)
    others[1, 3] = False
    assert torch.equal(found.y[others], y[others])
    assert not torch.equal(found.y[1, 3], y[1, 3])
    assert dx is None or torch.equal(found.dx[others], dx[others])
    assert torch.equal(found.target[[0, 2]], target[[0, 2]])


@pytest.mark.parametrize("sizes", REAL)
@pytest.mark.parametrize("value", [7.0, torch.nan, torch.inf])
def test_a_device_whose_model_diverges_changes_no_bit_of_another_one(
    sizes: ConvolutionSizes, value: float
) -> None:
    case, generator = Case(sizes, 3, 5), torch.Generator().manual_seed(0)
    found = bound(GroupedConvolution(sizes), case, (Memory(), Memory()))
    for own in (found.x, found.parameters, found.dy, found.target):
        own.copy_(torch.randn(own.shape, generator=generator))
    start = found.target.clone()
    found.run()
    y, target, dx = found.y.clone(), found.target.clone(), None if found.dx is None else found.dx.clone()
    found.target.copy_(start)
    found.parameters[1] = value
    found.run()
    assert torch.equal(found.y[[0, 2]], y[[0, 2]])
    assert not torch.equal(found.y[1], y[1])
    assert dx is None or torch.equal(found.dx[[0, 2]], dx[[0, 2]])
    assert torch.equal(found.target[[0, 2]], target[[0, 2]])


@pytest.mark.parametrize("sizes", REAL)
def test_where_an_example_stands_in_a_batch_changes_no_bit_of_it(sizes: ConvolutionSizes) -> None:
    case, generator = Case(sizes, 2, 5), torch.Generator().manual_seed(0)
    found = bound(GroupedConvolution(sizes), case, (Memory(), Memory()))
    for own in (found.x, found.parameters, found.dy):
        own.copy_(torch.randn(own.shape, generator=generator))
    found.run()
    y, dx = found.y.clone(), None if found.dx is None else found.dx.clone()
    for own in (found.x, found.dy):
        own.copy_(own.flip(1))
    found.run()
    assert torch.equal(found.y.flip(1), y)
    assert dx is None or torch.equal(found.dx.flip(1), dx)


def test_the_form_follows_from_the_sizes() -> None:
    small = build_model("cnn-small", shape=(1, 28, 28), classes=10, seed=0)
    assert forms_of(small, (1, 28, 28)) == [GroupedConvolution] * 2
    few = build_model("cnn-small", shape=(1, 8, 8), classes=10, seed=0)
    assert forms_of(few, (1, 8, 8)) == [PatchConvolution] * 2
    apart = nn.Sequential(
        nn.Conv2d(3, 8, 4, stride=4), nn.Conv2d(8, 16, 1), nn.Flatten(), nn.Linear(1024, 10)
    )
    assert forms_of(apart, (3, 32, 32)) == [PatchConvolution] * 2


def test_without_onednn_products_are_taken(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.backends.mkldnn, "is_available", lambda: False)
    model = build_model("cnn-small", shape=(1, 28, 28), classes=10, seed=0)
    assert forms_of(model, (1, 28, 28)) == [PatchConvolution] * 2


@pytest.mark.needs("cuda")
def test_a_gpu_takes_products() -> None:
    model = build_model("cnn-small", shape=(1, 28, 28), classes=10, seed=0).cuda()
    assert forms_of(model, (1, 28, 28)) == [PatchConvolution] * 2


def forms_of(model: nn.Module, shape: tuple[int, ...]) -> list[type]:
    layers = as_layers(model, shape)
    assert layers is not None
    return [type(layer) for layer in layers if isinstance(layer, tuple(FORMS))]


@pytest.mark.parametrize("clip", [{}, {"step_clip": 0.3}, {"example_clip": 0.3}])
def test_any_number_of_threads_gives_the_same_bytes(clip: dict[str, float]) -> None:
    model, data = build_model("cnn-small", shape=(1, 28, 28), classes=10, seed=0), data_of((1, 28, 28))
    start = ParameterLayout.of(model).read(model)[None]
    sizes, before, found = [9, 4, 0, 12, 7, 3], torch.get_num_threads(), []
    try:
        for inside, threads in ((1, 1), (2, 1), (2, 2), (2, 3)):
            torch.set_num_threads(inside)
            engine = LocalEngine(model, *data, EngineSettings("cpu", threads, 64 << 20))
            batches = plan_epochs(devices_of(sizes), epochs=2, batch_size=4, rng=np.random.default_rng(0))
            task = LocalTask(LocalSGD(0.1, **clip))
            chunks = engine.train(task, start, torch.zeros(6, dtype=torch.long), batches)
            found.append(torch.cat([chunk.updates for chunk in chunks]))
    finally:
        torch.set_num_threads(before)
    assert all(torch.equal(found[0], other) for other in found[1:])
