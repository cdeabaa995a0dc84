"""The own certificate with its key, and the authority whose certificates are believed: read from three PEM files, and
read again when these change, so that a renewed certificate needs no restart.

    settings -> files -> contexts, which greet each other once in memory -> new connections

That greeting is the check: it shows what another process would find (a key of another certificate, one that has
expired, an authority that did not sign it), and what the certificate says. Files that do not pass it are told and not
taken; what is in use stays. The files are looked at when a connection is opened or taken: no process needs a task for
it.
"""

from __future__ import annotations

import enum
import os
import ssl
import time
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import structlog
from prometheus_client import Gauge

from storage_nodes.limits import CREDENTIALS_ENDING_S, CREDENTIALS_LOOK_S
from storage_nodes.trust.names import InnerName, InnerRole, NameRefused, name_of

MODE_SETTING = "PENSTOCK_INNER_TLS"
AUTHORITY_SETTING, CERTIFICATE_SETTING, KEY_SETTING = (
    "PENSTOCK_INNER_CA", "PENSTOCK_INNER_CERTIFICATE", "PENSTOCK_INNER_KEY",
)  # fmt: skip
FILE_SETTINGS = (AUTHORITY_SETTING, CERTIFICATE_SETTING, KEY_SETTING)
SETTINGS = (MODE_SETTING, *FILE_SETTINGS)

EXPIRES = Gauge("penstock_inner_certificate_expires_seconds", "Unix time; 0 = there is no certificate")
REFUSED = Gauge("penstock_inner_certificate_refused", "1: the files hold another one, which cannot be used")

_log = structlog.get_logger()


class InnerTlsMode(enum.StrEnum):
    """Of frames to and between storage nodes. Calls to the metadata service and the control plane are encrypted in both
    of the first."""

    AUTHENTICATE = "authenticate"  # a handshake as for `encrypt`, and plain frames behind it
    ENCRYPT = "encrypt"
    OFF = "off"


DEFAULT_MODE = InnerTlsMode.AUTHENTICATE


class CredentialsRefused(Exception):
    """A setting is missing, or its files cannot be used. The text says which and why, and nothing of the key."""


class CredentialFiles(NamedTuple):
    authority: str
    certificate: str
    key: str


class LoadedCredentials(NamedTuple):
    """Replaced as a whole: a connection has what was there when it began."""

    name: InnerName
    server: ssl.SSLContext
    client: ssl.SSLContext
    not_after_s: float


# Inode, size and times of change (of the content; of rights and owner) of each file; None: one of them is not there.
Signature = tuple[tuple[int, int, int, int], ...] | None


class Credentials:
    """Of one process."""

    def __init__(
        self,
        cluster_id: str,
        files: CredentialFiles,
        mode: InnerTlsMode = DEFAULT_MODE,
        steady_s: Callable[[], float] = time.monotonic,
    ) -> None:
        """Raises CredentialsRefused."""
        self.cluster_id = cluster_id
        self.mode = mode
        self._files = files
        self._steady_s = steady_s
        self._looked_s = steady_s()
        self._seen = _sign(files)
        self._refusal = ""
        self._warned_s = 0.0
        self.current = load(cluster_id, files, mode)
        EXPIRES.set_function(lambda: self.current.not_after_s)
        REFUSED.set_function(lambda: float(bool(self._refusal)))

    @property
    def name(self) -> InnerName:
        return self.current.name

    @property
    def encrypts(self) -> bool:
        return self.mode is InnerTlsMode.ENCRYPT

    def server_context(self) -> ssl.SSLContext:
        self.look()
        return self.current.server

    def client_context(self) -> ssl.SSLContext:
        self.look()
        return self.current.client

    def look(self) -> None:
        """Now and then: did the files change? What was refused is tried again: it may have been half written."""
        now_s = self._steady_s()
        if now_s - self._looked_s < CREDENTIALS_LOOK_S:
            return
        self._looked_s = now_s
        self._warn_of_end()
        before, self._seen = self._seen, _sign(self._files)
        if self._seen == before and not self._refusal:
            return
        try:
            self.current = self._of_same_process(load(self.cluster_id, self._files, self.mode))
        except CredentialsRefused as error:
            if str(error) != self._refusal:
                self._refusal = str(error)
                _log.error("inner certificate refused, the one before it stays", reason=self._refusal)
            return
        self._refusal = ""
        self.tell()

    @property
    def is_refused(self) -> bool:
        """The files hold another certificate, which cannot be used."""
        return bool(self._refusal)

    def _of_same_process(self, loaded: LoadedCredentials) -> LoadedCredentials:
        """Raises CredentialsRefused for that of another role, or of another node: peers would hang up on it."""
        name, own = loaded.name, self.name
        if name.role is not own.role or (own.role is InnerRole.NODE and name.number != own.number):
            raise CredentialsRefused(f"{self._files.certificate} is of {name}, this process is {own}")
        return loaded

    def tell(self) -> None:
        """What is in use. By itself it does so when that changes."""
        _log.info(
            "inner certificate loaded",
            name=str(self.name),
            mode=str(self.mode),
            expires=_time(self.current.not_after_s),
        )

    def _warn_of_end(self) -> None:
        now_s = time.time()
        if self.current.not_after_s - now_s < CREDENTIALS_ENDING_S and now_s - self._warned_s >= 3_600:
            self._warned_s = now_s
            _log.error("the inner certificate ends, and no other was found", expires=_time(self.current.not_after_s))


