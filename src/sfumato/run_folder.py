"""A run folder: what lies in it, how it is written so that a kill leaves it whole, how it is read.

    spec.yaml        the resolved, calibrated spec, versions included
    metrics.parquet  one row a round
    privacy.json     guarantees and claims          ledger.json   what they can be recomputed from
    model.pt         the trained model              checkpoint.pt where a resumed run goes on
    groups.pt        the models of all groups, of grouped protocols
    report.html      all of it drawn                tensorboard/  the metrics again, where that is installed
    attacks/         what attacks on recorded views found (docs/attacks.md)

Every file is written beside its place and renamed into it, so a reader meets the old file or the
new one, never half of one.
"""

from __future__ import annotations

import json
import math
import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pandas as pd

from sfumato.errors import RunError, SpecError
from sfumato.user_text import MAX_OWN_BYTES, parse_json, parse_yaml, plain, read_text

SPEC_FILE = "spec.yaml"
METRICS_FILE = "metrics.parquet"
PRIVACY_FILE = "privacy.json"
LEDGER_FILE = "ledger.json"
MODEL_FILE = "model.pt"
GROUPS_FILE = "groups.pt"
CHECKPOINT_FILE = "checkpoint.pt"
REPORT_FILE = "report.html"
ATTACKS_FOLDER = "attacks"

EPSILON_PREFIX = "epsilon:"
METRIC_COLUMNS = (
    "round", "accuracy", "loss", "energy_j", "delay_s", "bytes_up", "bytes_down", "clip_fraction",
    "noise_std", "wall_time_s",
)  # fmt: skip
_GUARANTEE_KEYS = ("unit", "observer", "stands_for", "epsilon")
_CLAIM_KEYS = ("source", "unit", "observer", "claimed_epsilon", "rigorous_epsilon", "holds")


@dataclass(frozen=True)
class RunFolder:
    """A run as its folder tells it.

    Attributes:
        path: the folder.
        spec_text: ``spec.yaml`` as it stands.
        spec_dict: the same, parsed, not validated again.
        metrics: one row a round; ``epsilon:OBSERVER`` columns may hold infinities, a column that does not
            apply (accuracy in a round that was not evaluated) NaN.
        privacy: ``privacy.json``; an infinite epsilon is ``"inf"`` there (``as_epsilon`` reads both).
        finished: all rounds of the spec are played and the model is written.
    """

    path: Path
    spec_text: str
    spec_dict: dict[str, Any]
    metrics: pd.DataFrame
    privacy: dict[str, Any]
    finished: bool

    @property
    def name(self) -> str:
        """The spec's name."""
        return str(self.spec_dict["name"])

    @property
    def rounds(self) -> int:
        """How many rounds the spec asks for."""
        return int(self.spec_dict["training"]["rounds"])

    @property
    def observers(self) -> tuple[str, ...]:
        """The observers whose epsilon the metrics follow, in column order."""
        names = (str(name) for name in self.metrics.columns)
        return tuple(n.removeprefix(EPSILON_PREFIX) for n in names if n.startswith(EPSILON_PREFIX))


def as_epsilon(value: float | str) -> float:
    """An epsilon of ``privacy.json``: a number, or ``"inf"``."""
    return float(value)


def load_run(path: str | Path) -> RunFolder:
    """Reads a run folder.

    Raises:
        SpecError: there is no run at ``path``, or its spec.yaml is not a spec.
        RunError: a file of the run is missing, damaged or not what its name says.
    """
    folder = Path(path)
    if not folder.is_dir():
        raise SpecError(str(folder), None, "no such run folder")
    if not (folder / SPEC_FILE).is_file():
        raise SpecError(str(folder), None, f"is not a run folder: it has no {SPEC_FILE}")
    spec_text, spec = _read_spec(folder / SPEC_FILE)
    metrics = _read_metrics(folder / METRICS_FILE)
    privacy = _read_privacy(folder / PRIVACY_FILE)
    finished = (folder / MODEL_FILE).is_file() and (
        len(metrics) >= int(spec["training"]["rounds"]) or spec.get("control") is not None
    )
    return RunFolder(folder, spec_text, spec, metrics, privacy, finished)


def write_spec(folder: Path, text: str) -> None:
    """Writes ``spec.yaml``."""
    _write_text(folder / SPEC_FILE, text)


def write_metrics(folder: Path, metrics: pd.DataFrame) -> None:
    """Writes ``metrics.parquet``; every column of ``METRIC_COLUMNS`` must be there."""
    missing = [name for name in METRIC_COLUMNS if name not in metrics.columns]
    if missing:
        raise RunError(f"{folder / METRICS_FILE}: metrics lack {', '.join(missing)}")
    with replacing(folder / METRICS_FILE) as temporary:
        metrics.to_parquet(temporary, engine="pyarrow", index=False)


