"""In which form a file or a folder holds data: by its name, or by what is in it."""

from __future__ import annotations

from pathlib import Path
from typing import Literal

from sfumato.errors import DataError
from sfumato.user_text.files import printable_name

Form = Literal[
    "synthetic",
    "digits",
    "factory",
    "given",
    "idx",
    "cifar",
    "leaf",
    "tff",
    "folder",
    "hub",
    "absent",
    "csv",
    "parquet",
    "arrow",
    "npz",
    "npy",
    "images",
]
FORM_OF_SUFFIX: dict[str, Form] = {".csv": "csv", ".parquet": "parquet", ".arrow": "arrow", ".npz": "npz"}
"""Forms of files whose names say what they are, without regard to case."""


def form_of_contents(path: Path) -> Form:
    """The form of a file with rows by user, from its first bytes: ``"leaf"`` (JSON) or ``"tff"`` (HDF5).

    Raises:
        DataError: it is neither, or cannot be read.
    """
    from sfumato.data.leaf import is_leaf_file
    from sfumato.data.tff import is_hdf5

    try:
        if is_hdf5(path):
            return "tff"
        if is_leaf_file(path):
            return "leaf"
    except OSError as error:
        raise DataError(f"{printable_name(str(path))}: cannot be read ({error.strerror})") from None
    raise DataError(
        f"{printable_name(str(path))}: neither a LEAF file (a JSON object that begins with users, "
        "num_samples or user_data) nor an HDF5 file"
    )


def form_of_folder(folder: Path) -> Form | None:
    """The form of the data in a folder, by names and first bytes of its files; ``None`` without data."""
    if not folder.is_dir():
        return None
    from sfumato.data.cifar import holds_cifar
    from sfumato.data.idx import holds_idx
    from sfumato.data.image_folder import is_image_folder
    from sfumato.data.leaf import holds_leaf
    from sfumato.data.mapped import array_files
    from sfumato.data.tff import holds_hdf5

    if any((folder / name).is_file() for name in ("dataset_dict.json", "state.json")):
        return "folder"  # as datasets.save_to_disk writes it
    if holds_idx(folder):
        return "idx"
    if holds_cifar(folder):
        return "cifar"
    if holds_leaf(folder):
        return "leaf"
    if holds_hdf5(folder):
        return "tff"
    if array_files(folder):
        return "npy"
    return "images" if is_image_folder(folder) else None