def credentials_of(cluster_id: str, environment: Mapping[str, str]) -> Credentials | None:
    """As the settings say; None where they say `off`, which only they can. Raises CredentialsRefused."""
    told = environment.get(MODE_SETTING) or DEFAULT_MODE
    try:
        mode = InnerTlsMode(told)
    except ValueError:
        raise CredentialsRefused(f"{MODE_SETTING} is {told!r}, not one of {', '.join(InnerTlsMode)}") from None
    if mode is InnerTlsMode.OFF:
        return None
    paths = [environment.get(name) or environment.get(f"{name}_FILE") or "" for name in FILE_SETTINGS]
    missing = [name for name, path in zip(FILE_SETTINGS, paths, strict=True) if not path]
    if missing:
        raise CredentialsRefused(
            f"{', '.join(missing)} missing: processes show each other certificates (docs/inner_trust.md); "
            f"{MODE_SETTING}=off does without, where nobody else can reach their ports"
        )
    return Credentials(cluster_id, CredentialFiles(*paths), mode)


_of_process: dict[str, Credentials | None] = {}


def own_credentials(cluster_id: str) -> Credentials | None:
    """Of this process, as its environment says; read once. Raises CredentialsRefused."""
    if cluster_id not in _of_process:
        _of_process[cluster_id] = credentials_of(cluster_id, os.environ)
    return _of_process[cluster_id]


def load(cluster_id: str, files: CredentialFiles, mode: InnerTlsMode) -> LoadedCredentials:
    """Raises CredentialsRefused."""
    for path in files:
        try:
            with open(path, "rb") as file:
                file.read(1)
        except OSError as error:
            raise CredentialsRefused(f"{path} cannot be read: {error.strerror}") from None
    server = _context(ssl.PROTOCOL_TLS_SERVER, files, mode)
    client = _context(ssl.PROTOCOL_TLS_CLIENT, files, mode)
    # TLS 1.3: tickets would be read by clients that read nothing otherwise, and nobody resumes.
    server.num_tickets = 0
    shown = _greet_itself(server, client, files)
    try:
        name = name_of(shown)
    except NameRefused as error:
        raise CredentialsRefused(f"{files.certificate}: {error}") from None
    if name.cluster_id != cluster_id:
        raise CredentialsRefused(f"{files.certificate} is for cluster {name.cluster_id!r}, this is {cluster_id!r}")
    return LoadedCredentials(name, server, client, float(ssl.cert_time_to_seconds(shown["notAfter"])))


def _context(protocol: int, files: CredentialFiles, mode: InnerTlsMode) -> ssl.SSLContext:
    context = ssl.SSLContext(protocol)
    context.minimum_version = ssl.TLSVersion.TLSv1_3
    # Names of hosts say nothing here: who is who is in the certificate (names.py).
    context.check_hostname = False
    context.verify_mode = ssl.CERT_REQUIRED
    context.set_alpn_protocols([mode])
    try:
        context.load_verify_locations(files.authority)
    except (ssl.SSLError, ValueError, OSError) as error:
        raise CredentialsRefused(f"{files.authority} holds no certificate in PEM: {error}") from None
    try:
        # A key under a password would have OpenSSL ask at the terminal.
        context.load_cert_chain(files.certificate, files.key, password=lambda: "")
    except ssl.SSLError as error:
        paths = " and ".join(dict.fromkeys((files.certificate, files.key)))
        if not error.reason:
            raise CredentialsRefused(f"{paths}: no certificate with its key in PEM is there") from None
        told = error.reason.lower().replace("_", " ")
        raise CredentialsRefused(f"{paths} do not belong together: {told}") from None
    except (OSError, ValueError) as error:
        raise CredentialsRefused(f"{files.certificate} and {files.key} cannot be loaded: {error}") from None
    return context


def _greet_itself(server: ssl.SSLContext, client: ssl.SSLContext, files: CredentialFiles) -> Mapping[str, Any]:
    """What another process would find, as `getpeercert` tells it. Raises CredentialsRefused."""
    to_server, to_client = ssl.MemoryBIO(), ssl.MemoryBIO()
    one = client.wrap_bio(to_client, to_server)
    other = server.wrap_bio(to_server, to_client, server_side=True)
    try:
        for side in (one, other, one, other):
            try:
                side.do_handshake()
            except ssl.SSLWantReadError:
                continue
    except ssl.SSLCertVerificationError as error:
        raise CredentialsRefused(f"{files.certificate} is not believed: {error.verify_message}") from None
    except ssl.SSLError as error:
        raise CredentialsRefused(f"{files.certificate} cannot be used: {error.reason}") from None
    shown = other.getpeercert()
    assert shown
    return shown


def _sign(files: CredentialFiles) -> Signature:
    try:
        stats = [os.stat(path) for path in files]
    except OSError:
        return None
    return tuple((one.st_ino, one.st_size, one.st_mtime_ns, one.st_ctime_ns) for one in stats)


def _time(unix_s: float) -> str:
    return time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(unix_s))
