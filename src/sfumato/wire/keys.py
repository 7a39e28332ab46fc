"""Identities, key agreement, derived keys and sealed boxes; every primitive is `cryptography`'s.

Derived keys are HKDF-SHA256 (RFC 5869) with the session's name as salt and, as info, the purpose, both
parties' numbers and both public keys: a key of one session, purpose, round or pair is a key of no other.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Callable
from functools import lru_cache
from typing import TypeAlias

from cryptography.exceptions import InvalidSignature, InvalidTag
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey, X25519PublicKey
from cryptography.hazmat.primitives.ciphers.aead import AESGCM
from cryptography.hazmat.primitives.kdf.hkdf import HKDF

from sfumato.wire.errors import (
    ChangedTermsError,
    MalformedMessageError,
    RepeatedSessionError,
    TamperedMessageError,
)
from sfumato.wire.key_stream import KeyStream
from sfumato.wire.session_memory import ProcessMemory, SessionMemory

Entropy: TypeAlias = Callable[[int], bytes]
"""Gives that many fresh, unpredictable bytes: ``os.urandom``; in simulations and tests, bytes of a seed."""

KEY_BYTES = 32
SIGNATURE_BYTES = 64
NONCE_BYTES, TAG_BYTES = 12, 16
_DOMAIN = b"sfumato/1/"


def digest(purpose: bytes, *parts: bytes) -> bytes:
    """SHA-256, 32 bytes, of a purpose and parts with their lengths: other inputs give another hash."""
    state = hashlib.sha256(_DOMAIN + len(purpose).to_bytes(4, "big") + purpose)
    for part in parts:
        state.update(len(part).to_bytes(8, "big"))
        state.update(part)
    return state.digest()


class Identity:
    """A party's long-term signing key (Ed25519), and what it answered with it.

    The public half is what other parties know it by: that it reached them untouched (a public-key
    infrastructure, an attested registration) is an assumption of every protocol here.

    Args:
        entropy: gives the private key, 32 bytes.
        memory: of what was answered; in the field one that outlives the process (`FileMemory`). Without one
            it ends with the process: for simulations and tests.
    """

    def __init__(self, entropy: Entropy = os.urandom, memory: SessionMemory | None = None) -> None:
        self._key = Ed25519PrivateKey.from_private_bytes(entropy(KEY_BYTES))
        self._memory = ProcessMemory() if memory is None else memory
        self.public: bytes = self._key.public_key().public_bytes_raw()

    def sign(self, data: bytes) -> bytes:
        """The Ed25519 signature of ``data``, 64 bytes."""
        return self._key.sign(data)

    def secret(self, purpose: bytes, *parts: bytes) -> bytes:
        """32 bytes that only the owner of the key can compute, the same for the same purpose and parts.

        They are the hash of a signature that is never shown; it signs a digest with a prefix that no frame
        has.
        """
        asked = digest(b"asked/" + purpose, *parts)
        return digest(b"told to nobody", asked, self.sign(asked))

    def join(self, role: bytes, label: str, session: bytes) -> None:
        """Record that this identity takes part in a session, before anything is sent; once for each label.

        Args:
            role: in which role, such as ``b"party"``.
            label: of the session's terms.
            session: the hash of the terms.

        Raises:
            RepeatedSessionError: it took part in this session before; its secrets may have been revealed.
            ChangedTermsError: it took part under this label before, with other terms.
            SessionMemoryError: this cannot be recorded.
        """
        question = digest(b"joined", self.public, role, label.encode())
        earlier = self._memory.claim(question, session)
        if earlier == session:
            raise RepeatedSessionError(f"session {session.hex()[:12]}: this party took part in it already")
        if earlier is not None:
            raise ChangedTermsError(
                f"session {session.hex()[:12]}: this party took part under the label {label!r} already, with"
                f" other terms (session {earlier.hex()[:12]})"
            )

    def answer(self, session: bytes, kind: int, content: bytes) -> bool | None:
        """Record that a kind of message is answered, once in a session; must be called before it is sent.

        Args:
            session: the hash of the terms.
            kind: of the message to answer.
            content: of that message.

        Returns:
            ``None`` if no message of the kind was answered before: the answer may be sent. Otherwise it must
            not be, and the return says whether the message answered before had the same content.

        Raises:
            SessionMemoryError: this cannot be recorded.
        """
        asked = digest(b"content", content)
        earlier = self._memory.claim(digest(b"answered", self.public, session, bytes([kind])), asked)
        return None if earlier is None else earlier == asked


def session_entropy(entropy: Entropy, identity: Identity, session: bytes, number: int) -> Entropy:
    """A source of a party's random bytes in one session, hedged against a generator that repeats itself.

    AES-256-CTR under HKDF-SHA256 of 32 bytes of ``entropy`` and of `Identity.secret` for the session, with
    the session as salt. It cannot be told from random bytes by whoever lacks one of the two. So where
    ``entropy`` repeats itself (a copied or restored machine) or is known (to the owner of the copy), two
    sessions, or two parties, still have no secret, no share and no mask in common, and nobody else knows any.

    The same session with the same entropy is the same source. A party joins a session once (`Identity.join`):
    that happens only where its memory was put back too.

    Args:
        entropy: a source of random bytes, such as that of the operating system.
        identity: of the party.
        session: the session's identifier.
        number: of the party.
    """
    place = number.to_bytes(4, "big")
    both = entropy(KEY_BYTES) + identity.secret(b"entropy", session, place)
    return KeyStream(derive(both, session=session, purpose=b"entropy", context=place)).take


def check_signature(public: bytes, signature: bytes, data: bytes) -> None:
    """Check that ``signature`` is that of ``data`` by the owner of the Ed25519 key ``public``.

    Raises:
        TamperedMessageError: it is not.
    """
    try:
        Ed25519PublicKey.from_public_bytes(public).verify(signature, data)
    except (InvalidSignature, ValueError) as error:
        raise TamperedMessageError("the signature does not fit the message and its sender") from error


class KeyPair:
    """A key pair for agreement (X25519), used in one session.

    Attributes:
        secret: the private key, 32 bytes.
        public: the public key, 32 bytes.
    """

    def __init__(self, secret: bytes) -> None:
        self.secret = secret
        self._key = X25519PrivateKey.from_private_bytes(secret)
        self._agreed: dict[bytes, bytes] = {}
        self.public: bytes = self._key.public_key().public_bytes_raw()

    def agree(self, other: bytes) -> bytes:
        """The secret shared with the owner of the public key ``other``, 32 bytes; input to `derive` only.

        Raises:
            MalformedMessageError: ``other`` is of small order, and would make the secret public.
        """
        try:
            if other not in self._agreed:
                self._agreed[other] = self._key.exchange(X25519PublicKey.from_public_bytes(other))
            return self._agreed[other]
        except ValueError as error:
            raise MalformedMessageError(
                "a public key is not a point of X25519 that keys can be agreed with"
            ) from error


@lru_cache(maxsize=4096)
def agreement_point(public: bytes) -> bytes:
    """32 bytes that are equal for two public keys exactly if both agree on the same secrets with everybody.

    Several byte strings are one key: X25519 ignores bit 255, takes the other bits modulo 2^255 - 19, and its
    scalars, multiples of 8, cancel a point of small order that is added. So two keys agree on the same
    secrets with everybody exactly if they do with one fixed scalar, which is prime to the order of the large
    subgroups. What they agree on with it is returned, and remembered: every reader of a board asks.

    Raises:
        MalformedMessageError: the key is of small order.
    """
    return KeyPair(bytes(KEY_BYTES)).agree(public)


def derive(secret: bytes, *, session: bytes, purpose: bytes, context: bytes) -> bytes:
    """Derive a 32-byte key from a shared secret by HKDF-SHA256.

    Another session, purpose or context gives another, independent key.

    Args:
        secret: shared by the parties.
        session: the session's identifier, the salt.
        purpose: what the key is for.
        context: whose key it is, for example.
    """
    info = _DOMAIN + len(purpose).to_bytes(4, "big") + purpose + context
    return HKDF(algorithm=hashes.SHA256(), length=KEY_BYTES, salt=session, info=info).derive(secret)


def pair_key(
    own: KeyPair, other: bytes, *, session: bytes, purpose: bytes, first: int, second: int, own_first: bool
) -> bytes:
    """The 32-byte key that two parties share for a purpose, by `derive` from their key agreement.

    Both numbers and both public keys, in order, are its context; the other party gets the same key.

    Args:
        own: the caller's key pair.
        other: the other party's public key.
        session: the session's identifier.
        purpose: what the key is for.
        first: number of the party that comes first.
        second: of the other one.
        own_first: whether the caller is the first.

    Raises:
        MalformedMessageError: ``other`` is of small order.
    """
    keys = (own.public, other) if own_first else (other, own.public)
    context = first.to_bytes(4, "big") + keys[0] + second.to_bytes(4, "big") + keys[1]
    return derive(own.agree(other), session=session, purpose=purpose, context=context)


def seal(key: bytes, plain: bytes, associated: bytes, entropy: Entropy) -> bytes:
    """Encrypt and authenticate ``plain`` by AES-256-GCM: nonce (12 bytes), ciphertext and tag (16 bytes).

    Args:
        key: 32 bytes, which seals this one message only.
        plain: to be encrypted.
        associated: authenticated, not encrypted; it must be given again to `unseal`.
        entropy: gives the nonce.
    """
    nonce = entropy(NONCE_BYTES)
    return nonce + AESGCM(key).encrypt(nonce, plain, associated)


def unseal(key: bytes, box: bytes, associated: bytes) -> bytes:
    """The plain bytes of ``box``, which `seal` made with the same key and associated data.

    Raises:
        TamperedMessageError: the box or the associated data were changed, or the key is another.
    """
    try:
        return AESGCM(key).decrypt(box[:NONCE_BYTES], box[NONCE_BYTES:], associated)
    except (InvalidTag, ValueError) as error:
        raise TamperedMessageError("a sealed share does not authenticate") from error
