"""The certificates that the processes of an installation show each other (docs/inner_trust.md).

    <authority>/inner-ca.pem, inner-ca.key    the authority; its key signs, and no process reads it
    <folder>/NAME/ca.pem, own.pem             what one process, or all of one role, get: whom to believe, and the own
                                              certificate with its key in one file, so that both change at once

`settle` makes what is missing, what nears its end and what is of another authority; it is called often.
"""

from __future__ import annotations

import datetime
import fcntl
import os
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import NamedTuple

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec

from deploy.limits import (
    AUTHORITY_DAYS,
    AUTHORITY_RENEW_DAYS,
    CERTIFICATE_DAYS,
    CERTIFICATE_RENEW_DAYS,
)
from deploy.make_secrets import write_private
from storage_nodes.trust.credentials import CredentialFiles
from storage_nodes.trust.names import InnerName, InnerRole

AUTHORITY_FILE, AUTHORITY_KEY_FILE = "inner-ca.pem", "inner-ca.key"
_BACKDATED = datetime.timedelta(hours=1)  # for those whose clocks are behind
_USAGES = (x509.ExtendedKeyUsageOID.SERVER_AUTH, x509.ExtendedKeyUsageOID.CLIENT_AUTH)


class _Authority(NamedTuple):
    certificate: x509.Certificate
    key: ec.EllipticCurvePrivateKey


def folder_name(name: InnerName) -> str:
    return f"{name.role}-{name.number}"


def files_of(folder: Path, name: InnerName) -> CredentialFiles:
    own = folder / folder_name(name)
    return CredentialFiles(str(own / "ca.pem"), str(own / "own.pem"), str(own / "own.pem"))


def settle(authority_folder: Path, folder: Path, names: Iterable[InnerName], days: int = CERTIFICATE_DAYS) -> list[str]:
    """Returns which were made. Raises OSError."""
    made: list[str] = []
    for directory in (authority_folder, folder):
        directory.mkdir(mode=0o700, parents=True, exist_ok=True)
    with _alone(authority_folder):
        authority = _settle_authority(authority_folder)
        believed = authority.certificate.public_bytes(serialization.Encoding.PEM)
        for name in names:
            own = folder / folder_name(name)
            own.mkdir(mode=0o700, exist_ok=True)
            if not _is_good(own / "own.pem", name, authority.certificate):
                write_private(own / "own.pem", _issue(authority, name, days))
                made.append(folder_name(name))
            if _content(own / "ca.pem") != believed:
                write_private(own / "ca.pem", believed)
    return made


def ends_of(folder: Path) -> dict[str, float]:
    """In how many days each certificate ends; one that cannot be read is left out (`unusable_in` names it)."""
    ends = {}
    for path in sorted(folder.glob("*/own.pem")):
        with suppress(OSError, ValueError):
            ends[path.parent.name] = _days_left(x509.load_pem_x509_certificate(path.read_bytes()))
    return ends


def unusable_in(folder: Path, cluster_id: str) -> list[str]:
    """What is wrong with the certificates that cannot be read, or are of another process than their folder's."""
    told = []
    for path in sorted(folder.glob("*/own.pem")):
        try:
            certificate = x509.load_pem_x509_certificate(path.read_bytes())
        except (OSError, ValueError):
            told.append(f"{path} holds no certificate that can be read")
            continue
        names = _uris_of(certificate)
        role = next((role for role in InnerRole if path.parent.name.startswith(f"{role}-")), None)
        wanted = role and str(InnerName(cluster_id, role, path.parent.name.removeprefix(f"{role}-")))
        if wanted and names != [wanted]:
            told.append(f"{path} is the certificate of {', '.join(names) or 'nobody'}, not of {wanted}")
    return told


@contextmanager
def _alone(folder: Path) -> Iterator[None]:
    """Two commands at once would make two authorities."""
    descriptor = os.open(folder / ".inner-ca.lock", os.O_RDWR | os.O_CREAT, 0o600)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        yield
    finally:
        os.close(descriptor)


