"""Seeded damage to a run folder: what disks, editors and copying by hand do to files."""

from __future__ import annotations

import json
import random
import shutil
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from sfumato.run_folder.lock import LOCK_FILE

_TEXTS = (".json", ".yaml", ".jsonl")


def files_of(folder: Path) -> list[str]:
    """Names of the files in ``folder``, however deep, but for the lock."""
    found = (path for path in folder.rglob("*") if path.is_file() and path.name != LOCK_FILE)
    return sorted(path.relative_to(folder).as_posix() for path in found)


@dataclass
class Damager:
    """Damages a folder in one way that chance picks.

    Args:
        rng: the chance.
        others: folders of other runs, to swap files with.
        older: the same run at an earlier time.
    """

    rng: random.Random
    others: list[Path]
    older: Path

    def damage(self, folder: Path) -> str:
        """Damage ``folder``; says what was done."""
        ways: list[Callable[[Path, str], str]] = [
            self._flip, self._truncate, self._empty, self._delete, self._swap, self._append,
            self._replace, self._edit, self._stale,
        ]  # fmt: skip
        way = self.rng.choice(ways)
        names = files_of(folder)
        if way == self._edit:
            names = [name for name in names if name.endswith(_TEXTS)]
        name = self.rng.choice([n for n in names if n != "report.html"])
        return f"{way.__name__.strip('_')} {name}: {way(folder, name)}"

    def _flip(self, folder: Path, name: str) -> str:
        content = bytearray((folder / name).read_bytes())
        place, bit = self.rng.randrange(len(content)), self.rng.randrange(8)
        content[place] ^= 1 << bit
        (folder / name).write_bytes(content)
        return f"bit {bit} of byte {place}"

    def _truncate(self, folder: Path, name: str) -> str:
        content = (folder / name).read_bytes()
        length = self.rng.randrange(len(content))
        (folder / name).write_bytes(content[:length])
        return f"to {length} of {len(content)} bytes"

    def _empty(self, folder: Path, name: str) -> str:
        (folder / name).write_bytes(b"")
        return "emptied"

    def _delete(self, folder: Path, name: str) -> str:
        (folder / name).unlink()
        return "deleted"

    def _append(self, folder: Path, name: str) -> str:
        content = (folder / name).read_bytes()
        more = self.rng.choice([b"\n", b"\0", b"x", content[-20:], content])
        (folder / name).write_bytes(content + more)
        return f"with {len(more)} bytes"

    def _replace(self, folder: Path, name: str) -> str:
        content = (folder / name).read_bytes()
        (folder / name).unlink()
        match self.rng.randrange(4):
            case 0:
                (folder / name).mkdir()
                return "by a folder"
            case 1:
                (folder / name).symlink_to("nowhere")
                return "by a link to nowhere"
            case 2:
                kept = folder.parent / "kept"
                kept.write_bytes(content)
                (folder / name).symlink_to(kept)
                return "by a link to what it held"
            case _:
                (folder / name).symlink_to("/dev/zero")
                return "by a link to a device"

    def _swap(self, folder: Path, name: str) -> str:
        other = self.rng.choice(self.others)
        names = [name, *self.rng.sample(files_of(folder), self.rng.randrange(2))]
        return f"{_copied(other, folder, names)} of {other.name}"

    def _stale(self, folder: Path, name: str) -> str:
        return f"{_copied(self.older, folder, [name])} of an older state"

    def _edit(self, folder: Path, name: str) -> str:
        text = (folder / name).read_text()
        if name.endswith(".jsonl"):
            lines = [json.loads(line) for line in text.splitlines()]
            said = self._changed(self.rng.choice(lines))
            written = "".join(json.dumps(line) + "\n" for line in lines)
        elif name.endswith(".json"):
            document = json.loads(text)
            said, written = self._changed(document), json.dumps(document, indent=1)
        else:
            document = yaml.safe_load(text)
            said, written = self._changed(document), yaml.safe_dump(document, sort_keys=False)
        (folder / name).write_text(written)
        return said

    def _changed(self, document: Any) -> str:
        """Changes one value somewhere in ``document``; says which."""
        inner, path = document, ""
        while True:
            keys = list(inner) if isinstance(inner, dict) else list(range(len(inner)))
            key = self.rng.choice(keys)
            path += f"/{key}"
            if isinstance(inner[key], dict | list) and inner[key]:
                inner = inner[key]
                continue
            inner[key] = self._other(inner[key])
            return f"{path} = {inner[key]!r}"

    def _other(self, value: Any) -> Any:
        if isinstance(value, bool):
            return not value
        if isinstance(value, int | float):
            return self.rng.choice([value + 1, value * 2 + 1, -1, 0.5])
        return self.rng.choice(["inf", "x", f"{value}x", 3])


def _copied(source: Path, folder: Path, names: list[str]) -> str:
    there = [name for name in names if (source / name).is_file()]
    for name in there:
        shutil.copyfile(source / name, folder / name)
    return " and ".join(there) or "nothing"
