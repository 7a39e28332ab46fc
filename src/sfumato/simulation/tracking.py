"""The rounds of a run sent to an experiment tracker, where that was asked for: W&B, MLflow.

A tracker may be a server of somebody else. It gets what the guarantees do not cover: accuracy, loss and
clip fractions are measured on the devices' data without noise. So a tracker is never chosen by a spec or by
what is installed, but by the call alone, and gets no more than `settings_of` and the rows of metrics say.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from importlib import import_module
from importlib.util import find_spec
from typing import Any, Literal, Protocol, get_args

from sfumato.arguments import Argument
from sfumato.errors import MissingExtraError, RunError, SpecError, first_line
from sfumato.spec.document import Spec

TrackerName = Literal["wandb", "mlflow"]
TRACKERS: tuple[TrackerName, ...] = get_args(TrackerName)
# Not the seed: with it and the model the noise can be computed. Nothing about the data or who holds them.
_SENT = ("protocol", "training", "privacy", "transport", "compression", "faults", "air", "control")


class Tracker(Protocol):
    """One run at a tracker."""

    def add(self, number: int, scalars: Mapping[str, float]) -> None:
        """Send the values ``scalars``, by name, that were measured in round ``number`` (from 1)."""

    def close(self, *, finished: bool) -> None:
        """End the tracker's run; ``finished``: whether all rounds are done."""


def requested_trackers(names: str | Sequence[str]) -> tuple[str, ...]:
    """The trackers called ``names`` (one name or several), each once.

    Raises:
        SpecError: there is no such tracker.
        MissingExtraError: its package is not installed.
    """
    found = tuple(dict.fromkeys([names] if isinstance(names, str) else names))
    for name in found:
        if name not in TRACKERS:
            raise SpecError(Argument("track"), name, f"must be {' or '.join(TRACKERS)}")
        package = find_spec(name)
        if package is None or package.origin is None:  # a folder ./wandb, which the library leaves, is none
            raise MissingExtraError(str(Argument("track", name)), name)
    return found


def settings_of(spec: Spec) -> dict[str, str]:
    """What a tracker is sent of the spec: values as text by dotted key, such as ``training.rounds``."""
    written = spec.model_dump(mode="json", by_alias=True, exclude_none=True, include=set(_SENT))
    return dict(_flat(written))


def scalars_of(row: Mapping[str, float]) -> dict[str, float]:
    """The measured values of a row of metrics by name; NaN and the number of the round are left out.

    Columns keep their names, except that ``epsilon:OBSERVER`` becomes ``epsilon/OBSERVER``.
    """
    return {
        name.replace(":", "/", 1): float(value)
        for name, value in row.items()
        if name != "round" and not math.isnan(value)
    }


@contextmanager
def tracked(
    names: Sequence[str], spec: Spec, before: Iterable[Mapping[str, float]]
) -> Iterator[Callable[[Mapping[str, float]], None]]:
    """Context with a function that sends a row of metrics to all trackers.

    Args:
        names: of `requested_trackers`.
        spec: of the run, as loaded.
        before: rows of the rounds that are done already, from the first; a resumed run is a new one there.

    Raises:
        RunError: a tracker cannot be reached or refuses; the checkpoint of the run is kept.
    """
    trackers: list[Tracker] = []

    def send(row: Mapping[str, float]) -> None:
        for name, tracker in zip(names, trackers, strict=True):
            with _blaming(name):
                tracker.add(int(row["round"]), scalars_of(row))

    try:
        for name in names:
            with _blaming(name):
                start = import_module(f"sfumato.simulation.{name}_tracker").start
                trackers.append(start(spec.name, settings_of(spec)))
        if trackers:
            for row in before:
                send(row)
        yield send
    except BaseException:
        for tracker in trackers:
            with suppress(Exception):  # why the run ended is what is to be said
                tracker.close(finished=False)
        raise
    for name, tracker in zip(names, trackers, strict=True):
        with _blaming(name):
            tracker.close(finished=True)


@contextmanager
def _blaming(name: str) -> Iterator[None]:
    """Context that turns any error into a `RunError` of one line that names the tracker."""
    try:
        yield
    except Exception as error:  # whatever a server or its library says, the user needs one line
        raise RunError(f"{Argument('track', name)}: {first_line(error)}") from error


def _flat(section: Mapping[str, Any], before: str = "") -> Iterator[tuple[str, str]]:
    """Yield (dotted key, value as text) of all values in ``section``, a mapping that may hold further ones.

    ``before``: what the keys begin with.
    """
    for name, value in section.items():
        if isinstance(value, Mapping) and value:
            yield from _flat(value, f"{before}{name}.")
        else:
            yield f"{before}{name}", value if isinstance(value, str) else json.dumps(value)
