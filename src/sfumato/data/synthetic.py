"""Data made on the spot, for tests of scale: separable Gaussian clusters, one a class."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from sfumato.data.builtin_datasets import DatasetFacts
from sfumato.random import Stream, generator

CLASSES = 10
FEATURES = 16
TEST_EXAMPLES = 2_000
# Distance of two cluster centres in units of the clusters' own standard deviation, on average:
# near enough to overlap a little, far enough for a linear model to pass 90 %.
_SEPARATION = 5.0

_CENTRES, _TRAIN, _TEST = 0, 1, 2


def synthetic_facts(examples: int) -> DatasetFacts:
    """Sizes of the synthetic set with ``examples`` training rows."""
    counts = tuple(examples // CLASSES + (label < examples % CLASSES) for label in range(CLASSES))
    return DatasetFacts("synthetic", examples, TEST_EXAMPLES, CLASSES, (FEATURES,), counts)


def synthetic_labels(examples: int) -> NDArray[np.int64]:
    """The labels 0, 1, ..., 9, 0, 1, ... of so many ``examples``, int64."""
    return np.arange(examples, dtype=np.int64) % CLASSES


def make_synthetic(
    examples: int, *, seed: int
) -> tuple[NDArray[np.float32], NDArray[np.int64], NDArray[np.float32], NDArray[np.int64]]:
    """Training features [N, F] and labels [N], test features and labels.

    Class c is N(mu_c, I) around a centre mu_c drawn from N(0, s^2 I), with s such that two centres
    lie 5 standard deviations apart on average; labels run 0, 1, ..., 9, 0, 1, ...: balanced.
    """
    scale = _SEPARATION / np.sqrt(2 * FEATURES)
    centres = generator(seed, Stream.SYNTHETIC, _CENTRES).standard_normal((CLASSES, FEATURES), np.float32)
    centres *= np.float32(scale)

    def draw(count: int, part: int) -> tuple[NDArray[np.float32], NDArray[np.int64]]:
        labels = synthetic_labels(count)
        features = generator(seed, Stream.SYNTHETIC, part).standard_normal((count, FEATURES), np.float32)
        for label in range(CLASSES):
            features[label::CLASSES] += centres[label]
        return features, labels

    return *draw(examples, _TRAIN), *draw(TEST_EXAMPLES, _TEST)
