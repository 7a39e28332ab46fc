"""The code of an owner's training loop: a Python file that the owner's consent names, and nobody else.

Whoever deploys writes files into the folder of a party, a consent among them where it unpacks the whole
folder. So code runs only after an act of the owner on this machine: the consent that names it, its folder and
every byte of the file were confirmed together (`known_consents`). What runs is what was read then: the bytes
that are compared with the mark are the ones that are compiled, and no compiled file beside them is used. What
the file imports is not compared: it comes from where Python finds modules, where the party's folder is not.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from sfumato.arguments import ErrorPlace
from sfumato.deployment.private_files import followed
from sfumato.errors import SpecError
from sfumato.user_code import find_factory
from sfumato.user_text import read_bytes

_DIGITS = 16  # of a hash that is shown


@dataclass(frozen=True)
class LoopCode:
    """The code of a training loop, read but not run.

    Attributes:
        file: path of the Python file.
        source: all bytes of the file.
        function: name of the function in it.
        place: where it was named, for errors.
    """

    file: Path
    source: bytes
    function: str
    place: ErrorPlace

    @classmethod
    def read(cls, named: str, folder: Path, place: ErrorPlace) -> LoopCode:
        """Read the loop ``FILE.py:function``; a relative path begins in ``folder``.

        Raises:
            SpecError: ``named`` has another form, leads over a link or is not printable, or the file cannot
                be read.
        """
        path, _, function = named.rpartition(":")
        if not path.endswith(".py") or not function.isidentifier():
            raise SpecError(place, named, "must name a function of a Python file: FILE.py:function")
        file = folder.resolve() / path
        target, is_by_link = followed(file)
        if is_by_link:
            raise SpecError(
                place, named, f"is led to {str(target)!a} by a link; name that path if it is meant"
            )
        if not str(target).isprintable():
            raise SpecError(
                place, named, "must have a path of printable characters: it is shown to its owner"
            )
        return cls(target, read_bytes(file), function, place)

    @property
    def named(self) -> str:
        """Its name as ``FILE.py:function`` with an absolute path."""
        return f"{self.file}:{self.function}"

    @property
    def described(self) -> str:
        """Function, file, and the first digits of the SHA-256 of the file, in words."""
        begins = hashlib.sha256(self.source).hexdigest()[:_DIGITS]
        return f"{self.function} in {self.file} (its SHA-256 begins {begins})"

    def found(self) -> Any:
        """The function, after running the code of the file.

        Raises:
            SpecError: the code fails, or has no such function.
        """
        return find_factory(str(self.place), self.named, self.source)
