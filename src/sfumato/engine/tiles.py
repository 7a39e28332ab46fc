"""Which devices train side by side: tiles, which follow from the plan alone.

The last bits of a device's update depend on who is stacked beside it (products of matrices of another shape
may add up in another order). So a tile is a function of the model, the batches and the task, and never of
threads, memory or processes: these decide which tiles are worked on at once, and how many rows are held.
Inside a tile every operation runs in one thread.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager

import torch
from torch import Tensor

# Updates of neighbouring devices among which tiles are formed. Longer runs make tiles whose devices stop
# together; a chunk holds whole runs, so shorter ones take less memory.
_BLOCK_BYTES = 32 << 20

# Fewer tiles than this leave cores idle; they are made, as long as no tile is less than half full.
_FEWEST_TILES = 4


@contextmanager
def intra_op_threads(count: int) -> Iterator[None]:
    """Context in which each torch operation uses ``count`` threads.

    One is best where operations are small or workers have threads of their own.
    """
    before = torch.get_num_threads()
    torch.set_num_threads(count)
    try:
        yield
    finally:
        torch.set_num_threads(before)


def tiles_of(
    steps: Tensor, most: Mapping[int, int], update_bytes: int, kinds: Tensor | None = None
) -> list[list[Tensor]]:
    """Divide P devices, block by block, into tiles, whose devices train together; each is in one tile.

    A block is a run of neighbours. In a block devices with more steps come first, so that those of a tile
    stop together.

    Args:
        steps: number of steps of each device, int64 ``[P]``.
        most: devices in a tile of each kind.
        update_bytes: bytes of one device's update.
        kinds: of each device, int64 ``[P]``: those of a tile are of one kind; ``None``: all are of kind 0.

    Returns:
        For every block its tiles, each int64 ``[n]``, sorted by falling number of steps. Tiles are numbered
        through all blocks, from the first block's first one on.
    """
    devices = len(steps)
    kinds = torch.zeros_like(steps) if kinds is None else kinds
    each = max(*most.values(), _BLOCK_BYTES // update_bytes)
    blocks = []
    for members in torch.arange(devices).tensor_split(max(1, -(-devices // each))):
        found: list[Tensor] = []
        for kind in sorted(set(kinds[members].tolist())):
            alike = members[kinds[members] == kind]
            order = torch.argsort(steps[alike], descending=True, stable=True)
            p, fit = len(alike), most[kind]
            count = max(-(-p // fit), min(_FEWEST_TILES, p // max(1, fit // 2)))
            found += alike[order].tensor_split(count)
        if found:
            blocks.append(found)
    return blocks


def chunks_of(blocks: Sequence[Sequence[Tensor]], tiles: slice, most: int) -> Iterator[list[Tensor]]:
    """Yield, for every chunk of updates, the tiles that are to be trained for it; [] if none of its tiles is.

    Which blocks a chunk holds does not depend on ``tiles``: ranks that share the tiles exchange every chunk,
    also one to which they add nothing.

    Args:
        blocks: of all devices, as `tiles_of` gives them.
        tiles: which tiles to train, by their numbers through all blocks.
        most: devices in a chunk, trained or not; a block of more is a chunk by itself.
    """
    wanted, first_number, devices = range(sum(map(len, blocks)))[tiles], 0, 0
    chunk: list[Tensor] = []
    for block in blocks:
        size = sum(map(len, block))
        if devices and devices + size > most:
            yield chunk
            chunk, devices = [], 0
        chunk += [tile for number, tile in enumerate(block, first_number) if number in wanted]
        first_number, devices = first_number + len(block), devices + size
    if devices:
        yield chunk


def run_in_threads(tiles: Sequence[Tensor], work: Callable[[Tensor], None], workers: int) -> None:
    """Call ``work`` once for each of ``tiles``, in up to ``workers`` threads; torch uses one thread in each.

    Args:
        tiles: each int64 ``[n]``, numbers of devices.
        work: is called with one tile; the order of the calls is not fixed.
        workers: number of threads, at least 1.
    """
    with intra_op_threads(1):
        if workers <= 1:
            for tile in tiles:
                work(tile)
            return
        pool = ThreadPoolExecutor(workers)
        try:
            list(pool.map(work, tiles))
        finally:
            pool.shutdown(cancel_futures=True)
