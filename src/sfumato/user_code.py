"""Calls a user's code, like ``package.module:factory``, and reports its errors as errors of that code."""

from __future__ import annotations

import os
import sysconfig
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

from sfumato.errors import SpecError

Made = TypeVar("Made")

_LIBRARIES = {sysconfig.get_path(name) for name in ("stdlib", "platstdlib", "purelib", "platlib")}
_NOT_OWN = tuple(f"{folder}{os.sep}" for folder in (Path(__file__).parent, *_LIBRARIES))


def call_user_code(place: str, named: str, what: str, call: Callable[[], Made]) -> Made:
    """The result of ``call``, which runs a user's code.

    Every exception is reported as an error of that code, including an attempt to end the program. Only an
    interrupt is raised again: it comes from the user or the system.

    Args:
        place: the key that names the code.
        named: the value of that key.
        what: description of a failure: ``the factory failed``.
        call: runs the code.

    Raises:
        SpecError: the code raised something.
    """
    try:
        return call()
    except KeyboardInterrupt:
        raise
    except BaseException as error:
        raise SpecError(place, named, f"{what}: {describe_error(error)}") from error


def describe_error(error: BaseException) -> str:
    """An error in one line: its type, its message, and the line of the user's own code that raised it."""
    said = " ".join(str(error).split())
    shown = f"{type(error).__name__}: {said[:300]}" if said else type(error).__name__
    if isinstance(error, SystemExit):
        shown = f"it ended the program ({shown})"
    where = user_code_location(error)
    return f"{shown} ({where})" if where else shown


def user_code_location(error: BaseException) -> str | None:
    """The innermost line in the traceback of ``error`` that is neither Sfumato's nor a library's, if any."""
    for frame in reversed(traceback.extract_tb(error.__traceback__)):
        if not frame.filename.startswith((*_NOT_OWN, "<")):
            return f"{frame.filename}, line {frame.lineno}, in {frame.name}"
    return None


def command_was_exited(ended: SystemExit) -> bool:
    """Whether ``SystemExit`` was raised by code that a command called, not by the command line itself."""
    names = [frame.f_globals.get("__name__", "") for frame, _ in traceback.walk_tb(ended.__traceback__)]
    return any(name.startswith("sfumato.") and name != "sfumato.cli" for name in names)
