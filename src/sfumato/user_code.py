"""Calls a user's code, like ``package.module:factory``, and reports its errors as errors of that code."""

from __future__ import annotations

import hashlib
import os
import sys
import sysconfig
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from functools import partial
from importlib import import_module
from importlib.util import find_spec, module_from_spec, spec_from_file_location
from pathlib import Path
from types import ModuleType
from typing import Any, TypeVar

from sfumato.errors import SpecError

Made = TypeVar("Made")

GIVEN = "python:"
"""Begins the names of data and models that were given in Python: no module of this name is imported."""

_ALLOWED = ContextVar("user code may run", default=False)

_LIBRARIES = {sysconfig.get_path(name) for name in ("stdlib", "platstdlib", "purelib", "platlib")}
_NOT_OWN = tuple(f"{folder}{os.sep}" for folder in (Path(__file__).parent, *_LIBRARIES))


@contextmanager
def allow_user_code() -> Iterator[None]:
    """Context in which specs may run the code that they name.

    Commands that train use it; ``account`` and others never run such code.
    """
    token = _ALLOWED.set(True)
    try:
        yield
    finally:
        _ALLOWED.reset(token)


def user_code_is_allowed() -> bool:
    """Whether this is called within the context `allow_user_code`."""
    return _ALLOWED.get()


def find_factory(place: str, named: str, source: bytes | None = None) -> Any:
    """The callable that ``package.module:factory`` or ``FILE.py:factory`` names; importing runs its code.

    Args:
        place: the key that names it.
        named: the value of that key.
        source: the bytes of ``FILE.py``, which are run whatever the file holds now; ``None``: it is read.

    Raises:
        SpecError: the module cannot be imported, or has no such callable.
    """
    module_name, _, name = named.rpartition(":")
    importing = partial(import_module, module_name)
    if source is not None or module_name.endswith(".py"):
        importing = partial(_module_in, module_name, source)
    module = call_user_code(place, named, "cannot be imported", importing)
    factory = call_user_code(place, named, "cannot be looked up", lambda: getattr(module, name, None))
    if factory is None:
        raise SpecError(place, named, f"module {module_name} has no {name}")
    if not callable(factory):
        raise SpecError(place, named, "must name a callable")
    return factory


def source_file(named: str) -> Path | None:
    """The file with the code that ``package.module:factory`` or ``FILE.py:factory`` names; or ``None``."""
    module, _, _ = named.rpartition(":")
    if module.endswith(".py"):
        return Path(module) if Path(module).is_file() else None
    found = find_spec(module)
    origin = None if found is None or found.origin is None else Path(found.origin)
    return origin if origin is not None and origin.is_file() else None


def _module_in(file: str, source: bytes | None = None) -> ModuleType:
    """The module in the Python file ``file``, which is run only once in a process; it is found again by path.

    With ``source`` it is the module of exactly these bytes, and is found again by both; what Python keeps
    compiled beside a file is not used. What the code raises is passed on; then it is run again the next time.
    """
    key = os.path.abspath(file).encode() if source is None else os.fsencode(file) + bytes(1) + source
    name = f"sfumato_user_code_{hashlib.sha256(key).hexdigest()[:16]}"
    if name in sys.modules:
        return sys.modules[name]
    found = spec_from_file_location(name, file)
    assert found is not None  # the name ends in .py
    assert found.loader is not None
    module = sys.modules[name] = module_from_spec(found)
    try:
        if source is None:
            found.loader.exec_module(module)
        else:
            exec(compile(source, file, "exec", dont_inherit=True), module.__dict__)
    except BaseException:
        del sys.modules[name]
        raise
    return module


def call_user_code(place: str, named: str, what: str, call: Callable[[], Made]) -> Made:
    """Call ``call``, which runs a user's code, and return its result.

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
    """An error of a user's code in one line: its type, its message, and the user's line that raised it."""
    try:
        said = " ".join(str(error).split())
    except Exception:  # it is the user's code as well
        said = ""
    shown = f"{type(error).__name__}: {said[:300]}" if said else type(error).__name__
    if isinstance(error, SystemExit):
        shown = f"it ended the program ({shown})"
    where = user_code_location(error)
    return f"{shown} ({where})" if where else shown


def user_code_location(error: BaseException) -> str | None:
    """The innermost traceback line of ``error`` in the user's own code, as text; ``None`` without one."""
    for frame in reversed(traceback.extract_tb(error.__traceback__)):
        if not frame.filename.startswith((*_NOT_OWN, "<")):
            return f"{frame.filename}, line {frame.lineno}, in {frame.name}"
    return None


def command_was_exited(ended: SystemExit) -> bool:
    """Whether ``SystemExit`` was raised by code that a command called, not by the command line itself.

    Rich raises it, too, where nobody reads the output any more (``sfumato account SPEC | head``).
    """
    if isinstance(ended.__context__, BrokenPipeError):
        return False
    names = [frame.f_globals.get("__name__", "") for frame, _ in traceback.walk_tb(ended.__traceback__)]
    return any(name.startswith("sfumato.") and name != "sfumato.cli" for name in names)
