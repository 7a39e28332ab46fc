"""Data made on the spot, for tests of scale: separable Gaussian clusters, one a class."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from sfumato.data.builtin_datasets import DatasetFacts
from sfumato.data.features import FLOAT32, Array, Features, RowNumbers
from sfumato.random import Stream, generator, key_at

CLASSES = 10
FEATURES = 16
TEST_EXAMPLES = 2_000
LARGEST_DRAWN_AT_ONCE = 1 << 20
"""Training rows of the largest set that is drawn at once and kept. Larger ones are drawn when used."""

# Distance of two cluster centres in units of the clusters' own standard deviation, on average:
# near enough to overlap a little, far enough for a linear model to pass 90 %.
_SEPARATION = 5.0

_CENTRES, _TRAIN, _TEST, _ROWS = 0, 1, 2, 3

_BLOCKS = FEATURES // 4  # of AES a row: each gives four words of 32 bits
_ROWS_AT_ONCE = 1 << 16


def synthetic_facts(examples: int) -> DatasetFacts:
    """Sizes of the synthetic set with ``examples`` training rows."""
    counts = tuple(examples // CLASSES + (label < examples % CLASSES) for label in range(CLASSES))
    return DatasetFacts("synthetic", examples, TEST_EXAMPLES, CLASSES, (FEATURES,), counts)


def synthetic_labels(examples: int) -> NDArray[np.integer[Any]]:
    """Labels 0, 1, ..., 9, 0, 1, ... ``[examples]``: int64 if drawn at once, uint8 of a larger set."""
    if examples <= LARGEST_DRAWN_AT_ONCE:
        return np.arange(examples, dtype=np.int64) % CLASSES
    return np.resize(np.arange(CLASSES, dtype=np.uint8), examples)


def make_synthetic(
    examples: int, *, seed: int
) -> tuple[Features, NDArray[np.integer[Any]], NDArray[np.float32], NDArray[np.int64]]:
    """Draw the synthetic set: training features [N, 16] and labels [N], test features [M, 16] and labels [M].

    Features are float32, labels int64, M is `TEST_EXAMPLES`. Above `LARGEST_DRAWN_AT_ONCE` rows the training
    features are a source that draws them when used (`DrawnRows`), and their labels are uint8.

    Class c is N(mu_c, I) around a centre mu_c drawn from N(0, s^2 I), with s such that two centres lie 5
    standard deviations apart on average; labels run 0, 1, ..., 9, 0, 1, ...: balanced.

    Args:
        examples: N, training rows.
        seed: of the run.
    """
    scale = _SEPARATION / np.sqrt(2 * FEATURES)
    centres = generator(seed, Stream.SYNTHETIC, _CENTRES).standard_normal((CLASSES, FEATURES), np.float32)
    centres *= np.float32(scale)

    def draw(count: int, part: int) -> NDArray[np.float32]:
        features = generator(seed, Stream.SYNTHETIC, part).standard_normal((count, FEATURES), np.float32)
        for label in range(CLASSES):
            features[label::CLASSES] += centres[label]
        return features

    test = draw(TEST_EXAMPLES, _TEST), np.arange(TEST_EXAMPLES, dtype=np.int64) % CLASSES
    labels = synthetic_labels(examples)
    if examples <= LARGEST_DRAWN_AT_ONCE:
        return draw(examples, _TRAIN), labels, *test
    key = key_at(seed, Stream.SYNTHETIC, _ROWS)
    return DrawnRows(centres, (examples, FEATURES), key), labels, *test


@dataclass(frozen=True, eq=False)
class DrawnRows:
    """Rows of a large set, each drawn by itself when it is used: a function of the key and its number.

    Row r is made of 16 words of 32 bits, the AES blocks 4 r to 4 r + 3 in counter mode. A word w gives the
    quantile of N(0, 1) at (w + 1/2) / 2^32, to which the centre of the row's class is added.

    Attributes:
        centres: of the classes ``[10, 16]``.
        shape: ``[N, 16]``.
        key: of AES, 32 bytes.
    """

    centres: NDArray[np.float32]
    shape: tuple[int, ...]
    key: bytes
    dtype: np.dtype[Any] = FLOAT32

    def take(self, rows: RowNumbers, out: Array) -> None:
        """Draw the features of ``rows`` into ``out``; arguments as of `FeatureSource.take`."""
        for first in range(0, len(rows), _ROWS_AT_ONCE):
            some = slice(first, first + _ROWS_AT_ONCE)
            self._draw(rows[some].astype(np.uint64), out[some])

    def _draw(self, rows: NDArray[np.uint64], out: Array) -> None:
        """Draw the features of ``rows`` ``[n]`` into ``out`` ``[n, 16]``."""
        from cryptography.hazmat.primitives.ciphers import Cipher, algorithms, modes
        from scipy.special import ndtri

        counters = np.zeros((len(rows), _BLOCKS, 2), ">u8")  # 16 bytes each, as counter mode counts
        counters[:, :, 1] = rows[:, None] * np.uint64(_BLOCKS) + np.arange(_BLOCKS, dtype=np.uint64)
        # blocks that are not neighbours: each counter is encrypted by itself, which is counter mode
        blocks = Cipher(algorithms.AES256(self.key), modes.ECB()).encryptor()
        words = np.frombuffer(blocks.update(counters.tobytes()), "<u4").reshape(len(rows), FEATURES)
        out[...] = ndtri((words + 0.5) / 2.0**32)
        out += self.centres[rows % np.uint64(CLASSES)]
