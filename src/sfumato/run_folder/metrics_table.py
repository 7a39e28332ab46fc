"""``metrics.parquet``: one row for each round, written in parts so that a long run fits into memory."""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path

import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq

from sfumato.durable_files import replacing
from sfumato.errors import RunError
from sfumato.run_folder.manifest import FileRecord
from sfumato.run_folder.rounds_log import LoggedRound

METRICS_FILE = "metrics.parquet"
EPSILON_PREFIX = "epsilon:"
METRIC_COLUMNS = (
    "round", "accuracy", "loss", "energy_j", "delay_s", "bytes_up", "bytes_down", "clip_fraction",
    "noise_std", "wall_time_s",
)  # fmt: skip
_WHOLE = dict.fromkeys(("round", "bytes_up", "bytes_down"), "int64")
_METADATA = b"sfumato"


def write_metrics(folder: Path, parts: Iterable[pd.DataFrame], hashes: Mapping[str, str]) -> FileRecord:
    """Write ``metrics.parquet``; returns its record for the manifest.

    Args:
        folder: of the run.
        parts: rows in order, all with the same columns; each becomes a row group.
        hashes: of the run's spec and inputs, written to the file's metadata.

    Raises:
        RunError: a column of ``METRIC_COLUMNS`` is missing, or the file cannot be written.
    """
    path = folder / METRICS_FILE
    with replacing(path) as file:
        writer = None
        for part in parts:
            missing = [name for name in METRIC_COLUMNS if name not in part.columns]
            if missing:
                raise RunError(f"{path}: metrics lack {', '.join(missing)}")
            table = pa.Table.from_pandas(part, preserve_index=False)
            if writer is None:
                said = {**(table.schema.metadata or {}), _METADATA: json.dumps(dict(hashes))}
                table = table.replace_schema_metadata(said)
                writer = pq.ParquetWriter(file, table.schema)
            writer.write_table(table)
        if writer is not None:
            writer.close()
    return FileRecord.of(file)


def read_metrics(path: Path) -> tuple[pd.DataFrame, dict[str, str]]:
    """The table in a ``metrics.parquet``, and the hashes of the run's spec and inputs by name.

    Raises:
        RunError: the file is missing, damaged, or not a table of metrics.
    """
    if not path.is_file():
        raise RunError(f"{path}: is missing; the run is not finished (resume it)")
    try:
        table = pq.read_table(path)
        hashes = json.loads((table.schema.metadata or {}).get(_METADATA, b"{}"))
        metrics = table.to_pandas()
    except (OSError, ValueError) as error:  # pyarrow's errors are ValueErrors
        raise RunError(f"{path}: cannot be read: {error}") from None
    missing = [name for name in METRIC_COLUMNS if name not in metrics.columns]
    if missing:
        raise RunError(f"{path}: lacks the columns {', '.join(missing)}")
    return metrics, hashes


def columns_of(rounds: Iterable[LoggedRound]) -> tuple[str, ...]:
    """The columns of a table of ``rounds``, in order: round, accuracy, loss, other metrics, ε, costs."""
    names = dict.fromkeys(name for one in rounds for name in one.metrics)
    epsilons = [name for name in names if name.startswith(EPSILON_PREFIX)]
    others = [name for name in names if name not in {*METRIC_COLUMNS, *epsilons}]
    return ("round", "accuracy", "loss", *others, *epsilons, *METRIC_COLUMNS[3:])


def tables_of(
    rounds: Iterable[LoggedRound], columns: tuple[str, ...], *, most: int = 4096
) -> Iterator[pd.DataFrame]:
    """Yield the metrics of ``rounds``, one row each, as tables with ``columns`` and at most ``most`` rows."""
    rows: list[Mapping[str, float]] = []
    for one in rounds:
        rows.append(one.metrics)
        if len(rows) == most:
            yield _table(rows, columns)
            rows = []
    if rows:
        yield _table(rows, columns)


def table_of(rounds: Iterable[LoggedRound]) -> pd.DataFrame:
    """The metrics of ``rounds`` as one table: a row for each round, and the columns that `columns_of` names.

    Rounds and bytes are integers, all else floats; NaN where a round lacks a metric that another one has.
    """
    known = list(rounds)
    return _table([one.metrics for one in known], columns_of(known))


def _table(rows: list[Mapping[str, float]], columns: tuple[str, ...]) -> pd.DataFrame:
    """``rows`` as a data frame with these columns, whole numbers as integers."""
    return pd.DataFrame(rows, columns=list(columns), dtype="float64").astype(_WHOLE)


def last_measured(values: pd.Series[float]) -> float:
    """The last value of a column that is not missing; NaN if all are missing."""
    measured = values.dropna()
    return float(measured.iloc[-1]) if len(measured) else math.nan
