"""Data sets of the Hugging Face Hub and folders written by ``save_to_disk`` (extra ``hub``)."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from sfumato.data.image_folder import MODES
from sfumato.data.locate import Columns
from sfumato.data.rows import target_columns
from sfumato.errors import DataError, MissingExtraError, SpecError, first_line

if TYPE_CHECKING:
    import datasets
    import pyarrow

_BATCH = 1_000
_PATIENCE_S = 5.0  # for an answer of the Hub
_Decode = Callable[["datasets.Dataset", str], Iterator[NDArray[np.float32]]]
_TEST_SPLITS = ("test", "validation", "valid")


@dataclass(frozen=True)
class HubSplit:
    """One split whose columns are known, not yet decoded.

    Attributes:
        rows: the split itself.
        features: name of the column of images or vectors.
        labels: names of the columns of labels; none for next tokens.
        group: name of the column of natural groups, if one was asked for.
        site: name of the column of sites, if one was asked for.
        columns: as the spec names them, and what is learnt.
    """

    rows: datasets.Dataset
    features: str
    labels: tuple[str, ...]
    group: str | None
    site: str | None
    columns: Columns


def open_folder(folder: Path, columns: Columns) -> tuple[HubSplit, HubSplit | None]:
    """The training split and the test split (or ``None``) in a folder of ``datasets.save_to_disk``.

    Raises:
        MissingExtraError: ``datasets`` is not installed.
        DataError: the folder cannot be read or has no training split.
        SpecError: a column is missing or ambiguous.
    """
    library = _library(f"data.source: {folder}")
    try:
        opened = library.load_from_disk(str(folder))
    except Exception as error:  # whatever damage there is, the user needs one line
        raise DataError(f"{folder}: cannot be read as a saved data set ({first_line(error)})") from error
    splits = opened if isinstance(opened, library.DatasetDict) else {"train": opened}
    return _splits_of(splits, columns, str(folder))


def open_hub(
    hub_id: str, columns: Columns, *, tried: str, download: bool
) -> tuple[HubSplit, HubSplit | None]:
    """The training split and the test split (or ``None``) of the data set ``hub_id`` of the Hub.

    The local cache of ``datasets`` comes first, then, if ``download``, the network. Where
    ``HF_HUB_OFFLINE`` or ``HF_DATASETS_OFFLINE`` is set, the network is not asked. A Hub (``HF_ENDPOINT``, by
    the proxies of the environment) that does not answer within seconds is not asked again.

    Args:
        hub_id: ``"org/name"``.
        columns: which columns to read.
        tried: where the data were sought before, for the error message.
        download: whether the network may be used.

    Raises:
        MissingExtraError: ``datasets`` is not installed.
        DataError: neither cache nor Hub has it, or it has no training split.
        SpecError: a column is missing or ambiguous.
    """
    library = _library(f"data.source: {hub_id}" + (f" (not in {tried})" if tried else ""))
    opened: Any = None
    try:
        with _offline(library):
            opened = library.load_dataset(hub_id)
    except Exception as error:
        failure, place = error, "the local cache of Hugging Face"
    is_offline = _is_set_offline(library)
    if opened is None and download and not is_offline:
        try:
            _ask_hub(hub_id)
            opened = library.load_dataset(hub_id)
        except Exception as error:  # libraries below raise their own network errors
            failure, place = error, "the Hugging Face Hub"
    if opened is None:
        before = f"{tried}, " if tried else ""
        hint = "" if download else "; accounting never downloads: fetch it once with datasets.load_dataset"
        if download and is_offline:
            hint = "; HF_HUB_OFFLINE or HF_DATASETS_OFFLINE is set, so it was not sought on the Hub"
        raise DataError(f"{hub_id}: not in {before}nor in {place} ({first_line(failure)}){hint}") from failure
    return _splits_of(opened, columns, hub_id)


def read_labels(split: HubSplit) -> NDArray[Any]:
    """Labels [N] as stored, integers or strings; zeros unless the task is classification.

    Raises:
        DataError: a label is missing or is neither an integer nor a string.
    """
    if split.columns.task != "classification":
        return np.zeros(len(split.rows), np.int64)
    label = split.labels[0]
    values = _values_of_column(split, label)
    if values.dtype.kind not in "iuUO" or (values.dtype.kind == "O" and not isinstance(values[0], str)):
        raise DataError(f"column '{label}': labels must be integers or strings")
    return values


def read_targets(split: HubSplit) -> NDArray[np.float32] | None:
    """Targets [N, K] of the tasks regression and multi-label; ``None`` with any other task.

    Raises:
        DataError: a value is missing or no number, or of a label set neither 0 nor 1.
    """
    if split.columns.task not in ("regression", "multi-label"):
        return None
    rows = split.rows.select_columns(list(split.labels)).with_format("numpy")[:]
    found = [np.asarray(rows[name]) for name in split.labels]
    parts = [
        target_columns(split.columns, part, f"column '{name}'")
        for part, name in zip(found, split.labels, strict=True)
    ]
    return np.concatenate(parts, axis=1)


def read_groups(split: HubSplit) -> NDArray[np.int64] | None:
    """Natural group of each row [N], numbered from 0 in sorted order; ``None`` if none was asked for.

    Raises:
        DataError: a row has no group.
    """
    if split.group is None:
        return None
    return np.unique(_values_of_column(split, split.group), return_inverse=True)[1].astype(np.int64)


def read_row_sites(split: HubSplit) -> NDArray[np.str_] | None:
    """Name of the site of each row [N]; ``None`` if none was asked for.

    Raises:
        DataError: a row has no site.
    """
    if split.site is None:
        return None
    return np.array(
        [str(site).strip() for site in _values_of_column(split, split.site).tolist()], dtype=np.str_
    )


def read_features(split: HubSplit, rows: NDArray[np.integer[Any]] | None = None) -> NDArray[np.float32]:
    """Features of ``rows`` (all by default): images [N, C, H, W] in [0, 1] or vectors [N, F] as stored.

    Bytes are divided by 255; other numbers are taken as they are.

    Raises:
        DataError: examples differ in shape, an image has an unusual mode, or a value is not finite.
    """
    chosen = split.rows.select_columns([split.features])
    if rows is not None:
        chosen = chosen.select(rows)
    decode: _Decode = _decode_images
    if not _is_image(split.rows, split.features):
        decode = partial(_decode_vectors, are_tokens=split.columns.vocabulary is not None)
    out: NDArray[np.float32] | None = None
    start = 0
    for block in decode(chosen, split.features):
        if out is None:
            out = np.empty((len(chosen), *block.shape[1:]), np.float32)
        if block.shape[1:] != out.shape[1:]:
            raise DataError(
                f"column '{split.features}': examples of shape {out.shape[1:]} and {block.shape[1:]}"
            )
        out[start : start + len(block)] = block
        start += len(block)
    if out is None:
        raise DataError(f"column '{split.features}': no rows")
    if not np.isfinite(out).all():
        raise DataError(f"column '{split.features}': some values are not finite")
    return out


def is_image_table(split: HubSplit) -> bool:
    """Whether the features of ``split`` are images, which are read as pixels in [0, 1]."""
    return _is_image(split.rows, split.features)


def _library(feature: str) -> Any:
    """The module ``datasets``; `MissingExtraError`, which names ``feature``, if it is not installed."""
    try:
        import datasets
    except ImportError as error:
        raise MissingExtraError(feature, "hub") from error
    return datasets


def _is_set_offline(library: Any) -> bool:
    """Whether the user keeps the libraries off the network; they read the variables once, on import."""
    import huggingface_hub.constants as constants

    return bool(getattr(library.config, _offline_switch(library)) or constants.HF_HUB_OFFLINE)


def _ask_hub(hub_id: str) -> None:
    """Ask the Hub for ``hub_id`` once: loading repeats its requests for half a minute where nobody answers.

    Raises:
        Exception: of the HTTP library, if there is no answer. What an answer means is left to loading.
    """
    from huggingface_hub import HfApi
    from huggingface_hub.errors import HfHubHTTPError

    with contextlib.suppress(HfHubHTTPError):
        HfApi().dataset_info(hub_id, timeout=_PATIENCE_S)


def _offline_switch(library: Any) -> str:
    """The name of the library's setting that keeps it offline; before 2.21 it had another name."""
    return "HF_HUB_OFFLINE" if hasattr(library.config, "HF_HUB_OFFLINE") else "HF_DATASETS_OFFLINE"


