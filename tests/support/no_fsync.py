"""Files are not flushed to the disk, for which runs of tests would wait: no test cuts the power.

A process that is killed loses nothing that it has written. Imported by every process that plays runs.
"""

import os


def fsync(descriptor: int) -> None:
    """In place of `os.fsync`."""


os.fsync = fsync  # type: ignore[assignment]
