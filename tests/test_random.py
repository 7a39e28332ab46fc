"""Addresses, keys and seeds: no two of them alike, and none that an attacker could try out."""

from __future__ import annotations

import itertools
from collections.abc import Iterable

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from sfumato.random import Stream, generator, initialisation_seed, key_at, seed_at, sequence
from sfumato.wire.key_stream import KeyStream

NUMBERS = st.one_of(st.integers(0, 3), st.integers(0, 2**32 - 1), st.integers(0, 2**140))
WORDS = st.one_of(st.integers(0, 3), st.integers(0, 2**32 - 1))
STREAMS = st.sampled_from(Stream)
ADDRESSES = st.tuples(NUMBERS, STREAMS, st.lists(NUMBERS, max_size=5))
SHORT = st.tuples(st.integers(0, 2**128 - 1) | WORDS, STREAMS, st.lists(WORDS, max_size=5))


def at(seed: int, stream: Stream, address: Iterable[int]) -> bytes:
    return key_at(seed, stream, *address)


def philox_key(seed: int, stream: Stream, address: Iterable[int]) -> bytes:
    return generator(seed, stream, *address).bit_generator.state["state"]["key"].tobytes()


def repeats(values: list[bytes]) -> int:
    return len(values) - len(set(values))


def joined_or_cut(address: list[int]) -> list[list[int]]:
    """Addresses that one might be taken for: neighbours joined, words cut apart, zeros and ones added."""
    others = [[*address, 0], [0, *address], address[:-1], [*address, 1], address[::-1]]
    for i in range(len(address)):
        low, high = address[i] % 2**32, address[i] >> 32
        others.append([*address[:i], low, high, *address[i + 1 :]])
    for i in range(len(address) - 1):
        first, second, rest = address[i], address[i + 1], address[i + 2 :]
        others.append([*address[:i], first + (second << 32), *rest])
        others.append([*address[:i], int(f"{first}{second}"), *rest])
    return [other for other in others if other != address]


@given(ADDRESSES, ADDRESSES)
def test_different_addresses_have_different_keys(
    one: tuple[int, Stream, list[int]], other: tuple[int, Stream, list[int]]
) -> None:
    assert (at(*one) == at(*other)) == (one == other)
    seed, stream, address = one
    for alike in joined_or_cut([seed, int(stream), *address]):
        if len(alike) > 1:
            assert key_at(alike[0], alike[1], *alike[2:]) != at(*one)  # type: ignore[arg-type]


@given(SHORT, SHORT)
def test_different_addresses_have_different_generators(
    one: tuple[int, Stream, list[int]], other: tuple[int, Stream, list[int]]
) -> None:
    assert (philox_key(*one) == philox_key(*other)) == (one == other)
    seed, stream, address = one
    for alike in joined_or_cut(address):
        if all(number < 2**32 for number in alike):
            assert philox_key(seed, stream, alike) != philox_key(*one)


@pytest.mark.parametrize(
    ("seed", "address"), [(0, (1 << 32, 9)), (0, (-1,)), (1 << 128, ()), (-1, ()), ((9 << 128) + 4, (5,))]
)
def test_what_numpy_would_run_together_is_refused(seed: int, address: tuple[int, ...]) -> None:
    with pytest.raises(ValueError, match="address: got"):
        generator(seed, Stream.NOISE, *address)


def test_numpy_would_run_it_together() -> None:
    """Why it is refused: the day that this fails, `sequence` may be relaxed."""

    def state(seed: int, *words: int) -> list[int]:
        return np.random.SeedSequence(seed, spawn_key=words).generate_state(4).tolist()

    assert state(0, 5, (7 << 32) + 3, 9) == state(0, 5, 3, 7, 9)
    assert state((9 << 128) + 4, 5) == state(4, 9, 5)


@pytest.mark.parametrize("numbers", [(-1, 5), (0, 5, -1), (0, 5, 2, -7)])
def test_negative_integers_have_no_key(numbers: tuple[int, ...]) -> None:
    with pytest.raises(ValueError, match="0 or more"):
        key_at(*numbers)  # type: ignore[arg-type]


def test_what_is_no_integer_has_no_key() -> None:
    with pytest.raises(TypeError):
        key_at(0, Stream.NOISE, 1.0)  # type: ignore[arg-type]
    assert key_at(0, Stream.NOISE, np.int64(3)) == key_at(0, Stream.NOISE, 3)