@contextlib.contextmanager
def _offline(library: Any) -> Iterator[None]:
    """Context in which the Hub's libraries are offline and quiet."""
    import huggingface_hub.constants as constants

    # The library reads HF_HUB_OFFLINE once, on import; a look into the cache needs it only here.
    verbosity = library.logging.get_verbosity()
    switch = _offline_switch(library)
    before = getattr(library.config, switch), constants.HF_HUB_OFFLINE
    setattr(library.config, switch, True)
    constants.HF_HUB_OFFLINE = True
    library.logging.set_verbosity_error()
    try:
        yield
    finally:
        setattr(library.config, switch, before[0])
        constants.HF_HUB_OFFLINE = before[1]
        library.logging.set_verbosity(verbosity)


def _splits_of(splits: Any, columns: Columns, where: str) -> tuple[HubSplit, HubSplit | None]:
    """The training split and, where there is one, the test split, with their columns found.

    ``where``: the source, for messages.

    Raises:
        SpecError: a column that the data have not, or whose values are neither images nor numbers.
        DataError: there is no training split, or it is empty.
    """
    if "train" not in splits or len(splits["train"]) == 0:
        raise DataError(
            f"{where}: has no rows in a split named 'train' (it has {', '.join(map(str, splits))})"
        )
    train = splits["train"]
    features = columns.image or _find_features(train)
    labels = _label_names(train, columns)
    for option, name in (
        ("image_column", features),
        *(("label_column", label) for label in labels),
        ("group_column", columns.group),
        ("site_column", columns.site),
    ):
        if name is not None and name not in train.column_names:
            raise SpecError(f"data.{option}", name, f"one of {', '.join(train.column_names)}")
    if not (_is_image(train, features) or _is_vector(train, features)):
        raise SpecError("data.image_column", features, "a column of images or of lists of numbers")
    test = next((splits[name] for name in _TEST_SPLITS if name in splits and len(splits[name])), None)
    return (
        HubSplit(train, features, labels, columns.group, columns.site, columns),
        None if test is None else HubSplit(test, features, labels, None, None, columns),
    )


