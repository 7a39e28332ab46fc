"""The keys of a party: the one that signs frames, and the one of its connections, each with its public half.

The key of connections is an EC key (P-256) with a certificate that it signed itself. Nobody vouches for a
certificate: who may connect is who is registered, and TLS compares whole certificates (`tls_hops`). What the
owner of a party sends to whoever deploys is the file ``public.yaml``; it holds no secret. In it the
signing key signs the certificate, which is bound to it by that (`hop_proofs`).
"""

from __future__ import annotations

import base64
import datetime
import ssl
from contextlib import closing
from pathlib import Path

import yaml
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID
from pydantic import Field

from sfumato.deployment.party_folder import PartyFolder
from sfumato.deployment.private_files import require_own, require_private, write_private
from sfumato.deployment.section_files import read_section
from sfumato.errors import RunError, SpecError
from sfumato.spec.base import Section
from sfumato.user_text import read_text
from sfumato.wire.errors import TamperedMessageError
from sfumato.wire.keys import KEY_BYTES, Identity, check_signature, digest

PUBLIC = "public.yaml"
"""The name of the file of public keys, in a party's folder."""

_KEY, _CERTIFICATE = "hop-key.pem", "hop-certificate.pem"
_BEFORE, _AFTER = datetime.timedelta(days=1), datetime.timedelta(days=5 * 365)  # clocks differ


class PublicKeys(Section):
    """The file ``public.yaml``: the public halves of a party's two keys."""

    key: str = Field(description="that its frames are signed with, in hexadecimal digits")
    certificate: str = Field(description="of its connections, DER in base64")
    binding: str = Field(description="of the certificate to the key: a signature, in hexadecimal digits")

    @property
    def signing(self) -> bytes:
        """The public key of its signatures on frames, 32 bytes."""
        return bytes.fromhex(self.key)

    @property
    def subject(self) -> bytes:
        """The subject of the certificate, as bytes (DER).

        TLS finds certificates by it, so no two parties may share one.
        """
        found = x509.load_der_x509_certificate(base64.b64decode(self.certificate))
        return found.subject.public_bytes()


def make_keys(folder: Path) -> PublicKeys:
    """Make the keys of a party in its folder, and write ``public.yaml`` there; existing keys are kept.

    Raises:
        RunError: they cannot be written, or other users can read or change what is there.
        SessionMemoryError: the party's memory is missing, damaged or open in another process.
    """
    with closing(PartyFolder.open_or_create(folder)) as opened:
        identity = opened.identity
    if not (folder / _KEY).exists():
        _make_certificate(folder)
    certificate = HopKey(folder).certificate
    said = PublicKeys(
        key=identity.public.hex(),
        certificate=base64.b64encode(certificate).decode(),
        binding=bind_certificate(identity, certificate),
    )
    write_private(folder / PUBLIC, yaml.safe_dump(said.model_dump(mode="json"), sort_keys=False).encode())
    return said


def read_public(path: Path) -> PublicKeys:
    """Read the public keys from a file ``public.yaml``.

    Raises:
        SpecError: it cannot be read, or is not such a file.
    """
    said = read_section(path, PublicKeys)
    try:
        is_key = len(said.signing) == KEY_BYTES
    except ValueError:
        is_key = False
    if not is_key:
        raise SpecError(f"{path}: key", said.key, f"must be {2 * KEY_BYTES} hexadecimal digits")
    certificate = certificate_bytes(said.certificate, f"{path}: certificate")
    require_bound(said.signing, certificate, said.binding, f"{path}: binding")
    return said


def certificate_bytes(text: str, place: str) -> bytes:
    """A certificate as bytes (DER), from base64.

    Raises:
        SpecError: ``text`` is no certificate; the message names ``place``.
    """
    try:
        found = base64.b64decode(text.encode(), validate=True)
        x509.load_der_x509_certificate(found).subject.public_bytes()  # which is read only now
    except (ValueError, x509.InvalidVersion):
        raise SpecError(place, text, "must be a certificate, DER in base64") from None
    return found


def bind_certificate(identity: Identity, certificate: bytes) -> str:
    """The binding of a certificate (DER): its owner's signature over it, in hexadecimal digits."""
    return identity.sign(_bound(certificate)).hex()


def require_bound(key: bytes, certificate: bytes, binding: str, place: str) -> None:
    """Check that the owner of a signing key has bound a certificate to it.

    Args:
        key: the owner's public signing key, 32 bytes.
        certificate: DER.
        binding: from `bind_certificate`.
        place: of the binding, for the message.

    Raises:
        SpecError: the binding is not valid; the message names ``place``.
    """
    try:
        check_signature(key, bytes.fromhex(binding), _bound(certificate))
    except (ValueError, TamperedMessageError):
        allowed = f"must be a certificate's binding by the key {key.hex()[:16]}… of that party, and is not"
        raise SpecError(place, f"{binding[:16]}…", allowed) from None


def _bound(certificate: bytes) -> bytes:
    return digest(b"hop certificate", certificate)


class HopKey:
    """The key that a party uses for TLS, with its certificate.

    Args:
        folder: of the party.

    Raises:
        RunError: there is none, or other users can read it, or key and certificate do not belong together.

    Attributes:
        certificate: as bytes (DER).
    """

    def __init__(self, folder: Path) -> None:
        require_private(folder / _KEY)
        require_own(folder / _CERTIFICATE)
        self._key, self._path = folder / _KEY, folder / _CERTIFICATE
        try:
            self.certificate = ssl.PEM_cert_to_DER_cert(read_text(self._path).strip())
        except ValueError:
            raise RunError(f"{self._path}: is no certificate") from None
        self.context(ssl.PROTOCOL_TLS_CLIENT, ())

    def context(self, protocol: int, others: tuple[bytes, ...]) -> ssl.SSLContext:
        """TLS 1.3 with this key, towards the owners of one of ``others`` and nobody else.

        Both ends show a certificate. The addresses in it are not looked at, as it is compared as a whole.

        Args:
            protocol: of the end that this is, ``ssl.PROTOCOL_TLS_CLIENT`` or ``ssl.PROTOCOL_TLS_SERVER``.
            others: the certificates (DER) that the other end may show.

        Raises:
            RunError: the key cannot be used.
        """
        made = ssl.SSLContext(protocol)
        made.minimum_version = ssl.TLSVersion.TLSv1_3
        made.check_hostname = False
        made.verify_mode = ssl.CERT_REQUIRED
        if protocol == ssl.PROTOCOL_TLS_SERVER:
            made.num_tickets = 0  # a session that is taken up again would show no certificate
        try:
            made.load_cert_chain(self._path, self._key)
            if others:
                made.load_verify_locations(cadata=b"".join(others))
        except (OSError, ValueError) as error:
            raise RunError(f"{self._key}: cannot be used: {error}") from None
        return made


def _make_certificate(folder: Path) -> None:
    """Write a new key and the certificate that it signs, with a subject that no other one has."""
    key = ec.generate_private_key(ec.SECP256R1())
    serial = x509.random_serial_number()
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, f"sfumato {serial:x}"[:64])])
    now = datetime.datetime.now(datetime.UTC)
    made = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(serial)
        .not_valid_before(now - _BEFORE)
        .not_valid_after(now + _AFTER)
        .sign(key, hashes.SHA256())
    )
    pem, form = serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8
    write_private(folder / _CERTIFICATE, made.public_bytes(pem))
    write_private(folder / _KEY, key.private_bytes(pem, form, serialization.NoEncryption()))
