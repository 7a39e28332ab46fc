"""Which files of Sfumato a call enters: `benchmarks/walks.py` prints it, `test_account_flow` bounds it."""

from __future__ import annotations

import inspect
import sys
from pathlib import Path
from types import FrameType

import sfumato as sf

SOURCE = str(Path(sf.__file__).parent)


class Walk:
    """The files in which a function is called between ``start`` and ``stop``.

    What the bodies of modules and classes do is not counted: that is importing.

    Attributes:
        files: relative to the package, in order of the first call.
        changes: how often a call, or a generator's next step, is in another file than the one before.
    """

    def __init__(self) -> None:
        self.files: dict[str, None] = {}
        self.changes = 0
        self._last = ""

    def start(self) -> None:
        sys.setprofile(self._note)

    def stop(self) -> None:
        sys.setprofile(None)

    def _note(self, frame: FrameType, event: str, argument: object) -> None:
        code = frame.f_code
        file = code.co_filename
        if event == "call" and file.startswith(SOURCE) and code.co_flags & inspect.CO_NEWLOCALS:
            self.files[file[len(SOURCE) + 1 :]] = None
            self.changes, self._last = self.changes + (file != self._last), file
