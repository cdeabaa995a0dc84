"""The server's certificate: read from its two files, checked, and made into the context of new connections.

Surface: other planes may import this module.
"""

from __future__ import annotations

import os
import ssl
import stat
from dataclasses import dataclass
from pathlib import Path

from cryptography import x509

# Of TLS 1.2; TLS 1.3 has only good ones. Forward secrecy and authenticated encryption, nothing else.
CIPHERS = "ECDHE+AESGCM:ECDHE+CHACHA20"
APPLICATION_PROTOCOLS = ["http/1.1"]
CERTIFICATE_FILE_BYTES_MAX = 1024 * 1024


class CertificateRefused(Exception):
    """The files hold no certificate that can be used; says which file and why, and nothing of the key."""


@dataclass(frozen=True)
class ServerCertificate:
    """`names`: what clients may call the server, DNS names and addresses. Times are Unix seconds."""

    context: ssl.SSLContext
    names: tuple[str, ...]
    serial_number: str
    not_before_s: float
    not_after_s: float

    def is_valid_at(self, now_s: float) -> bool:
        return self.not_before_s <= now_s < self.not_after_s


def load_certificate(certificate_file: str, key_file: str) -> ServerCertificate:
    """The certificate with its chain, and the key that belongs to it, both PEM. Raises CertificateRefused. An expired
    one is read all the same: the caller decides."""
    leaf = _read_leaf(certificate_file)
    _require_readable(key_file)
    context = _new_context()
    try:
        # A key under a password would have OpenSSL ask at the terminal.
        context.load_cert_chain(certificate_file, key_file, password=lambda: "")
    except ssl.SSLError as error:
        raise CertificateRefused(_reason(error, certificate_file, key_file)) from None
    except (OSError, ValueError) as error:
        raise CertificateRefused(f"{certificate_file} and {key_file} cannot be loaded: {error}") from None
    return ServerCertificate(
        context,
        _names_of(leaf),
        f"{leaf.serial_number:x}",
        leaf.not_valid_before_utc.timestamp(),
        leaf.not_valid_after_utc.timestamp(),
    )


def is_readable_by_others(key_file: str) -> bool:
    """Whether every user of the machine can read the key."""
    return bool(os.stat(key_file).st_mode & stat.S_IROTH)


def _new_context() -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    context.set_ciphers(CIPHERS)
    context.set_alpn_protocols(APPLICATION_PROTOCOLS)
    context.options |= ssl.OP_NO_RENEGOTIATION | ssl.OP_NO_COMPRESSION
    return context


def _read_leaf(path: str) -> x509.Certificate:
    """The first certificate of the file, which is the server's own."""
    content = _require_readable(path)
    try:
        return x509.load_pem_x509_certificates(content)[0]
    except (ValueError, IndexError):
        raise CertificateRefused(f"{path} holds no certificate in PEM") from None


def _require_readable(path: str) -> bytes:
    try:
        with Path(path).open("rb") as file:
            content = file.read(CERTIFICATE_FILE_BYTES_MAX + 1)
    except OSError as error:
        raise CertificateRefused(f"{path} cannot be read: {error.strerror}") from None
    if len(content) > CERTIFICATE_FILE_BYTES_MAX:
        raise CertificateRefused(f"{path} is larger than {CERTIFICATE_FILE_BYTES_MAX} bytes: it is no PEM file")
    return content


def _reason(error: ssl.SSLError, certificate_file: str, key_file: str) -> str:
    reason = error.reason or ""
    if "KEY_VALUES_MISMATCH" in reason or "KEY_TYPE_MISMATCH" in reason:
        return f"the key in {key_file} is not that of the certificate in {certificate_file}"
    if "DECRYPT" in reason or "PASSWORD" in reason:
        return f"the key in {key_file} is under a password; store it without one"
    if reason in ("EE_KEY_TOO_SMALL", "CA_KEY_TOO_SMALL", "CA_MD_TOO_WEAK"):
        return f"{certificate_file} is too weak ({reason.lower().replace('_', ' ')})"
    told = reason.lower().replace("_", " ") or "not PEM"
    return f"{key_file} holds no private key that can be used with {certificate_file} ({told})"


def _names_of(leaf: x509.Certificate) -> tuple[str, ...]:
    try:
        extension = leaf.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    except (x509.ExtensionNotFound, ValueError):
        return ()
    addresses = map(str, extension.get_values_for_type(x509.IPAddress))
    return (*extension.get_values_for_type(x509.DNSName), *addresses)
