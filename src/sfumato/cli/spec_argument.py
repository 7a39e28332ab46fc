"""Reads the spec that the SPEC argument names, and adds its name to errors that are found later.

Some commands take a run folder in its place.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from sfumato.errors import SpecError

if TYPE_CHECKING:
    from sfumato.spec import Spec


def read_spec(source: str, changes: Iterable[str] | None) -> Spec:
    """Load the spec ``source``, a file or a built-in name, with the changes that ``--set`` gives.

    Raises:
        SpecError: there is no such spec, or it is wrong.
    """
    from sfumato.spec import load_spec

    return load_spec(source, tuple(changes or ()))


def run_folder_named(source: str) -> Path | None:
    """The run folder that ``source``, a SPEC or RUN argument, names; ``None`` if it names a spec.

    Raises:
        SpecError: there is nothing of that name.
    """
    from sfumato.run_folder.reader import holds_run
    from sfumato.spec.load import builtin_names, no_spec_error

    if source in builtin_names():
        return None
    if not os.path.exists(source):
        raise no_spec_error(source, "a run folder")
    return Path(source) if holds_run(Path(source)) else None


def titles_of(spec: Spec) -> Callable[[str], str]:
    """The function that replaces, in a text, names of parties by those that the spec's topology gives them.

    It replaces ``edge:1``, ``device:3`` and the like by the name of this party (such as ``Lyon``), and leaves
    parties without one as they are.
    """
    from sfumato.network.groups import titled
    from sfumato.network.tree import from_spec
    from sfumato.spec.topology import GroupTopology

    topology = spec.topology
    if isinstance(topology, GroupTopology):
        return partial(titled, group_names=topology.group_names, worker_names=topology.worker_names)
    return from_spec(topology).titled


@contextmanager
def locating_errors(source: str, changes: Iterable[str] | None = None) -> Iterator[None]:
    """Context in which errors about keys of a spec also name the file ``source``, or the ``--set`` change.

    The change is named where it set the key. Errors about arguments stay as they are.
    """
    from sfumato.spec.overrides import place_of_change

    try:
        yield
    except SpecError as error:
        if type(error) is not SpecError or error.argument is not None or error.place.startswith(source):
            raise
        for change in changes or ():
            key = change.partition("=")[0].strip()
            if f"{error.place}.".replace("[", ".").startswith(f"{key}."):
                raise SpecError(place_of_change(error.place), error.value, error.allowed) from error
        line = "" if ": " in error.place else _line_of_key(source, error.place)
        raise SpecError(f"{source}: {error.place}", error.value, error.allowed + line) from error


def _line_of_key(source: str, place: str) -> str:
    """The text `` (line N)`` for where the file ``source`` has the key ``place``; "" for a built-in spec."""
    from sfumato.user_text import KeyLines, read_text

    try:
        text = read_text(Path(source))
    except SpecError:  # a built-in spec
        return ""
    return KeyLines(text).of(place)
