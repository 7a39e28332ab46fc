"""Similarity of reconstructions and originals: MSE, PSNR, SSIM, LPIPS, and the matching within a batch.

What they are worth is told by a baseline, the mean image of the class, with a paired test against it.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path

import numpy as np
import numpy.typing as npt
import torch
from scipy import stats
from scipy.optimize import linear_sum_assignment
from torch import Tensor
from torch.nn.functional import conv2d

FloatArray = npt.NDArray[np.float64]

_WINDOW, _SIGMA, _K1, _K2 = 11, 1.5, 0.01, 0.03
_LPIPS_BACKBONE = "alexnet-owt-7be5be79.pth"


def mse(images: Tensor, originals: Tensor) -> FloatArray:
    """Mean squared error of each image to its original, ``[I]``; both ``[I, C, H, W]``, pixels in [0, 1]."""
    return np.asarray((images - originals).double().square().flatten(1).mean(dim=1).numpy())


def psnr(images: Tensor, originals: Tensor) -> FloatArray:
    """Peak signal-to-noise ratio of each of ``images`` to its original, in dB, ``[I]``; ∞ for equal images.

    ``images`` and ``originals``: ``[I, C, H, W]``, pixels from 0 to 1.
    """
    with np.errstate(divide="ignore"):
        return np.asarray(-10.0 * np.log10(mse(images, originals)))


def ssim(images: Tensor, originals: Tensor) -> FloatArray:
    """Mean structural similarity of each of ``images`` to its original, ``[I]``, averaged over channels.

    Wang et al. 2004. Both are ``[I, C, H, W]``, pixels from 0 to 1. Gaussian window of 11 pixels and standard
    deviation 1.5, K1 = .01, K2 = .03, range 1, only where the whole window fits; on smaller images the widest
    odd window that fits.
    """
    channels = images.shape[1]
    window = _gaussian_window(min(_WINDOW, *images.shape[2:])).repeat(channels, 1, 1, 1)
    x, y = images.double(), originals.double()

    def local(values: Tensor) -> Tensor:
        return conv2d(values, window, groups=channels)

    mean_x, mean_y = local(x), local(y)
    var_x, var_y = local(x * x) - mean_x**2, local(y * y) - mean_y**2
    covariance = local(x * y) - mean_x * mean_y
    c1, c2 = _K1**2, _K2**2
    value = (2 * mean_x * mean_y + c1) * (2 * covariance + c2)
    value = value / ((mean_x**2 + mean_y**2 + c1) * (var_x + var_y + c2))
    return np.asarray(value.flatten(1).mean(dim=1).numpy())


def _gaussian_window(width: int) -> Tensor:
    """The window of SSIM, float64 ``[w, w]`` with a sum of 1; w is ``width``, or one less if that is even."""
    width -= 1 - width % 2
    offsets = torch.arange(width, dtype=torch.float64) - width // 2
    line = torch.exp(-(offsets**2) / (2 * _SIGMA**2))
    return (line / line.sum()).outer(line / line.sum())


def match_to_originals(images: Tensor, originals: Tensor) -> npt.NDArray[np.int64]:
    """Pair images with originals; returns for every original the index of its image, int64 ``[I]``.

    The pairing has the least total squared error. Both are ``[I, C, H, W]``.
    """
    distances = torch.cdist(originals.double().flatten(1), images.double().flatten(1)) ** 2
    _, columns = linear_sum_assignment(distances.numpy())
    return np.asarray(columns, dtype=np.int64)


def lpips_score() -> tuple[Callable[[Tensor, Tensor], FloatArray] | None, str]:
    """A function that computes LPIPS of images and originals, ``[I]``, and a text on its weights.

    Zhang et al. 2018, AlexNet. Where it cannot be had: ``None`` and the reason. The package contains its own
    linear weights. AlexNet's weights are read from torch's hub folder (``$TORCH_HOME``), in which torchvision
    saves its downloads. Nothing is downloaded here.
    """
    if find_spec("lpips") is None or find_spec("torchvision") is None:
        return None, "not computed: it needs the extra 'attacks': pip install 'sfumato[attacks]'"
    weights = Path(torch.hub.get_dir()) / "checkpoints" / _LPIPS_BACKBONE
    if not weights.is_file():
        return (
            None,
            f"not computed: {weights.parent.name}/{weights.name} (AlexNet) is not in torch's hub folder",
        )
    network = importlib.import_module("lpips").LPIPS(net="alex", verbose=False).eval()

    def score(images: Tensor, originals: Tensor) -> FloatArray:
        with torch.no_grad():
            pairs = [_scaled_for_lpips(batch) for batch in (images, originals)]
            return np.asarray(network(*pairs).flatten().double().numpy())

    return score, f"AlexNet from {_LPIPS_BACKBONE}, linear weights of the package lpips; lower is closer"


def _scaled_for_lpips(images: Tensor) -> Tensor:
    """``images`` ``[n, 1 or 3, H, W]`` with three channels from -1 to 1, and 64 pixels a side or more.

    AlexNet needs that size: pixels of smaller images are repeated.
    """
    colour = images.float().expand(-1, 3, -1, -1) * 2 - 1
    scale = max(1, -(-64 // min(images.shape[2:])))
    return colour.repeat_interleave(scale, dim=2).repeat_interleave(scale, dim=3)


def class_means(images: Tensor, labels: Tensor, classes: int) -> Tensor:
    """The mean image of every class ``[classes, C, H, W]``; for a class without images, that of all images.

    Args:
        images: public, ``[N, C, H, W]``.
        labels: int64 ``[N]``.
        classes: number of classes.
    """
    means = images.mean(dim=0).repeat(classes, *[1] * (images.ndim - 1))
    for label in torch.unique(labels).tolist():
        means[label] = images[labels == label].mean(dim=0)
    return means


@dataclass(frozen=True)
class BaselineComparison:
    """An attack compared with the baseline, paired by image.

    Attributes:
        attack: mean score of the attack.
        guess: mean score of the baseline.
        p_better: p-value of "the attack is no better", Wilcoxon's signed-rank test, one-sided.
        p_worse: p-value of "the attack is no worse".
        images: number of images.
    """

    attack: float
    guess: float
    p_better: float
    p_worse: float
    images: int


def compare_with_baseline(attack: FloatArray, guess: FloatArray) -> BaselineComparison:
    """Means of the scores of an attack and of a guess, ``[I]`` each, with Wilcoxon's test of the pairs.

    Higher scores are better.
    """
    gaps = attack - guess
    p_better = p_worse = 1.0
    if np.any(gaps != 0):
        p_better = float(stats.wilcoxon(gaps, alternative="greater").pvalue)
        p_worse = float(stats.wilcoxon(gaps, alternative="less").pvalue)
    return BaselineComparison(float(attack.mean()), float(guess.mean()), p_better, p_worse, len(gaps))