def test_seeds_of_their_own_have_128_bits() -> None:
    seeds = [seed_at(0, Stream.AUDIT, number) for number in range(2000)]
    assert len(set(seeds)) == len(seeds)
    bits = np.array([[seed >> bit & 1 for bit in range(128)] for seed in seeds]).sum(axis=0)
    # Binomial(2000, 1/2), standard deviation 22.4: beyond six of them with probability 2e-9 a bit
    assert np.abs(bits - 1000).max() < 135
    generator(max(seeds), Stream.PARTICIPATION, 0)


def test_addresses_mean_what_they_always_did() -> None:
    """A run that is resumed, or a seed that was published, draws the same in every later version."""
    assert (
        key_at(0, Stream.NOISE, 429, 0, 2, 76).hex()
        == "a451e21f32cad7f3752b56f43b5f299c6206a3f48e23c41244b6c37012d938c8"
    )
    expected = np.random.Philox(np.random.SeedSequence(7, spawn_key=(3, 4))).random_raw(4)
    assert generator(7, Stream.PARTICIPATION, 4).bit_generator.random_raw(4).tolist() == expected.tolist()
    assert (
        initialisation_seed(0) == int(sequence(0, Stream.INITIALISATION).generate_state(1, np.uint64)[0]) // 2
    )


def run_of(rounds: int, aggregations: int, tiers: int, parties: int) -> Iterable[tuple[int, ...]]:
    """Every noise address that a run of a tree could have, and more."""
    return itertools.product(range(rounds), range(aggregations), range(tiers), range(parties))


def test_a_large_run_repeats_no_key_and_no_output() -> None:
    """180,000 addresses, of which states of 32 bits would repeat about four."""
    keys = [key_at(0, Stream.NOISE, *address) for address in run_of(1000, 4, 3, 15)]
    assert len(keys) == 180_000
    assert repeats([key[:16] for key in keys]) == 0
    assert repeats([KeyStream(key).take(16) for key in keys[::10]]) == 0
    assert repeats([key[:4] for key in keys]) > 0  # what the scan would say of 32 bits


def test_runs_seeds_streams_and_lengths_repeat_no_key_between_them() -> None:
    taken = {Stream.NOISE, Stream.COMPRESSION}
    keys = [key_at(0, Stream.NOISE, *address) for address in run_of(20, 4, 4, 60)]
    keys += [key_at(0, Stream.NOISE, number, group) for number in range(200) for group in range(60)]
    keys += [key_at(0, Stream.NOISE, *address) for address in itertools.product(range(30), repeat=3)]
    keys += [key_at(0, Stream.COMPRESSION, *address) for address in run_of(2, 20, 4, 60)]
    keys += [key_at(seed, Stream.NOISE, 0, 0, 1, 0) for seed in range(1, 20_000)]
    keys += [key_at(0, stream, 0, 0, 1, 0) for stream in Stream if stream not in taken]
    assert repeats([key[:16] for key in keys]) == 0


def test_generators_of_a_large_run_repeat_no_key() -> None:
    keys = [philox_key(0, Stream.PARTICIPATION, address) for address in run_of(100, 2, 2, 20)]
    keys += [philox_key(0, Stream.PARTICIPATION, pair) for pair in itertools.product(range(60), repeat=2)]
    keys += [philox_key(seed, Stream.BATCHES, [3]) for seed in range(2000)]
    assert repeats(keys) == 0


@pytest.mark.slow
def test_twelve_million_addresses_repeat_no_key_and_no_output() -> None:
    """1,000 rounds of 4 aggregations over 3 tiers of 1,000 parties."""
    count = 1000 * 4 * 3 * 1000
    found = np.empty((count, 2, 2), np.uint64)
    for row, address in enumerate(run_of(1000, 4, 3, 1000)):
        key = key_at(0, Stream.NOISE, *address)
        found[row] = np.frombuffer(key[:16] + KeyStream(key).take(16), np.uint64).reshape(2, 2)
    for what in (found[:, 0], found[:, 1]):
        ordered = what[np.lexsort(what.T)]
        assert not (ordered[1:] == ordered[:-1]).all(axis=1).any()
    assert len(np.unique(found[:, 0, 0] >> np.uint64(32))) < count  # 32 bits of it do repeat
