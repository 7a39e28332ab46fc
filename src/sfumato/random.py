"""Named, counter-based random streams: one seed, one stream a purpose, no global generator.

A stream is addressed by its purpose and a key of integers (round, step, party ...), so two
programs that ask for the same address draw the same numbers whatever else they drew before:
``account`` and ``run`` see the same trust draw, and a resumed run the same noise.
"""

from __future__ import annotations

import enum

import numpy as np


class Stream(enum.IntEnum):
    """What randomness is for. The numbers are part of the file format: never renumber."""

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
    AUDIT = 20
    SCHEDULE = 21
    FAULTS = 22
    ZONES = 23
    ATTACK = 30


def sequence(seed: int, stream: Stream, *key: int) -> np.random.SeedSequence:
    """The seed sequence at address ``(stream, *key)`` of ``seed``."""
    return np.random.SeedSequence(entropy=seed, spawn_key=(int(stream), *key))


def generator(seed: int, stream: Stream, *key: int) -> np.random.Generator:
    """A fresh NumPy generator (Philox) at address ``(stream, *key)``."""
    return np.random.Generator(np.random.Philox(sequence(seed, stream, *key)))


def torch_seed(seed: int, stream: Stream, *key: int) -> int:
    """A 63-bit seed for ``torch.Generator.manual_seed`` at address ``(stream, *key)``."""
    return int(sequence(seed, stream, *key).generate_state(1, np.uint64)[0] >> np.uint64(1))
