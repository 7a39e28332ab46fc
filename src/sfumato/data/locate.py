"""Where a data set is to be read from: made, shipped, a folder here, or the Hub; and what is read of it."""

from __future__ import annotations

import itertools
import os
import re
from dataclasses import dataclass
from pathlib import Path

from sfumato.data.builtin_datasets import (
    BUILT_IN,
    HAS_TEST_SPLIT,
    BuiltIn,
    held_out_within_error,
    refuse_test_fraction,
)
from sfumato.data.forms import FORM_OF_SUFFIX, Form, form_of_contents, form_of_folder
from sfumato.errors import DataError, SpecError
from sfumato.spec.base import closest_hint
from sfumato.spec.data import BY_USER_SUFFIXES, DATA_SUFFIXES
from sfumato.spec.model import Task
from sfumato.user_code import GIVEN
from sfumato.user_text.files import printable_name

_LEARNT = ("task", "vocabulary")
_HELD_OUT = ("test_fraction", "test_within")
_OF_TABLES = (
    "feature_columns", "label_column", "group_column", "site_column", "person_column", "test_column", "scale",
)  # fmt: skip
_OF_COLUMNS = ("image_column", "label_column", "group_column", "site_column")
# Options of columns and test sets that each form reads; forms that are not here read none.
_OPTIONS: dict[Form, tuple[str, ...]] = {
    "csv": (*_OF_TABLES, *_LEARNT, "test_file", *_HELD_OUT, "separator", "decimal"),
    "parquet": (*_OF_TABLES, *_LEARNT, "test_file", *_HELD_OUT),
    "arrow": (*_OF_TABLES, *_LEARNT, "test_file", *_HELD_OUT),
    "given": (*_OF_TABLES, *_LEARNT, *_HELD_OUT),
    "npz": (*_OF_COLUMNS, *_LEARNT, *_HELD_OUT),
    "npy": (*_OF_COLUMNS, *_LEARNT, *_HELD_OUT),
    "images": ("test_fraction",),
    "leaf": ("test_file", *_HELD_OUT),
    "tff": ("image_column", "label_column", "test_file", *_HELD_OUT),
    "folder": (*_OF_COLUMNS, *_LEARNT, *_HELD_OUT),
    "hub": (*_OF_COLUMNS, *_LEARNT, *_HELD_OUT),
    "factory": _LEARNT,
}
_OTHER_FILES = {
    **dict.fromkeys((".xlsx", ".xls", ".ods"), "save the spreadsheet as .csv"),
    **dict.fromkeys(
        (".txt", ".tsv", ".data", ".dat"), "call a file of columns .csv; data.separator says how"
    ),
    **dict.fromkeys((".npy", ".pkl", ".pt"), "save arrays by numpy.savez as .npz"),
    ".py": "write FILE.py:NAME, with the function in that file",
}
ENVIRONMENT_VARIABLE = "SFUMATO_DATA"
SYSTEM_FOLDER = Path("/usr/share/datasets")


@dataclass(frozen=True)
class Columns:
    """Which columns hold what; ``None`` for what the source finds by itself, or does not have.

    Attributes:
        image: a column of images or vectors.
        label: the labels; several columns hold one number each.
        group: natural groups, read only if given.
        features: columns of one number each.
        site: names of sites.
        test: which rows are tested on.
        scale: ``(column, low, high)`` of the columns to scale.
        task: what a model learns to predict.
        vocabulary: features are token ids below it.
        person: whose rows they are.
    """

    image: str | None = None
    label: str | tuple[str, ...] | None = None
    group: str | None = None
    features: tuple[str, ...] | None = None
    site: str | None = None
    test: str | None = None
    scale: tuple[tuple[str, float, float], ...] = ()
    task: Task = "classification"
    vocabulary: int | None = None
    person: str | None = None


SEPARATORS = {",": ",", ";": ";", "tab": "\t"}
"""Signs between the columns of a CSV file, by what a spec calls them."""


@dataclass(frozen=True)
class CsvFormat:
    """How a CSV file is written.

    Attributes:
        separator: between columns.
        decimal: before the decimals of a number.
    """

    separator: str = ","
    decimal: str = "."

    @property
    def separator_name(self) -> str:
        """The value of ``data.separator`` in a spec that stands for this separator."""
        return next(name for name, sign in SEPARATORS.items() if sign == self.separator)


@dataclass(frozen=True)
class Request:
    """What is to be read of a source.

    Attributes:
        columns: which columns hold what; by default found by their types, groups and sites not read.
        test_fraction: share held out where the source has no test split.
        test_file: rows to test on, for CSV, Parquet and Arrow files.
        examples: training rows to make; synthetic data only, and required there.
        seed: of the run; only synthetic data depend on it.
        csv: how a CSV file is written.
        test_within_groups: whether the share is held out of each natural group and not of all rows.
    """

    columns: Columns = Columns()
    test_fraction: float | None = None
    test_file: str | None = None
    examples: int | None = None
    seed: int = 0
    csv: CsvFormat = CsvFormat()
    test_within_groups: bool = False


AS_FOUND = Request()
"""Nothing is named."""


