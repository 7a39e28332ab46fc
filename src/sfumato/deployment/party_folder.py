"""What a party has on disk: its key and its memory, which only its owner can read."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path

from sfumato.deployment.memory import PartyMemory
from sfumato.deployment.private_files import require_own, require_private, write_private
from sfumato.errors import RunError
from sfumato.network.groups import Groups
from sfumato.network.tree import Tree
from sfumato.user_text import read_bytes
from sfumato.wire.keys import KEY_BYTES, Identity

_KEY, _MEMORY = "key", "memory"
_MISSING = "is missing: a party takes part with the key that is registered"


def folder_names(parties: Tree | Groups) -> list[str]:
    """Names of all parties' folders, by number: devices, the cloud, edges; in groups devices, masters."""
    devices = [f"device-{number}" for number in range(parties.device_count)]
    if isinstance(parties, Groups):
        return [*devices, *(f"master-{number}" for number in range(parties.count))]
    edges = range(parties.leaf_count if parties.depth > 1 else 0)
    return [*devices, "cloud", *(f"edge-{number}" for number in edges)]


@dataclass(frozen=True)
class PartyFolder:
    """The open folder of a party. It must be closed.

    Attributes:
        identity: its signing key, which remembers its sessions of secure aggregation in the memory.
        memory: of its answers.
    """

    identity: Identity
    memory: PartyMemory

    @classmethod
    def open(cls, folder: Path) -> PartyFolder:
        """Open the folder of a party that has a key; see `open_or_create`.

        Raises:
            RunError: there is no key: a new one would not be that party's.
        """
        if not (folder / _KEY).exists():
            raise RunError(f"{folder / _KEY}: {_MISSING}")
        return cls.open_or_create(folder)

    @classmethod
    def open_or_create(cls, folder: Path) -> PartyFolder:
        """Open a folder; if it has no key, make one, with a memory, for a new party.

        A key without a memory is refused: what it answered would be forgotten.

        Raises:
            RunError: it cannot be read or written, or other users can read the key, or write into the folder.
            SessionMemoryError: its memory is missing, damaged or open in another process.
        """
        key, path = folder / _KEY, folder / _MEMORY
        for there in (key, path):
            if there.exists():
                require_private(there)
        folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        require_own(folder)
        known = key.exists() or path.exists()
        memory = PartyMemory(path) if known else PartyMemory.create(path)
        try:
            if not key.exists():
                write_private(key, os.urandom(KEY_BYTES))
            secret = _secret(key)
        except BaseException:
            memory.close()
            raise
        return cls(Identity(lambda size: secret, memory), memory)

    def close(self) -> None:
        """Close its memory."""
        self.memory.close()


def read_identity(folder: Path) -> Identity:
    """The signing key of a party, for use outside a run: its memory stays closed.

    Raises:
        RunError: it is missing, no key, or other users can read it.
    """
    key = folder / _KEY
    if not key.exists():
        raise RunError(f"{key}: {_MISSING}")
    require_private(key)
    secret = _secret(key)
    return Identity(lambda size: secret)


def _secret(key: Path) -> bytes:
    """The bytes of a key.

    Raises:
        RunError: they are not as many as a key has.
    """
    secret = read_bytes(key)
    if len(secret) != KEY_BYTES:
        raise RunError(f"{key}: holds {len(secret)} bytes; a key has {KEY_BYTES}")
    return secret