def write_privacy(folder: Path, privacy: Mapping[str, Any]) -> None:
    """Writes ``privacy.json``; infinities become ``"inf"``."""
    write_json(folder / PRIVACY_FILE, privacy)


def write_ledger(folder: Path, ledger: Mapping[str, Any]) -> None:
    """Writes ``ledger.json``; infinities become ``"inf"``."""
    write_json(folder / LEDGER_FILE, ledger)


def read_ledger(folder: Path) -> dict[str, Any]:
    """Reads ``ledger.json``; raises ``RunError`` where it is missing or damaged."""
    return read_json(folder / LEDGER_FILE)


def read_json(path: Path) -> dict[str, Any]:
    """A JSON object; raises ``RunError`` where it is missing or damaged."""
    try:
        value = parse_json(_read_text(path), str(path), most=MAX_OWN_BYTES)
    except SpecError as error:
        raise RunError(str(error)) from None
    if not isinstance(value, dict):
        raise RunError(f"{path}: must hold a JSON object")
    return value


def write_json(path: Path, value: Mapping[str, Any]) -> None:
    """Writes a JSON object, whole or not at all; infinities become ``"inf"``."""
    _write_text(path, json.dumps(_finite(value), indent=1, ensure_ascii=False, allow_nan=False) + "\n")


@contextmanager
def replacing(path: Path) -> Iterator[Path]:
    """Yields a temporary path in the same folder; what was written there takes ``path``'s place at the end.

    The folder is made if need be. After an exception nothing is left behind and ``path`` is as it was.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    try:
        yield temporary
        with temporary.open("rb+") as file:
            os.fsync(file.fileno())
        temporary.replace(path)
    finally:
        temporary.unlink(missing_ok=True)


def _write_text(path: Path, text: str) -> None:
    with replacing(path) as temporary:
        temporary.write_text(text, encoding="utf-8", newline="\n")


def _finite(value: Any) -> Any:
    if isinstance(value, float) and math.isinf(value):
        return "inf" if value > 0 else "-inf"
    if isinstance(value, Mapping):
        return {str(key): _finite(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_finite(item) for item in value]
    return value


def _read_text(path: Path) -> str:
    if not path.exists():
        raise RunError(f"{path}: missing; the run has not got that far (resume it)")
    try:
        return read_text(path, most=MAX_OWN_BYTES)
    except SpecError as error:
        raise RunError(str(error)) from None


def _read_spec(path: Path) -> tuple[str, dict[str, Any]]:
    text = _read_text(path)
    spec = plain(parse_yaml(text, str(path)), str(path))
    if not isinstance(spec, dict):
        raise SpecError(str(path), None, "must hold a mapping")
    for key in ("name", "protocol", "topology", "training"):
        if key not in spec:
            raise SpecError(f"{path}: {key}", None, "is missing")
    rounds = spec["training"].get("rounds") if isinstance(spec["training"], dict) else None
    if not isinstance(rounds, int):
        raise SpecError(f"{path}: training.rounds", rounds, "must be a whole number")
    return text, spec


def _read_metrics(path: Path) -> pd.DataFrame:
    if not path.is_file():
        raise RunError(f"{path}: missing; the run has not got that far (resume it)")
    try:
        metrics = pd.read_parquet(path, engine="pyarrow")
    except (OSError, ValueError) as error:  # pyarrow's errors are ValueErrors
        raise RunError(f"{path}: cannot be read: {error}") from None
    missing = [name for name in METRIC_COLUMNS if name not in metrics.columns]
    if missing:
        raise RunError(f"{path}: lacks the columns {', '.join(missing)}")
    return metrics


def _read_privacy(path: Path) -> dict[str, Any]:
    privacy = read_json(path)
    _check_rows(path, privacy, "guarantees", _GUARANTEE_KEYS, ("epsilon",))
    _check_rows(path, privacy, "claims", _CLAIM_KEYS, ("claimed_epsilon", "rigorous_epsilon"))
    return privacy


def _check_rows(
    path: Path, privacy: dict[str, Any], section: str, keys: tuple[str, ...], epsilons: tuple[str, ...]
) -> None:
    rows = privacy.get(section)
    if not isinstance(rows, list):
        raise RunError(f"{path}: {section} must be a list")
    for number, row in enumerate(rows):
        missing = [key for key in keys if not isinstance(row, dict) or key not in row]
        if missing:
            raise RunError(f"{path}: {section}[{number}] lacks {', '.join(missing)}")
        for key in epsilons:
            try:
                as_epsilon(row[key])
            except (TypeError, ValueError):
                raise RunError(f'{path}: {section}[{number}].{key} must be a number or "inf"') from None
