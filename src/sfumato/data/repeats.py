"""Columns of a table that are called like identifiers, or whose values stand in several rows."""

from __future__ import annotations

import re
from functools import lru_cache

from sfumato.data.dataset_sizes import request_of, state_of_file
from sfumato.data.locate import Request, locate
from sfumato.data.own_rows import open_table
from sfumato.spec.data import Data

_ID_NAME = re.compile(
    r"(?i:(.*[ _.-])?(id|ids|uuid|guid|mrn|ssn|identifier)|index|unnamed: \d+|"
    r"(patient|person|subject|record|row|case|sample|user|customer|client)[ _]?(id|nr|no|number|code)|"
    r"patient|person|subject|participant|proband)|"
    r".*[a-z]I[Dd]"
)


def looks_like_id(column: str) -> bool:
    """Whether the name of a column suggests identifiers ("patient_id", "caseNo" and the like)."""
    return _ID_NAME.fullmatch(column.strip()) is not None


def repeating_ids(data: Data) -> tuple[str, ...]:
    """Names of the columns of a CSV, Parquet or Arrow file that look like identifiers and hold a value twice.

    Only columns whose names pass `looks_like_id` are read.

    Args:
        data: the section of the spec.

    Returns:
        Names in the order of the file; empty where the data are no such file.

    Raises:
        SpecError: the section does not fit the data set.
        DataError: the file is not on this machine, or cannot be read.
    """
    return _repeating(data.source, request_of(data, 1), state_of_file(data.source))


@lru_cache(maxsize=8)
def _repeating(source: str, request: Request, stamp: object) -> tuple[str, ...]:
    """`repeating_ids` of ``source``, cached as long as ``stamp``, the state of the file, is the same."""
    place = locate(source, request)
    table = open_table(place.folder, place.form, request.csv)
    if table is None:
        return ()
    ids = [name for name in table.types if looks_like_id(name)]
    read = table.read(dict.fromkeys(ids, "text")) if ids else {}
    texts = {name: [text for text in read[name].to_pylist() if text] for name in ids}
    return tuple(name for name, values in texts.items() if len(set(values)) < len(values))
