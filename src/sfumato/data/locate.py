"""Where a data set is to be read from: made, shipped, a folder here, or the Hub."""

from __future__ import annotations

import os
import re
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from sfumato.data.builtin_datasets import BUILT_IN, BuiltIn
from sfumato.data.hub import Columns, is_saved_folder
from sfumato.data.idx import holds_idx, idx_files
from sfumato.errors import DataError, SpecError
from sfumato.user_text.files import printable_name

Form = Literal["synthetic", "digits", "factory", "idx", "folder", "hub"]
ENVIRONMENT_VARIABLE = "SFUMATO_DATA"
SYSTEM_FOLDER = Path("/usr/share/datasets")


@dataclass(frozen=True)
class DataLocation:
    """Where a source was found: how to read it, and what is known of it.

    Attributes:
        source: what the spec says.
        form: how to read it.
        folder: where it lies, for ``idx`` and ``folder``.
        built_in: its row of the catalogue, if it has one.
        examples: training rows to make, for ``synthetic``.
        tried: folders where a Hub source was sought in vain.
    """

    source: str
    form: Form
    folder: Path = Path()
    built_in: BuiltIn | None = None
    examples: int = 0
    tried: str = ""


def locate(
    source: str, *, examples: int | None, columns: Columns, test_fraction: float | None
) -> DataLocation:
    """Find ``source`` on this machine, else name the Hub, and refuse options that do not fit it.

    Raises:
        SpecError: the source is nothing we know, or an option is not for it.
        DataError: a folder does not exist or holds no data set.
    """
    place = _search(source, examples)
    if place.form != "synthetic" and examples is not None:
        raise SpecError("data.examples_per_device", examples, "only with source: synthetic")
    # Built-in sets with columns may lie here as IDX files; only a group needs the Hub's copy.
    if place.form in ("synthetic", "digits", "factory", "idx"):
        for option, name in (
            ("image_column", columns.image),
            ("label_column", columns.label),
            ("group_column", columns.group),
        ):
            if name is not None:
                raise SpecError(f"data.{option}", name, f"nothing: {source} here has no named columns")
        refuse_test_fraction(test_fraction, True)
    return place


def files_of(source: str) -> dict[str, Path]:
    """The files on this machine that ``source`` is read from, by name; none where it lies elsewhere.

    Raises:
        SpecError: the source is nothing we know.
        DataError: a folder does not exist or holds no data set.
    """
    if source in ("synthetic", "digits"):
        return {}
    place = _search(source, None)
    match place.form:
        case "idx":
            return {path.name: path for path in idx_files(place.folder)}
        case "folder":  # what `datasets` caches beside the data is not data
            found = (path for path in sorted(place.folder.rglob("*")) if path.is_file())
            return {
                str(path.relative_to(place.folder)): path
                for path in found
                if not path.name.startswith("cache-")
            }
        case _:
            return {}


def _search(source: str, examples: int | None) -> DataLocation:
    if source == "synthetic":
        if examples is None or examples < 1:
            raise SpecError(
                "data.examples_per_device", examples, "a positive number is needed for synthetic data"
            )
        return DataLocation(source, "synthetic", examples=examples)
    if source == "digits":
        return DataLocation(source, "digits", built_in=BUILT_IN[source])
    if is_factory(source):
        return DataLocation(source, "factory")
    if source in BUILT_IN:
        folders = _local_folders(source)
        for folder in folders:
            if (form := _form_of(folder)) is not None:
                return DataLocation(source, form, folder, BUILT_IN[source])
        tried = ", ".join(map(str, folders))
        if ENVIRONMENT_VARIABLE not in os.environ:
            tried += f" (${ENVIRONMENT_VARIABLE} is not set)"
        return DataLocation(source, "hub", built_in=BUILT_IN[source], tried=tried)
    try:
        folder = Path(source).expanduser()
        there = folder.exists()
        form = _form_of(folder) if there else None
    except (OSError, RuntimeError, ValueError) as error:  # no name of a file, no such home, not readable
        reason = (error.strerror if isinstance(error, OSError) else None) or str(error)
        raise SpecError("data.source", printable_name(source), f"cannot be read: {reason}") from None
    if form is not None:
        return DataLocation(source, form, folder)
    if there:
        raise DataError(
            f"{printable_name(source)}: neither IDX files nor a folder written by datasets.save_to_disk"
        )
    if source.count("/") == 1 and all(source.split("/")) and source[0] not in ".~":
        return DataLocation(source, "hub", tried=str(folder))
    if "/" in source:
        raise DataError(f"{printable_name(str(folder))}: no such folder")
    known = ", ".join(sorted(BUILT_IN))
    raise SpecError(
        "data.source",
        source,
        f"one of {known}, synthetic, a folder, a Hub id 'org/name', or package.module:factory",
    )


def is_factory(source: str) -> bool:
    """Whether ``source`` is written ``package.module:factory``."""
    return re.fullmatch(r"[A-Za-z_][\w.]*:[A-Za-z_]\w*", source) is not None


def _local_folders(name: str) -> list[Path]:
    own = os.environ.get(ENVIRONMENT_VARIABLE)
    return [root / name for root in ([Path(own)] if own else []) + [SYSTEM_FOLDER]]


def _form_of(folder: Path) -> Literal["idx", "folder"] | None:
    if is_saved_folder(folder):
        return "folder"
    return "idx" if holds_idx(folder) else None


def refuse_test_fraction(test_fraction: float | None, has_test_split: bool) -> None:
    """Refuse a share to hold out where the source has a test split of its own.

    Raises:
        SpecError: both are there.
    """
    if test_fraction is not None and has_test_split:
        raise SpecError(
            "data.test_fraction", test_fraction, "nothing: this data set has a test split of its own"
        )