@dataclass(frozen=True)
class DataLocation:
    """Where a source was found: how to read it, and what is known of it.

    Attributes:
        source: what the spec says.
        form: how to read it.
        folder: where it lies, for files and folders.
        built_in: its row of the catalogue, if it has one.
        examples: training rows to make, for ``synthetic``.
        tried: folders where a Hub source, or one that is fetched by hand, was sought in vain.
    """

    source: str
    form: Form
    folder: Path = Path()
    built_in: BuiltIn | None = None
    examples: int = 0
    tried: str = ""


def locate(source: str, request: Request) -> DataLocation:
    """Find where and in which form ``source`` is, on this machine or on the Hub; no data are read.

    Raises:
        SpecError: the source is of no known form, or an option of ``request`` does not go with its form.
        DataError: a file or folder does not exist or holds no data set.
    """
    place, columns = _search(source, request.examples), request.columns
    if place.form != "synthetic" and request.examples is not None:
        raise SpecError("data.examples_per_device", request.examples, "only with source: synthetic")
    # Built-in sets with columns may lie here as IDX files; a group needs the Hub's copy or files by user.
    own_groups = None if place.built_in is None else place.built_in.group_column
    options = {
        "image_column": columns.image,
        "feature_columns": None if columns.features is None else list(columns.features),
        "label_column": columns.label,
        "group_column": None if _has_groups(place) and columns.group == own_groups else columns.group,
        "site_column": columns.site,
        "person_column": columns.person,
        "test_column": columns.test,
        "scale": {name: [low, high] for name, low, high in columns.scale} or None,
        "test_file": request.test_file,
        "test_within": "group" if request.test_within_groups else None,
        "task": None if columns.task == "classification" else columns.task,
        "vocabulary": columns.vocabulary,
        "separator": None if request.csv.separator == "," else request.csv.separator_name,
        "decimal": None if request.csv.decimal == "." else request.csv.decimal,
    }
    for option, value in options.items():
        if value is not None and option not in _OPTIONS.get(place.form, ()):
            if option in ("task", "vocabulary"):
                allowed = f"goes with data of your own: {source} has images and one label each"
                raise SpecError(f"data.{option}", value, allowed)
            if option in ("separator", "decimal"):
                raise SpecError(f"data.{option}", value, "goes with a file that ends in .csv")
            if option == "person_column":
                allowed = "goes with a CSV, Parquet or Arrow file, or a data frame given in Python"
                raise SpecError("data.person_column", value, allowed)
            what = "no named columns" if option.endswith(("column", "columns")) else "nothing that uses it"
            raise SpecError(f"data.{option}", value, f"nothing: {source} here has {what}")
    if "test_fraction" not in _OPTIONS.get(place.form, ()):
        refuse_test_fraction(request.test_fraction, True)
    if request.test_within_groups and place.built_in is not None and place.built_in.has_test_split:
        raise held_out_within_error(HAS_TEST_SPLIT)
    return place


def _has_groups(place: DataLocation) -> bool:
    """Whether the data in ``place`` name natural groups without a column.

    Files by user do, and a set that is fetched as such files.
    """
    return place.form in ("leaf", "tff", "absent")


def files_of(source: str, test_file: str | None = None) -> dict[str, Path]:
    """The files on this machine that ``source`` is read from, by name; empty where there are none.

    Args:
        source: as the spec names it.
        test_file: path of a file of rows to test on; it is named ``test_file`` in what is returned.

    Raises:
        SpecError: the source is of no known form, or ``test_file`` is no path.
        DataError: a file or folder does not exist or holds no data set.
    """
    if source in ("synthetic", "digits"):
        return {}
    from sfumato.data.cifar import cifar_files
    from sfumato.data.idx import idx_files
    from sfumato.data.image_folder import image_files
    from sfumato.data.mapped import array_files

    place = _search(source, None)
    match place.form:
        case "idx":
            return {path.name: path for path in idx_files(place.folder)}
        case "cifar":
            return {path.name: path for path in cifar_files(place.folder)}
        case "csv" | "parquet" | "arrow" | "npz" | "leaf" | "tff":
            tested = {} if test_file is None else {"test_file": existing_file(test_file, "data.test_file")}
            return _files_by_name(place) | tested
        case "npy":
            return {path.name: path for path in array_files(place.folder).values()}
        case "images":
            return {str(path.relative_to(place.folder)): path for path in image_files(place.folder)}
        case "folder":  # what `datasets` caches beside the data is not data
            found = (path for path in sorted(place.folder.rglob("*")) if path.is_file())
            return {
                str(path.relative_to(place.folder)): path
                for path in found
                if not path.name.startswith("cache-")
            }
        case _:
            return {}


def _files_by_name(place: DataLocation) -> dict[str, Path]:
    """The path of a file, or of each file with data in a folder, by its name within the folder."""
    from sfumato.data.leaf import leaf_files
    from sfumato.data.tff import tff_files

    if place.folder.is_file():
        return {place.folder.name: place.folder}
    found = [*itertools.chain(*leaf_files(place.folder))] if place.form == "leaf" else tff_files(place.folder)
    return {str(path.relative_to(place.folder)): path for path in found if path is not None}


