"""What an update is does not depend on threads, memory, or which tiles a process trains."""

import numpy as np
import pytest
import torch
from slow import first_quick
from support.small_workloads import SETTINGS, workload

from sfumato.engine import local, tiles


def of_all_settings(number: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Tiles of a few devices, each a block, so that memory decides how many are in a chunk."""
    work = workload(number)
    for bytes_of_block in (32 << 20, 1):
        monkeypatch.setattr(tiles, "_BLOCK_BYTES", bytes_of_block)
        first = work.updates(*SETTINGS[0])[1]
        for settings in SETTINGS[1:]:
            assert torch.equal(first, work.updates(*settings)[1]), (work.name, settings)
        rows, parts = zip(*(work.updates(1, 1 << 16, tiles=slice(r, None, 3)) for r in range(3)), strict=True)
        order = torch.cat(rows).argsort()
        assert torch.equal(first, torch.cat(parts)[order]), work.name


LONGEST_LAST = (0, 1, 2, 3, 4, 5, 8, 10, 11, 6, 7, 9)


@pytest.mark.parametrize("number", first_quick(LONGEST_LAST, 5, 9))
def test_the_same_bits_over_threads_memory_and_parts(number: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(local, "_TILE_BYTES", 1 << 19)
    of_all_settings(number, monkeypatch)


@pytest.mark.slow
@pytest.mark.parametrize("tile_bytes", [1, 1 << 18, 8 << 20])
def test_the_same_bits_over_many_workloads(tile_bytes: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(local, "_TILE_BYTES", tile_bytes)
    for number in range(12, 62):
        of_all_settings(number, monkeypatch)


@pytest.mark.parametrize(("devices", "most", "update"), [(1, 4, 4), (7, 3, 1 << 24), (300, 7, 1 << 20)])
def test_every_device_is_in_one_tile_and_blocks_are_neighbours(devices: int, most: int, update: int) -> None:
    steps = torch.from_numpy(np.random.default_rng(0).integers(0, 9, devices))
    blocks = tiles.tiles_of(steps, {0: most}, update)
    for block in blocks:
        assert all(len(tile) <= most for tile in block)
        assert all((steps[tile].diff() <= 0).all() for tile in block)
    together = [torch.cat(block).sort().values for block in blocks]
    assert torch.equal(torch.cat(together), torch.arange(devices))


def test_the_devices_of_a_tile_are_of_one_kind() -> None:
    rng = np.random.default_rng(0)
    steps, kinds = (torch.from_numpy(rng.integers(0, 3, 200)) for _ in range(2))
    blocks = tiles.tiles_of(steps, {0: 3, 1: 5, 2: 40}, 1 << 20, kinds)
    for tile in (found := [tile for block in blocks for tile in block]):
        (kind,) = set(kinds[tile].tolist())
        assert len(tile) <= {0: 3, 1: 5, 2: 40}[kind]
        assert (steps[tile].diff() <= 0).all()
    assert torch.equal(torch.cat(found).sort().values, torch.arange(200))


def test_few_devices_are_spread_as_long_as_tiles_are_half_full() -> None:
    def sizes(devices: int) -> list[int]:
        (block,) = tiles.tiles_of(torch.ones(devices, dtype=torch.long), {0: 8}, 4)
        return [len(tile) for tile in block]

    assert sizes(7) == [7]
    assert sizes(8) == [4, 4]
    assert sizes(20) == [4] * 5 or sizes(20) == [5] * 4
    assert sizes(33) == [7, 7, 7, 6, 6]


def test_a_chunk_holds_whole_blocks() -> None:
    blocks = tiles.tiles_of(torch.ones(10, dtype=torch.long), {0: 1}, 16 << 20)  # blocks of two
    assert [len(block) for block in blocks] == [2] * 5
    for most, expected in ((1, [2] * 5), (5, [4, 4, 2]), (100, [10])):
        assert [len(chunk) for chunk in tiles.chunks_of(blocks, slice(None), most)] == expected
    assert [len(chunk) for chunk in tiles.chunks_of(blocks, slice(1, None, 3), 2)] == [1, 0, 1, 1, 0]
