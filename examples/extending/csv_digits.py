"""A data reader of one's own: a table in a CSV file, the label in its last column.

In a spec::

    data: {source: "csv_digits:read"}

The factory returns a `Dataset`. The environment variable SFUMATO_CSV names the file, which has one line of
headings; the last fifth of its rows is the test set. Features are scaled by a constant that
does not depend on the data: a mean or a largest value of private rows would be a release that nobody accounts
for.
"""

from __future__ import annotations

import os
from pathlib import Path

import numpy as np

from sfumato.data.dataset import Dataset, dataset_of

LARGEST = 16.0  # of a pixel, as the format says


def read() -> Dataset:
    """The data set."""
    path = Path(os.environ["SFUMATO_CSV"])
    table = np.loadtxt(path, delimiter=",", skiprows=1, dtype=np.float32, ndmin=2)
    features, labels = table[:, :-1] / LARGEST, table[:, -1].astype(np.int64)
    cut = len(table) * 4 // 5
    return dataset_of(path.stem, features[:cut], labels[:cut], features[cut:], labels[cut:])
