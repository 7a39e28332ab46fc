"""The seal at the end of ``checkpoint.pt``: the run to which it belongs, and a hash of the file.

The file is the archive that ``torch.save`` writes, followed by this seal: a JSON document, the lengths of the
archive and the document, ``SFUMATO1``, and the SHA-256 of everything before it. It is read without torch.
"""

from __future__ import annotations

import hashlib
import json
import struct
from dataclasses import asdict, dataclass
from pathlib import Path

from sfumato.durable_files import HashedFile, read_regular, reason, short_hash
from sfumato.errors import RunError
from sfumato.run_folder.rounds_log import SealedPrefix

CHECKPOINT_FILE = "checkpoint.pt"
_END = struct.Struct("<QQ8s")  # lengths of the archive and of the document, magic
_MAGIC = b"SFUMATO1"
_DIGEST = 32


@dataclass(frozen=True)
class Seal:
    """The run to which a checkpoint belongs.

    Attributes:
        spec: text of ``spec.yaml``: resolved, with the hashes of the inputs and of the spec.
        fingerprint: of that spec.
        protocol: the protocol of the state in the archive.
        observers: the observers whose views are recorded.
        rounds: the part of the log that belongs to it.
        device: that it is trained on, and goes on with; threads and memory may be others.
    """

    spec: str
    fingerprint: str
    protocol: str
    observers: tuple[str, ...]
    rounds: SealedPrefix
    device: str

    def write(self, file: HashedFile) -> None:
        """Append the seal to ``file``, to which the archive was written before."""
        document = json.dumps(asdict(self)).encode()
        archive = file.size
        file.write(document)
        file.write(_END.pack(archive, len(document), _MAGIC))
        file.write(bytes.fromhex(file.sha256))

    @classmethod
    def split(cls, content: bytes) -> tuple[Seal, memoryview]:
        """The seal in ``content``, the bytes of a checkpoint, and the archive before it.

        Raises:
            ValueError: it is damaged or of another version.
        """
        if len(content) < _END.size + _DIGEST:
            raise ValueError(f"{len(content)} bytes are too few for a checkpoint")
        stated, found = content[-_DIGEST:], hashlib.sha256(memoryview(content)[:-_DIGEST]).digest()
        if stated != found:
            raise ValueError(
                f"it says of itself {short_hash(stated.hex())}, but has SHA-256 {short_hash(found.hex())}"
            )
        archive, document, magic = _END.unpack_from(content, len(content) - _DIGEST - _END.size)
        if magic != _MAGIC or archive + document + _END.size + _DIGEST != len(content):
            raise ValueError("it is of another version")
        said = json.loads(content[archive : archive + document])
        said |= {"observers": tuple(said["observers"]), "rounds": SealedPrefix(**said["rounds"])}
        return cls(**said), memoryview(content)[:archive]


def read_seal(folder: Path) -> Seal | None:
    """The seal of ``checkpoint.pt`` in ``folder``; ``None`` if there is no checkpoint.

    Raises:
        RunError: the checkpoint is damaged.
    """
    content = read_checkpoint(folder)
    return None if content is None else content[0]


def read_checkpoint(folder: Path) -> tuple[Seal, memoryview] | None:
    """The seal and the archive in ``checkpoint.pt`` of ``folder``; ``None`` if there is no checkpoint.

    Raises:
        RunError: the checkpoint is damaged.
    """
    path = folder / CHECKPOINT_FILE
    try:
        return Seal.split(read_regular(path))
    except (FileNotFoundError, NotADirectoryError):
        return None
    except OSError as error:
        raise RunError(f"{path}: cannot be read: {reason(error)}") from None
    except (ValueError, TypeError, KeyError) as error:
        raise RunError(f"{path}: is damaged, or not a checkpoint of this version: {error}") from None
