"""What the frames of a deployment hold: a question has a model, an answer has whole numbers.

    question    round u32 · aggregation u32 · model: M float32
    answer      round u32 · aggregation u32 · steps of the grid: M int64

Round and aggregation are big-endian, as the frame's own numbers are; vectors are little-endian, as NumPy's
are on all machines in use. Every message of a kind has the same length: it tells nothing.
"""

from __future__ import annotations

import enum
import struct
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from sfumato.wire.errors import MalformedMessageError

IntArray = npt.NDArray[np.int64]
Model = npt.NDArray[np.float32]

_POSITION = struct.Struct(">II")


class FrameKind(enum.IntEnum):
    """The kinds of frames; the values are part of the format."""

    QUESTION = 1
    ANSWER = 2


class RoundPosition(NamedTuple):
    """Which aggregation of a run: positions are in the order in which they happen.

    Attributes:
        round: from 0.
        aggregation: of the round, from 0.
    """

    round: int
    aggregation: int

    def __str__(self) -> str:
        return f"round {self.round + 1}, aggregation {self.aggregation + 1}"


def encode_question(position: RoundPosition, model: Model) -> bytes:
    """The payload that asks for an answer to ``model`` ``[M]``, float32."""
    return _POSITION.pack(*position) + model.astype("<f4").tobytes()


def decode_question(payload: bytes, length: int) -> tuple[RoundPosition, Model]:
    """The position and the model ``[length]`` of a payload.

    Raises:
        MalformedMessageError: of another length, or not finite.
    """
    position, model = _decode(payload, length, "<f4")
    if not np.isfinite(model).all():
        raise MalformedMessageError(f"{position}: a model that is not finite")
    return position, model.astype(np.float32)


def encode_answer(position: RoundPosition, steps: IntArray) -> bytes:
    """The payload that answers with ``steps`` ``[M]`` of the grid."""
    return _POSITION.pack(*position) + steps.astype("<i8").tobytes()


def decode_answer(payload: bytes, length: int) -> tuple[RoundPosition, IntArray]:
    """The position and the steps ``[length]`` of a payload.

    Raises:
        MalformedMessageError: of another length.
    """
    position, steps = _decode(payload, length, "<i8")
    return position, steps.astype(np.int64)


def _decode(payload: bytes, length: int, kind: str) -> tuple[RoundPosition, npt.NDArray[np.generic]]:
    wanted = _POSITION.size + length * np.dtype(kind).itemsize
    if len(payload) != wanted:
        raise MalformedMessageError(f"a payload of {len(payload)} bytes; must have {wanted}")
    position = RoundPosition(*_POSITION.unpack_from(payload))
    return position, np.frombuffer(payload, kind, offset=_POSITION.size)
