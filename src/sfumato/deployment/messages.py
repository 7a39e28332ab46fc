"""What the frames of a deployment hold: a question has a model, an answer has whole numbers.

    question    round u32 · aggregation u32 · attempt 16 · model: M float32
    answer      round u32 · aggregation u32 · hash of the question 32 · steps of the grid: M int64
    masking     round u32 · aggregation u32 · attempt 16 · message of `secure_aggregation`

Where a hop is masked, the asker draws the attempt, which names a session of secure aggregation, and the
messages of that session are the answer (`masked_hops`). On plain hops it is zeros. It is no part of the
question's hash: the same question of another attempt is the same question.

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
from sfumato.wire.keys import digest

IntArray = npt.NDArray[np.int64]
Model = npt.NDArray[np.float32]

ATTEMPT_BYTES = 16
HASH_BYTES = 32
NO_ATTEMPT = bytes(ATTEMPT_BYTES)
"""Of questions over plain hops."""

_POSITION = struct.Struct(">II")
_CHILD_BYTES = 1024  # at least what a message of a session of masks has for each child


class FrameKind(enum.IntEnum):
    """The kinds of frames; the values are part of the format."""

    QUESTION = 1
    ANSWER = 2
    MASKING = 3


class RoundPosition(NamedTuple):
    """An aggregation of a run. Positions compare in the order of time.

    Attributes:
        round: from 0.
        aggregation: of the round, from 0.
    """

    round: int
    aggregation: int

    def __str__(self) -> str:
        return f"round {self.round + 1}, aggregation {self.aggregation + 1}"


def question_hash(position: RoundPosition, model: Model) -> bytes:
    """The hash of a question, 32 bytes, as memories and answers name it.

    ``model``: float32 ``[M]``.
    """
    return digest(b"question", _POSITION.pack(*position), model.astype("<f4").tobytes())


def encode_question(position: RoundPosition, model: Model, attempt: bytes = NO_ATTEMPT) -> bytes:
    """The payload of a question, which sends ``model``, float32 ``[M]``, to be trained.

    ``attempt``: 16 bytes that name a session of secure aggregation; zeros without one.
    """
    return _POSITION.pack(*position) + attempt + model.astype("<f4").tobytes()


def decode_question(payload: bytes, length: int) -> tuple[RoundPosition, bytes, Model]:
    """The position, the attempt and the model ``[length]`` in the payload of a question.

    Raises:
        MalformedMessageError: it has another length, or a number is not finite.
    """
    position, attempt, model = _decode(payload, ATTEMPT_BYTES, length, "<f4")
    if not np.isfinite(model).all():
        raise MalformedMessageError(f"{position}: a model that is not finite")
    return position, attempt, model.astype(np.float32)


def largest_answer(parameters: int, children: int) -> int:
    """An upper bound on the bytes of any frame between a parent and a child, plain or masked.

    Args:
        parameters: M, each of which is 8 bytes in an answer, and 4 under masks.
        children: number of the parent's children, as a masked session has keys, shares and signatures of
            each.
    """
    return 8 * parameters + _CHILD_BYTES * (children + 1)


def encode_answer(position: RoundPosition, question: bytes, steps: IntArray) -> bytes:
    """The payload of an answer to the question with the hash ``question``, 32 bytes.

    ``steps``: the answer ``[M]``, in steps of the grid.
    """
    return _POSITION.pack(*position) + question + steps_as_bytes(steps)


def decode_answer(payload: bytes, length: int) -> tuple[RoundPosition, bytes, IntArray]:
    """The position, the hash of the question and the steps ``[length]`` in the payload of an answer.

    Raises:
        MalformedMessageError: it has another length.
    """
    position, question, steps = _decode(payload, HASH_BYTES, length, "<i8")
    return position, question, steps.astype(np.int64)


def steps_as_bytes(steps: IntArray) -> bytes:
    """The whole numbers ``steps`` ``[M]`` as bytes: int64, little-endian, as in answers and memories."""
    return steps.astype("<i8").tobytes()


def steps_from_bytes(kept: bytes) -> IntArray:
    """The whole numbers ``[M]`` that `steps_as_bytes` packed into ``kept``, int64."""
    return np.frombuffer(kept, "<i8").astype(np.int64)


def encode_masking(position: RoundPosition, attempt: bytes, message: bytes) -> bytes:
    """The payload of ``message`` of the secure aggregation that ``attempt``, 16 bytes, names."""
    return _POSITION.pack(*position) + attempt + message


def decode_masking(payload: bytes) -> tuple[RoundPosition, bytes, bytes]:
    """The position, the attempt and the message in a payload of `encode_masking`.

    Raises:
        MalformedMessageError: it is too short.
    """
    start = _POSITION.size + ATTEMPT_BYTES
    if len(payload) < start:
        raise MalformedMessageError(f"a payload of {len(payload)} bytes; must have at least {start}")
    position = RoundPosition(*_POSITION.unpack_from(payload))
    return position, payload[_POSITION.size : start], payload[start:]


def _decode(
    payload: bytes, between: int, length: int, kind: str
) -> tuple[RoundPosition, bytes, npt.NDArray[np.generic]]:
    """The position, the next ``between`` bytes, and the vector of ``length`` numbers in ``payload``.

    ``kind``: NumPy's name of the numbers' type.

    Raises:
        MalformedMessageError: the payload has another length.
    """
    start = _POSITION.size + between
    wanted = start + length * np.dtype(kind).itemsize
    if len(payload) != wanted:
        raise MalformedMessageError(f"a payload of {len(payload)} bytes; must have {wanted}")
    position = RoundPosition(*_POSITION.unpack_from(payload))
    return position, payload[_POSITION.size : start], np.frombuffer(payload, kind, offset=start)
