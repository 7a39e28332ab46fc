"""The envelope of every message: versioned, typed, length-checked, signed (Ed25519).

    magic "SFMT" · version u8 · kind u8 · session 32 · sender u32 · recipient u32 · length u64 · payload ·
    signature 64

All numbers are big-endian. The signature covers everything before it, so that a message is of one session,
kind, sender and recipient, and anybody who knows the sender's public key can tell.
"""

from __future__ import annotations

import struct
from collections.abc import Container, Mapping
from dataclasses import dataclass

from sfumato.wire import errors
from sfumato.wire.keys import SIGNATURE_BYTES, Identity, check_signature

VERSION = 1
SERVER = 0xFFFF_FFFF
EVERYBODY = 0xFFFF_FFFE
_MAGIC = b"SFMT"
_HEADER = struct.Struct(">4sBB32sIIQ")
OVERHEAD = _HEADER.size + SIGNATURE_BYTES


@dataclass(frozen=True)
class Frame:
    """A message.

    Attributes:
        kind: what the payload is, 0..255.
        session: whose it is, 32 bytes.
        sender: party, or `SERVER`.
        recipient: party, `SERVER`, or `EVERYBODY`.
        payload: content.
    """

    kind: int
    session: bytes
    sender: int
    recipient: int
    payload: bytes


def seal_frame(frame: Frame, identity: Identity) -> bytes:
    """``frame`` as bytes with a signature by ``identity`` at their end."""
    head = _HEADER.pack(
        _MAGIC, VERSION, frame.kind, frame.session, frame.sender, frame.recipient, len(frame.payload)
    )
    body = head + frame.payload
    return body + identity.sign(body)


def parse_frame(data: bytes) -> Frame:
    """Decode ``data``, the bytes of a frame, without checking its signature or its session.

    Raises:
        MessageError: it is truncated, malformed, or of another version.
    """
    if len(data) < OVERHEAD:
        raise errors.TruncatedMessageError(f"a message of {len(data)} bytes; the shortest has {OVERHEAD}")
    magic, version, kind, session, sender, recipient, length = _HEADER.unpack_from(data)
    if magic != _MAGIC:
        raise errors.MalformedMessageError("not a message of Sfumato")
    if version != VERSION:
        raise errors.UnsupportedVersionError(f"a message of version {version}; this is version {VERSION}")
    if len(data) < OVERHEAD + length:
        raise errors.TruncatedMessageError(
            f"{len(data) - OVERHEAD} bytes of payload; the header says {length}"
        )
    if len(data) > OVERHEAD + length:
        raise errors.MalformedMessageError(
            f"{len(data) - OVERHEAD - length} bytes after the end of the message"
        )
    return Frame(kind, session, sender, recipient, data[_HEADER.size : len(data) - SIGNATURE_BYTES])


def open_frame(
    data: bytes,
    *,
    session: bytes,
    keys: Mapping[int, bytes],
    recipient: int,
    expected: int,
    seen: Container[tuple[int, int]] = (),
    authenticate: bool = True,
) -> Frame:
    """Decode a frame and check everything that does not depend on its content, the signature included.

    Args:
        data: as received.
        session: identifier of the receiver's session, 32 bytes.
        keys: sender's number to its public key, for all that may send it.
        recipient: number that the frame must be addressed to.
        expected: the kind of message that may come now.
        seen: (kind, sender) of what was accepted.
        authenticate: whether to check the signature; false only where the channel's other end is trusted to
            have done it.

    Raises:
        MessageError: the first thing that is wrong.
    """
    frame = parse_frame(data)
    if frame.sender not in keys:
        raise errors.UnknownSenderError(f"a message from party {frame.sender}, who may not send it")
    if authenticate:
        check_signature(keys[frame.sender], data[-SIGNATURE_BYTES:], data[:-SIGNATURE_BYTES])
    if frame.session != session:
        raise errors.ReplayedMessageError(
            f"a message of session {frame.session.hex()[:12]}; this is {session.hex()[:12]}"
        )
    if (frame.kind, frame.sender) in seen:
        raise errors.DuplicateMessageError(f"a second message of kind {frame.kind} from party {frame.sender}")
    if frame.kind != expected:
        raise errors.OutOfOrderMessageError(f"a message of kind {frame.kind}; expected kind {expected} now")
    if frame.recipient != recipient:
        raise errors.MisroutedMessageError(f"a message for {frame.recipient}, delivered to {recipient}")
    return frame
