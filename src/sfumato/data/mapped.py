"""Rows of arrays of which parts can be read: mapped ``.npy`` files, alone in Python or in a folder of them.

Bytes stay bytes until a row is used.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from sfumato.data.features import FLOAT32, Array, RowNumbers, refuse_not_finite
from sfumato.errors import DataError, first_line


@dataclass(frozen=True, eq=False)
class ArrayRows:
    """The rows of an array as features.

    Attributes:
        name: of the array, for messages.
        values: numbers of any type, ``[N, ...]``.
        shape: ``[N, ...]``, perhaps with channels that ``values`` leave out.
        in_bytes: whether values are divided by 255.
        dtype: of what is taken.
    """

    name: str
    values: NDArray[Any]
    shape: tuple[int, ...]
    in_bytes: bool = False
    dtype: np.dtype[Any] = FLOAT32

    def take(self, rows: RowNumbers, out: Array) -> None:
        """Write the features of ``rows`` to ``out``, divided by 255 if ``in_bytes``.

        Arguments as of `FeatureSource.take`.

        Raises:
            DataError: the features cannot be read, or one is not finite.
        """
        try:
            found = self.values[rows]
        except OSError as error:
            raise DataError(f"{self.name}: cannot be read ({first_line(error)})") from None
        with np.errstate(over="ignore"):
            out[...] = found.reshape(out.shape)
        refuse_not_finite(out, self.name, rows, "")
        if self.in_bytes:
            np.divide(out, np.float32(255), out=out)


def array_files(folder: Path) -> dict[str, Path]:
    """The ``.npy`` files in ``folder`` by name without ending, sorted."""
    found = sorted(path for path in folder.iterdir() if path.suffix == ".npy" and path.is_file())
    return {path.stem: path for path in found}


def map_array(path: Path) -> NDArray[Any]:
    """The array of the ``.npy`` file ``path`` as a read-only memory map: only parts that are used are read.

    Raises:
        DataError: it is missing, damaged, an archive of several arrays, or holds Python objects.
    """
    try:
        found = np.load(path, mmap_mode="r", allow_pickle=False)
    except (OSError, ValueError, EOFError) as error:
        raise DataError(f"{path}: cannot be read as a .npy file ({first_line(error)})") from None
    if not isinstance(found, np.ndarray):  # np.load looks at the content, whatever the name ends with
        raise DataError(f"{path}: holds an archive of arrays (.npz); a .npy file holds one array")
    return found
