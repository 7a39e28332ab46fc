"""Named, counter-based random streams: one seed, one stream for each purpose, no global generator.

A stream is addressed by its purpose and integers (round, step, party ...). Two programs that use the same
address draw the same numbers, whatever they drew before: ``account`` and ``run`` see the same trust draw, and
a resumed run has the same noise.

Different addresses have different states. Noise and masks start from `key_at`: 256 bits, a cryptographic hash
of seed, stream and address. All other draws come from `generator`, whose 128 bits NumPy derives from the
same. All random numbers can be computed from the seed: this is for simulation.
"""

from __future__ import annotations

import enum
import hashlib
import operator

import numpy as np

_SEED_BITS, _WORD_BITS = 128, 32


class Stream(enum.IntEnum):
    """The purposes of random numbers. The values are part of the file format: never change them."""

    PARTITION = 1
    TRUST = 2
    PARTICIPATION = 3
    BATCHES = 4
    NOISE = 5
    INITIALISATION = 6
    SYNTHETIC = 7
    PILOT = 8
    CHANNEL = 9
    ELECTION = 10
    COMPRESSION = 11
    POISSON_BATCHES = 12
    STEP_NOISE = 13
    DROPOUT = 14
    AUDIT = 20
    SCHEDULE = 21
    FAULTS = 22
    ZONES = 23
    TOPOLOGY = 24
    ATTACK = 30


def key_at(seed: int, stream: Stream, *address: int) -> bytes:
    """The 32-byte key at the address ``(stream, *address)`` of ``seed``, for noise and secrets.

    BLAKE2b of the integers in decimal, separated by commas: different addresses, whatever their lengths and
    however large their integers, are different texts.

    Raises:
        ValueError: an integer is negative.
    """
    numbers = [operator.index(number) for number in (seed, stream, *address)]
    if min(numbers) < 0:
        raise ValueError(f"address: got {numbers}; must be integers of 0 or more")
    text = b",".join([b"%d" % number for number in numbers])
    return hashlib.blake2b(text, digest_size=32, person=b"sfumato key").digest()


def seed_at(seed: int, stream: Stream, *address: int) -> int:
    """A seed of 128 bits at the address ``(stream, *address)`` of ``seed``, for a simulation inside of a run.

    Raises:
        ValueError: an integer is negative.
    """
    return int.from_bytes(key_at(seed, stream, *address)[: _SEED_BITS // 8], "big")


def sequence(seed: int, stream: Stream, *address: int) -> np.random.SeedSequence:
    """NumPy's seed sequence at the address ``(stream, *address)`` of ``seed``.

    NumPy cuts integers into words of 32 bits, fills the seed's up to four words with zeros, and appends the
    address's: longer integers would run into their neighbours, so they are refused.

    Raises:
        ValueError: the seed is negative or has more than 128 bits, another integer more than 32.
    """
    numbers = (int(stream), *address)
    if not 0 <= seed < 1 << _SEED_BITS or not all(0 <= number < 1 << _WORD_BITS for number in numbers):
        raise ValueError(
            f"address: got {numbers} of seed {seed}; must be integers from 0 to below 2^{_WORD_BITS}, "
            f"and a seed below 2^{_SEED_BITS}"
        )
    return np.random.SeedSequence(entropy=seed, spawn_key=numbers)


def generator(seed: int, stream: Stream, *address: int) -> np.random.Generator:
    """A fresh NumPy generator (Philox, with a key of 128 bits) at ``(stream, *address)`` of ``seed``.

    Raises:
        ValueError: see `sequence`.
    """
    return np.random.Generator(np.random.Philox(sequence(seed, stream, *address)))


def initialisation_seed(seed: int) -> int:
    """The seed of torch's own generator for the initialisation of models, and for nothing else.

    A CPU's generator keeps only 32 bits of it. This is enough here: an initial model does not depend on data,
    and every party receives it. Noise from so few states could be found by trying all of them.
    """
    return int(sequence(seed, Stream.INITIALISATION).generate_state(1, np.uint64)[0] >> np.uint64(1))