def _label_names(rows: datasets.Dataset, columns: Columns) -> tuple[str, ...]:
    """The names of the columns with labels; empty for texts, which are their own labels."""
    if columns.task == "next-token":
        return ()
    if isinstance(columns.label, tuple):
        return columns.label
    return (columns.label or _find_label(rows),)


def _is_image(rows: datasets.Dataset, name: str) -> bool:
    """Whether the column ``name`` holds images."""
    return type(rows.features[name]).__name__ == "Image"


def _is_vector(rows: datasets.Dataset, name: str) -> bool:
    """Whether the column ``name`` holds numbers, or lists of them."""
    import pyarrow

    # By Arrow type: the library's own feature classes were renamed between its versions 2 and 4.
    kind = rows.features.arrow_schema.field(name).type
    while True:
        if isinstance(kind, pyarrow.ExtensionType):
            kind = kind.storage_type
        elif (
            pyarrow.types.is_list(kind)
            or pyarrow.types.is_large_list(kind)
            or pyarrow.types.is_fixed_size_list(kind)
        ):
            kind = kind.value_type
            if pyarrow.types.is_integer(kind) or pyarrow.types.is_floating(kind):
                return True
        else:
            return False


def _find_features(rows: datasets.Dataset) -> str:
    """The name of the only column that can hold features."""
    names = [name for name in rows.column_names if _is_image(rows, name)]
    names = names or [name for name in rows.column_names if _is_vector(rows, name)]
    return _only_column(names, "image_column", rows, "images or lists of numbers")


def _find_label(rows: datasets.Dataset) -> str:
    """The name of the only column that can hold labels."""
    names = [name for name in rows.column_names if type(rows.features[name]).__name__ == "ClassLabel"]
    names = names or [name for name in ("label", "labels") if name in rows.column_names]
    return _only_column(names, "label_column", rows, "class labels")


def _only_column(names: list[str], option: str, rows: datasets.Dataset, content: str) -> str:
    """The only one of ``names``, columns that may hold ``content`` (such as images).

    Raises:
        SpecError: there are none or several; the message asks for the option ``option``.
    """
    if len(names) != 1:
        found = (
            f"several columns hold {content} ({', '.join(names)})"
            if names
            else f"no column of {content} found"
        )
        raise SpecError(f"data.{option}", None, f"{found}; name one of {', '.join(rows.column_names)}")
    return names[0]


def _values_of_column(split: HubSplit, name: str) -> NDArray[Any]:
    """The values of the column ``name``, ``[N]``; `DataError` if one is missing."""
    column: pyarrow.ChunkedArray = split.rows.select_columns([name]).with_format("arrow")[:][name]
    if column.null_count:
        raise DataError(f"column '{name}': {column.null_count:,} rows have no value")
    return np.asarray(column.to_numpy())


def _decode_images(rows: datasets.Dataset, name: str) -> Iterator[NDArray[np.float32]]:
    """Yield the images of the column ``name`` in blocks ``[n, C, H, W]``, pixels from 0 to 1.

    Raises:
        DataError: a row has no image, or one of another size or of a mode that is not known.
    """
    for batch in rows.iter(_BATCH):
        images = batch[name]
        if any(image is None for image in images):
            raise DataError(f"column '{name}': a row has no image")
        odd = {image.mode for image in images} - MODES.keys()
        if odd:
            raise DataError(
                f"column '{name}': images of mode {', '.join(sorted(odd))}; convert them to L or RGB"
            )
        try:
            arrays = [np.asarray(image.convert(MODES[image.mode])) for image in images]
            stacked = np.stack(arrays)
        except (OSError, ValueError) as error:
            raise DataError(f"column '{name}': images cannot be stacked ({first_line(error)})") from error
        pixels = stacked[:, None] if stacked.ndim == 3 else stacked.transpose(0, 3, 1, 2)
        yield pixels.astype(np.float32) / np.float32(255)


def _decode_vectors(rows: datasets.Dataset, name: str, *, are_tokens: bool) -> Iterator[NDArray[np.float32]]:
    """Yield the vectors of column ``name`` in blocks ``[n, ...]``; bytes but tokens are scaled to 1.

    Raises:
        DataError: a value is missing, or vectors differ in length.
    """
    for batch in rows.with_format("numpy").iter(_BATCH):
        values = np.asarray(batch[name])
        if values.dtype.kind not in "iuf":
            raise DataError(f"column '{name}': examples have different lengths or missing values")
        block = values.astype(np.float32)
        yield block / np.float32(255) if values.dtype == np.uint8 and not are_tokens else block
