"""The certificate of SuperLinks on the loopback address, and the keys by which SuperNodes are registered."""

from __future__ import annotations

import datetime
import ipaddress
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

AUTHORITY, CERTIFICATE, KEY = "ca.pem", "superlink.pem", "superlink-key.pem"

_BEFORE, _AFTER = datetime.timedelta(days=1), datetime.timedelta(days=365)  # clocks differ
_HOST = ipaddress.ip_address("127.0.0.1")
_PLAIN = serialization.NoEncryption()


def write_certificates(folder: Path) -> None:
    """Write a certificate and its key for all SuperLinks of a run, and that of the authority that signed it.

    The authority is made for this one certificate; its key is not kept.
    """
    authority, own = ec.generate_private_key(ec.SECP256R1()), ec.generate_private_key(ec.SECP256R1())
    issuer = _name("authority of one run")
    root = _certificate(issuer, issuer, authority.public_key()).add_extension(
        x509.BasicConstraints(ca=True, path_length=0), critical=True
    )
    leaf = _certificate(_name("superlink"), issuer, own.public_key()).add_extension(
        x509.SubjectAlternativeName([x509.IPAddress(_HOST)]), critical=False
    )
    pem = serialization.Encoding.PEM
    for name, one in ((AUTHORITY, root), (CERTIFICATE, leaf)):
        (folder / name).write_bytes(one.sign(authority, hashes.SHA256()).public_bytes(pem))
    _write_secret(folder / KEY, own.private_bytes(pem, serialization.PrivateFormat.PKCS8, _PLAIN))


def write_node_key(path: Path) -> None:
    """Write a new SuperNode's key, readable by its owner alone, at ``path``.

    Its public half goes to the same path with the suffix ``.pub``.
    """
    key = ec.generate_private_key(ec.SECP384R1())
    pem, openssh = serialization.Encoding.PEM, serialization.Encoding.OpenSSH
    _write_secret(path, key.private_bytes(pem, serialization.PrivateFormat.OpenSSH, _PLAIN))
    public = key.public_key().public_bytes(openssh, serialization.PublicFormat.OpenSSH)
    path.with_suffix(".pub").write_bytes(public)


def _name(text: str) -> x509.Name:
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, f"sfumato {text}")])


def _certificate(
    subject: x509.Name, issuer: x509.Name, key: ec.EllipticCurvePublicKey
) -> x509.CertificateBuilder:
    """A builder of the certificate of ``subject`` with public key ``key``, valid now, not signed yet."""
    now = datetime.datetime.now(datetime.UTC)
    made = x509.CertificateBuilder().subject_name(subject).issuer_name(issuer).public_key(key)
    made = made.serial_number(x509.random_serial_number())
    return made.not_valid_before(now - _BEFORE).not_valid_after(now + _AFTER)


def _write_secret(path: Path, content: bytes) -> None:
    path.touch(mode=0o600)
    path.write_bytes(content)
