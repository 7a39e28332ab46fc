"""Scores of reconstructions, against definitions written out plainly."""

from __future__ import annotations

import sys
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from sfumato.attacks import image_metrics as scores
from sfumato.attacks.image_metrics import lpips_score, match_to_originals, mse, psnr, ssim


def pictures(count: int, shape: tuple[int, ...] = (1, 14, 13), seed: int = 0) -> Tensor:
    return torch.rand(count, *shape, generator=torch.Generator().manual_seed(seed))


def ssim_by_hand(x: np.ndarray, y: np.ndarray) -> float:
    """Wang et al. (2004), eq. 13 to 16, window by window, of one channel."""
    width = min(11, *x.shape)
    width -= 1 - width % 2
    line = np.exp(-((np.arange(width) - width // 2) ** 2) / (2 * 1.5**2))
    weights = np.outer(line, line) / line.sum() ** 2
    values = []
    for i in range(x.shape[0] - width + 1):
        for j in range(x.shape[1] - width + 1):
            a, b = x[i : i + width, j : j + width], y[i : i + width, j : j + width]
            mu_a, mu_b = (weights * a).sum(), (weights * b).sum()
            var_a, var_b = (weights * (a - mu_a) ** 2).sum(), (weights * (b - mu_b) ** 2).sum()
            both = (weights * (a - mu_a) * (b - mu_b)).sum()
            top = (2 * mu_a * mu_b + 1e-4) * (2 * both + 9e-4)
            values.append(top / ((mu_a**2 + mu_b**2 + 1e-4) * (var_a + var_b + 9e-4)))
    return float(np.mean(values))


@pytest.mark.parametrize("shape", [(1, 14, 13), (3, 12, 12), (1, 8, 8)])
def test_ssim_is_the_definition_averaged_over_channels(shape: tuple[int, ...]) -> None:
    x, y = pictures(2, shape, 1), pictures(2, shape, 2)
    for found, a, b in zip(ssim(x, y), x.double().numpy(), y.double().numpy(), strict=True):
        assert found == pytest.approx(np.mean([ssim_by_hand(*pair) for pair in zip(a, b, strict=True)]))


@settings(max_examples=10, deadline=None)
@given(seed=st.integers(0, 2**31), noise=st.floats(0.01, 0.5))
def test_ssim_is_one_for_the_same_symmetric_and_below_one_otherwise(seed: int, noise: float) -> None:
    x = pictures(1, seed=seed)
    y = (x + noise * pictures(1, seed=seed + 1)).clamp(0, 1)
    assert ssim(x, x)[0] == pytest.approx(1.0)
    assert ssim(x, y)[0] == pytest.approx(ssim(y, x)[0])
    assert ssim(x, y)[0] < 1.0


def test_ssim_of_flat_pictures_knows_only_their_brightness() -> None:
    x, y = torch.full((1, 1, 12, 12), 0.8), torch.full((1, 1, 12, 12), 0.2)
    expected = (2 * 0.8 * 0.2 + 1e-4) / (0.8**2 + 0.2**2 + 1e-4)
    assert ssim(x, y)[0] == pytest.approx(expected, rel=1e-5)


def test_mse_and_psnr_are_their_formulas() -> None:
    x, y = pictures(3, seed=1), pictures(3, seed=2)
    expected = ((x - y).double().numpy() ** 2).mean(axis=(1, 2, 3))
    np.testing.assert_allclose(mse(x, y), expected, rtol=1e-6)
    np.testing.assert_allclose(psnr(x, y), 10 * np.log10(1 / expected), rtol=1e-6)
    assert np.isinf(psnr(x, x)).all()


def test_a_shuffled_batch_is_put_back_in_order() -> None:
    originals = pictures(6)
    order = torch.tensor([3, 0, 5, 1, 4, 2])
    shown = (originals[order] + 0.05 * pictures(6, seed=9)).clamp(0, 1)
    assert torch.equal(order[match_to_originals(shown, originals)], torch.arange(6))


def test_matching_is_the_best_assignment_not_the_nearest_for_each() -> None:
    # both originals are nearest to the first picture, which can show only one of them
    originals = torch.tensor([0.5, 0.6]).view(2, 1, 1, 1)
    shown = torch.tensor([0.55, 0.9]).view(2, 1, 1, 1)
    assert match_to_originals(shown, originals).tolist() == [0, 1]


def test_lpips_says_why_it_is_left_out(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(scores, "find_spec", lambda name: None)
    score, why = lpips_score()
    assert score is None
    assert "sfumato[attacks]" in why
    monkeypatch.setattr(scores, "find_spec", lambda name: object())
    monkeypatch.setattr(torch.hub, "get_dir", lambda: str(tmp_path))
    score, why = lpips_score()
    assert score is None
    assert "alexnet" in why
    assert str(tmp_path) not in why


def test_lpips_is_given_colour_from_minus_one_to_one(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    given: list[Tensor] = []

    class Network:
        def __init__(self, net: str, verbose: bool) -> None:
            assert net == "alex"

        def eval(self) -> Network:
            return self

        def __call__(self, a: Tensor, b: Tensor) -> Tensor:
            given.extend((a, b))
            return (a - b).abs().mean(dim=(1, 2, 3), keepdim=True)

    monkeypatch.setattr(scores, "find_spec", lambda name: object())
    monkeypatch.setattr(torch.hub, "get_dir", lambda: str(tmp_path))
    monkeypatch.setitem(sys.modules, "lpips", SimpleNamespace(LPIPS=Network))
    (tmp_path / "checkpoints").mkdir()
    (tmp_path / "checkpoints" / "alexnet-owt-7be5be79.pth").touch()
    score, source = lpips_score()
    assert score is not None
    assert "alexnet" in source
    x = torch.stack([torch.zeros(1, 28, 28), torch.ones(1, 28, 28)])
    np.testing.assert_allclose(score(x, torch.zeros_like(x)), [0.0, 2.0])
    assert given[0].shape[1] == 3
    assert min(given[0].shape[2:]) >= 64
    assert (float(given[0].min()), float(given[0].max())) == (-1.0, 1.0)
