"""What secure aggregation sends in the cells of a hop: every frame of every session.

A session is played by the participants of a cell over the complete graph, towards a malicious server, with
a threshold of two thirds, in a ring of 32 bits. Who is alone has nobody to hide among, and sends one plain
message.
"""

from __future__ import annotations

import numpy as np

from sfumato.radio.channels import IntArray
from sfumato.secure_aggregation.traffic import session_bytes

RING_BITS = 32


def secure_bytes(
    cells: IntArray, count: int, length: int, dropped: np.typing.NDArray[np.bool_] | None = None
) -> tuple[IntArray, IntArray]:
    """Bytes that every party sends, and bytes that it receives besides the result's broadcast, ``[P]`` each.

    Args:
        cells: the cell of each party ``[P]``.
        count: of cells.
        length: of the vectors that are summed.
        dropped: parties that fall silent before they send their vector ``[P]``; ``None``: nobody.
    """
    gone = np.zeros(len(cells), dtype=np.bool_) if dropped is None else dropped
    parties = np.bincount(cells, minlength=count)
    left = np.bincount(cells[~gone], minlength=count)
    up = np.where(gone, 0, -(-length * RING_BITS // 8))
    down = np.zeros(len(cells), dtype=np.int64)
    for size, survivors in np.unique(np.stack([parties, left]), axis=1).T:
        if size < 2:
            continue
        found = session_bytes(
            survivors=int(survivors),
            length=length,
            degree=int(size) - 1,
            threshold=2 * int(size) // 3 + 1,
            bits=RING_BITS,
        )
        here = (parties[cells] == size) & (left[cells] == survivors)
        up = np.where(here, np.where(gone, found.dropped_up, found.survivor_up), up)
        down = np.where(here, np.where(gone, found.dropped_down, found.survivor_down), down)
    return up.astype(np.int64), down
