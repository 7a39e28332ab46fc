"""The class-mean baseline of an inversion, and a paired test of an attack against it."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import torch
from scipy import stats
from torch import Tensor

FloatArray = npt.NDArray[np.float64]


def class_means(images: Tensor, labels: Tensor, classes: int) -> Tensor:
    """The mean image of every class ``[classes, C, H, W]``; of a class without any, that of all images.

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
    """Paired comparison of scores of which higher is better, each ``[I]``."""
    gaps = attack - guess
    p_better = p_worse = 1.0
    if np.any(gaps != 0):
        p_better = float(stats.wilcoxon(gaps, alternative="greater").pvalue)
        p_worse = float(stats.wilcoxon(gaps, alternative="less").pvalue)
    return BaselineComparison(float(attack.mean()), float(guess.mean()), p_better, p_worse, len(gaps))
