"""A certificate authority of the tests' own, and certificates that it issues, as PEM files."""

from __future__ import annotations

import datetime
import ipaddress
import ssl
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec

DAY = datetime.timedelta(days=1)
HOSTS = ("localhost", "127.0.0.1")


def _name(common: str) -> x509.Name:
    return x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, common)])


def _write_key(key: ec.EllipticCurvePrivateKey, path: Path, password: bytes | None = None) -> None:
    hidden = serialization.BestAvailableEncryption(password) if password else serialization.NoEncryption()
    path.write_bytes(key.private_bytes(serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, hidden))
    path.chmod(0o600)


class CertificateAuthority:
    """`file`: what clients trust."""

    def __init__(self, folder: Path) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self.folder = folder
        self.file = folder / "ca.pem"
        self._key = ec.generate_private_key(ec.SECP256R1())
        self._subject = _name("Tests' authority")
        builder = self._builder(self._subject, self._key.public_key(), -DAY, 30 * DAY)
        constraints = x509.BasicConstraints(ca=True, path_length=0)
        made = builder.add_extension(constraints, critical=True).sign(self._key, hashes.SHA256())
        self.file.write_bytes(made.public_bytes(serialization.Encoding.PEM))

    def issue(
        self,
        name: str = "server",
        hosts: tuple[str, ...] = HOSTS,
        begins_in: datetime.timedelta = -DAY,
        ends_in: datetime.timedelta = 30 * DAY,
        password: bytes | None = None,
    ) -> tuple[Path, Path]:
        """Files of a certificate and its key; those of an earlier one of the same name are written over."""
        certificate, private = self.folder / f"{name}.pem", self.folder / f"{name}.key"
        key = ec.generate_private_key(ec.SECP256R1())
        names: list[x509.GeneralName] = []
        for host in hosts:
            try:
                names.append(x509.IPAddress(ipaddress.ip_address(host)))
            except ValueError:
                names.append(x509.DNSName(host))
        builder = self._builder(_name(name), key.public_key(), begins_in, ends_in)
        made = builder.add_extension(x509.SubjectAlternativeName(names), critical=False)
        signed = made.sign(self._key, hashes.SHA256())
        _write_key(key, private, password)
        certificate.write_bytes(signed.public_bytes(serialization.Encoding.PEM))
        return certificate, private

    def client_context(self) -> ssl.SSLContext:
        return ssl.create_default_context(cafile=str(self.file))

    def _builder(
        self, subject: x509.Name, key: ec.EllipticCurvePublicKey, begins_in: datetime.timedelta,
        ends_in: datetime.timedelta,
    ) -> x509.CertificateBuilder:  # fmt: skip
        now = datetime.datetime.now(datetime.UTC)
        return (
            x509.CertificateBuilder()
            .subject_name(subject)
            .issuer_name(self._subject)
            .public_key(key)
            .serial_number(x509.random_serial_number())
            .not_valid_before(now + begins_in)
            .not_valid_after(now + ends_in)
        )