def _settle_authority(folder: Path) -> _Authority:
    known = _read_authority(folder)
    if known is not None and _days_left(known.certificate) > AUTHORITY_RENEW_DAYS:
        return known
    key = ec.generate_private_key(ec.SECP256R1())
    subject = _subject("Penstock inner authority")
    builder = _builder(subject, key.public_key(), AUTHORITY_DAYS).issuer_name(subject)
    builder = builder.add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
    builder = builder.add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False)
    made = _Authority(builder.sign(key, hashes.SHA256()), key)
    # The key first: a certificate without its key would be taken for a whole authority's half.
    write_private(folder / AUTHORITY_KEY_FILE, _pem_of(key))
    write_private(folder / AUTHORITY_FILE, made.certificate.public_bytes(serialization.Encoding.PEM))
    return made


def _read_authority(folder: Path) -> _Authority | None:
    """None where there is none that is whole."""
    try:
        certificate = x509.load_pem_x509_certificate((folder / AUTHORITY_FILE).read_bytes())
        key = serialization.load_pem_private_key((folder / AUTHORITY_KEY_FILE).read_bytes(), None)
    except (OSError, ValueError):
        return None
    if not isinstance(key, ec.EllipticCurvePrivateKey) or key.public_key() != certificate.public_key():
        return None
    return _Authority(certificate, key)


def _is_good(path: Path, name: InnerName, authority: x509.Certificate) -> bool:
    content = _content(path)
    if content is None:
        return False
    try:
        certificate = x509.load_pem_x509_certificate(content)
        certificate.verify_directly_issued_by(authority)
        key = serialization.load_pem_private_key(content, None)
    except Exception:  # whatever is wrong with it: another one is made
        return False
    is_named = _uris_of(certificate) == [str(name)]
    return (
        is_named and key.public_key() == certificate.public_key() and _days_left(certificate) > _renew_days(certificate)
    )


def _uris_of(certificate: x509.Certificate) -> list[str]:
    try:
        names = certificate.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    except (x509.ExtensionNotFound, ValueError):
        return []
    return names.get_values_for_type(x509.UniformResourceIdentifier)


def _renew_days(certificate: x509.Certificate) -> float:
    """The last third of its life, at most CERTIFICATE_RENEW_DAYS."""
    life = certificate.not_valid_after_utc - certificate.not_valid_before_utc
    return min(life / datetime.timedelta(days=1) / 3, CERTIFICATE_RENEW_DAYS)


def _issue(authority: _Authority, name: InnerName, days: int) -> bytes:
    key = ec.generate_private_key(ec.SECP256R1())
    builder = _builder(_subject(folder_name(name)), key.public_key(), days).issuer_name(authority.certificate.subject)
    for extension, critical in (
        (x509.SubjectAlternativeName([x509.UniformResourceIdentifier(str(name))]), False),
        (x509.BasicConstraints(ca=False, path_length=None), True),
        (x509.ExtendedKeyUsage(_USAGES), False),
        (x509.AuthorityKeyIdentifier.from_issuer_public_key(authority.key.public_key()), False),
    ):
        builder = builder.add_extension(extension, critical=critical)
    made = builder.sign(authority.key, hashes.SHA256())
    return made.public_bytes(serialization.Encoding.PEM) + _pem_of(key)


def _builder(subject: x509.Name, public: ec.EllipticCurvePublicKey, days: int) -> x509.CertificateBuilder:
    now = datetime.datetime.now(datetime.UTC)
    builder = x509.CertificateBuilder().subject_name(subject).public_key(public)
    builder = builder.serial_number(x509.random_serial_number())
    return builder.not_valid_before(now - _BACKDATED).not_valid_after(now + datetime.timedelta(days=days))


def _subject(common: str) -> x509.Name:
    return x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, common[:64])])


def _pem_of(key: ec.EllipticCurvePrivateKey) -> bytes:
    return key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )


def _days_left(certificate: x509.Certificate) -> float:
    return (certificate.not_valid_after_utc - datetime.datetime.now(datetime.UTC)) / datetime.timedelta(days=1)


def _content(path: Path) -> bytes | None:
    try:
        return path.read_bytes()
    except OSError:
        return None