def _search(source: str, examples: int | None) -> DataLocation:
    """The location of ``source``: synthetic, built in, a folder, a file, a factory or the Hub.

    ``examples``: training rows to make, for ``synthetic``.

    Raises:
        SpecError: it stands for nothing, or ``synthetic`` has no ``examples``.
        DataError: a folder that does not exist, or whose files have no form that is read.
    """
    if source == "synthetic":
        if examples is None or examples < 1:
            raise SpecError(
                "data.examples_per_device", examples, "a positive number is needed for synthetic data"
            )
        return DataLocation(source, "synthetic", examples=examples)
    if source == "digits":
        return DataLocation(source, "digits", built_in=BUILT_IN[source])
    if source.startswith(GIVEN):
        return DataLocation(source, "given")
    if is_factory(source):
        return DataLocation(source, "factory")
    if source in BUILT_IN:
        return _search_built_in(source)
    form_of_file = FORM_OF_SUFFIX.get(Path(source).suffix.lower())
    if form_of_file is not None:
        return DataLocation(source, form_of_file, existing_file(source, "data.source"))
    if Path(source).suffix.lower() in BY_USER_SUFFIXES:
        file = existing_file(source, "data.source")
        return DataLocation(source, form_of_contents(file), file)
    try:
        folder = Path(source).expanduser()
        there = folder.exists()
        form = form_of_folder(folder) if there else None
    except (OSError, RuntimeError, ValueError) as error:  # no name of a file, no such home, not readable
        reason = (error.strerror if isinstance(error, OSError) else None) or str(error)
        raise SpecError("data.source", printable_name(source), f"cannot be read: {reason}") from None
    if form is not None:
        return DataLocation(source, form, folder)
    if there:
        raise DataError(
            f"{printable_name(source)}: neither IDX files nor CIFAR's binary files, nor LEAF's JSON files, "
            "nor HDF5 files, nor a folder written by datasets.save_to_disk, nor .npy files, nor a sub-folder "
            f"of images for every class; files of data end in {', '.join(DATA_SUFFIXES)}"
        )
    if source.count("/") == 1 and all(source.split("/")) and source[0] not in ".~":
        return DataLocation(source, "hub", tried=str(folder))
    if "/" in source:
        raise DataError(f"{printable_name(str(folder))}: no such folder{_near(folder)}")
    known, near = ", ".join(sorted(BUILT_IN)), closest_hint(source, [*BUILT_IN, "synthetic"]) or _near(folder)
    if hint := _OTHER_FILES.get(folder.suffix.lower()):
        near = f" ({hint})"
    raise SpecError(
        "data.source",
        source,
        f"one of {known}, synthetic, a file ({', '.join(DATA_SUFFIXES)}), a folder, a Hub id 'org/name', "
        f"package.module:factory or FILE.py:factory{near}",
    )


def _search_built_in(name: str) -> DataLocation:
    """The location of a built-in set that is in a folder here, on the Hub, or to be fetched by hand."""
    folders, built_in = _local_folders(name), BUILT_IN[name]
    for folder in folders:
        if (form := form_of_folder(folder)) is not None:
            return DataLocation(name, form, folder, built_in)
    tried = ", ".join(map(str, folders))
    if ENVIRONMENT_VARIABLE not in os.environ:
        tried += f" (${ENVIRONMENT_VARIABLE} is not set)"
    return DataLocation(name, "absent" if built_in.to_fetch else "hub", built_in=built_in, tried=tried)


def existing_file(written: str, place: str) -> Path:
    """The path of a file that the spec names at the key ``place``, ``~`` expanded.

    Raises:
        SpecError: ``written`` is no path.
        DataError: there is no such file (the message suggests a similar name), or it is no regular file.
    """
    try:
        path = Path(written).expanduser()
        if path.is_file():
            return path
        there = path.exists()
    except (OSError, RuntimeError, ValueError) as error:
        raise SpecError(place, printable_name(written), f"cannot be read: {error}") from None
    shown = printable_name(str(path))
    if there:
        raise DataError(f"{place}: {shown}: is a folder, pipe or device; must be a file")
    raise DataError(
        f"{place}: {shown}: no such file, neither beside the spec nor in the working directory{_near(path)}"
    )


def _near(path: Path) -> str:
    """A hint with a similar name in the folder of ``path``; "" if there is none."""
    try:
        return closest_hint(path.name, [child.name for child in path.parent.iterdir()])
    except (OSError, ValueError):
        return ""


def is_factory(source: str) -> bool:
    """Whether ``source`` is written ``package.module:factory`` or ``FILE.py:factory``."""
    return re.fullmatch(r"([A-Za-z_][\w.]*|.+\.py):[A-Za-z_]\w*", source) is not None


def _local_folders(name: str) -> list[Path]:
    """Folders on this machine in which the data set called ``name`` may be, in the order of search."""
    own = os.environ.get(ENVIRONMENT_VARIABLE)
    return [root / name for root in ([Path(own)] if own else []) + [SYSTEM_FOLDER]]
