from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from sfumato.errors import SpecError
from sfumato.mechanisms.clipping import Clip, FlatClip, PerLayerClip

ANY_FLOAT = st.floats(width=32, allow_nan=True, allow_infinity=True)
LAYERS = ((0, 2), (2, 3), (3, 6))


def test_flat() -> None:
    stack = torch.tensor([[3.0, 4.0], [0.3, 0.4], [0.0, 0.0]])
    result = FlatClip(1.0).clip_(stack)
    assert result.vectors is stack
    torch.testing.assert_close(stack, torch.tensor([[0.6, 0.8], [0.3, 0.4], [0.0, 0.0]]))
    assert result.clipped.tolist() == [True, False, False]
    assert result.norms.tolist() == [5.0, 0.5, 0.0]


def test_per_layer() -> None:
    stack = torch.tensor([[3.0, 4.0, 0.5, 0.0, 0.0, 9.0], [0.1] * 6])
    clip = PerLayerClip((1.0, 1.0, 3.0), LAYERS)
    result = clip.clip_(stack)
    torch.testing.assert_close(stack[0], torch.tensor([0.6, 0.8, 0.5, 0.0, 0.0, 3.0]))
    torch.testing.assert_close(stack[1], torch.full((6,), 0.1))
    assert result.clipped.tolist() == [True, False]
    assert clip.bound == pytest.approx(math.sqrt(11))


@settings(deadline=None)
@given(
    arrays(np.float32, (4, 6), elements=ANY_FLOAT),
    st.sampled_from([FlatClip(0.7), FlatClip(1e-20), PerLayerClip((0.5, 1e-3, 2.0), LAYERS)]),
)
def test_whatever_comes_stays_within_the_bound(values: np.ndarray, clip: Clip) -> None:
    stack = torch.from_numpy(values.copy())
    norms = clip.clip_(stack).vectors.double().norm(dim=1)
    assert (norms <= clip.bound).all()


@pytest.mark.parametrize("clip", [FlatClip(2.0), PerLayerClip((2.0,), ((0, 6),))])
def test_sensitivity_names_its_neighbours(clip: Clip) -> None:
    assert clip.sensitivity("zero-out") == pytest.approx(2.0)
    assert clip.sensitivity("replace") == pytest.approx(4.0)


@pytest.mark.parametrize("norm", [0.0, -1.0, math.inf, math.nan])
def test_refuses_norms(norm: float) -> None:
    with pytest.raises(SpecError, match=r"clip\.norm"):
        FlatClip(norm)
    with pytest.raises(SpecError, match=r"clip\.norms"):
        PerLayerClip((1.0, norm), ((0, 1), (1, 2)))


@pytest.mark.parametrize("layers", [(), ((0, 2),), ((0, 2), (3, 6)), ((1, 3), (3, 6))])
def test_refuses_layers(layers: tuple[tuple[int, int], ...]) -> None:
    with pytest.raises(SpecError, match="layer"):
        PerLayerClip((1.0, 1.0), layers)


def test_refuses_vectors_of_another_length() -> None:
    with pytest.raises(SpecError, match="all 7 parameters"):
        PerLayerClip((1.0, 1.0, 1.0), LAYERS).clip_(torch.zeros(2, 7))
