"""TLS of the public port as the launcher sees it: the files that `up` was given, checked before anything starts."""

from __future__ import annotations

import ipaddress
import os
import time
from dataclasses import dataclass
from pathlib import Path

from deploy import limits
from deploy.errors import EXIT_USAGE, CommandError
from deploy.state import State
from frontend.tls.certificate import (
    CertificateRefused,
    ServerCertificate,
    is_readable_by_others,
    load_certificate,
)

LOOPBACK_NAME = "localhost"
CERTIFICATE_SETTINGS = ("PENSTOCK_TLS_CERTIFICATE", "PENSTOCK_TLS_CERTIFICATE_FILE")
KEY_SETTINGS = ("PENSTOCK_TLS_KEY", "PENSTOCK_TLS_KEY_FILE")


@dataclass(frozen=True)
class TlsWish:
    """What `up` was asked for; None: as it was."""

    certificate: str | None = None
    key: str | None = None
    is_off: bool = False
    redirect_port: int | None = None


def settle_tls(state: State, wish: TlsWish) -> None:
    """Writes into the state what to run with. Raises CommandError where the files are not good enough to begin with."""
    certificate = wish.certificate or _of_environment(CERTIFICATE_SETTINGS)
    key = wish.key or _of_environment(KEY_SETTINGS)
    if wish.is_off:
        if wish.certificate or wish.key or wish.redirect_port:
            raise CommandError("--no-tls goes with no other setting of TLS", EXIT_USAGE)
        state.tls_certificate = state.tls_key = state.public_name = ""
        state.redirect_port = 0
        return
    if bool(certificate) != bool(key):
        raise CommandError("--tls-certificate and --tls-key are needed both", EXIT_USAGE)
    if certificate and key:
        before = (state.tls_certificate, state.tls_key)
        state.tls_certificate, state.tls_key = (str(Path(path).expanduser().resolve()) for path in (certificate, key))
        # Of those that it ran with before nobody needs to be told, and a restart in the night must serve.
        if (state.tls_certificate, state.tls_key) != before:
            _require_good(state)
    if wish.redirect_port is not None:
        if wish.redirect_port and not state.tls_certificate:
            raise CommandError("--redirect-port sends to https, which needs --tls-certificate", EXIT_USAGE)
        state.redirect_port = wish.redirect_port
    if state.redirect_port == state.port:
        raise CommandError("--redirect-port and --port must be different ports", EXIT_USAGE)
    if state.tls_certificate:
        state.public_name = public_name(load(state), state.host)


def load(state: State) -> ServerCertificate:
    try:
        return load_certificate(state.tls_certificate, state.tls_key)
    except CertificateRefused as error:
        raise CommandError(f"TLS: {error}", EXIT_USAGE) from None


def _require_good(state: State) -> None:
    """At this moment an operator is there, who can mend it."""
    found = load(state)
    now_s = time.time()
    if not found.is_valid_at(now_s):
        when, told = (found.not_after_s, "expired at") if now_s >= found.not_after_s else (found.not_before_s, "begins")
        raise CommandError(f"the certificate in {state.tls_certificate} {told} {_time(when)}", EXIT_USAGE)
    if is_readable_by_others(state.tls_key):
        raise CommandError(f"every user can read {state.tls_key}: chmod 600 {state.tls_key}", EXIT_USAGE)


def public_name(certificate: ServerCertificate, host: str) -> str:
    """The host of the endpoint that is printed: one that clients who verify the certificate can use; "" is that of the
    address."""
    is_loopback = host == LOOPBACK_NAME or (_is_address(host) and ipaddress.ip_address(host).is_loopback)
    address = "127.0.0.1" if host in ("0.0.0.0", "::") else host
    if address in certificate.names:
        return ""
    if is_loopback and LOOPBACK_NAME in certificate.names:
        return LOOPBACK_NAME
    return next((name for name in certificate.names if not name.startswith("*") and not _is_address(name)), "")


def finding(state: State) -> str:
    """For `doctor`. Raises CommandError."""
    if not state.tls_certificate:
        return "off; the public port speaks plain HTTP"
    found = load(state)
    left_days = (found.not_after_s - time.time()) / 86_400
    told = f"{state.tls_certificate}, for {', '.join(found.names) or 'no name'}, until {_time(found.not_after_s)}"
    if left_days < limits.CERTIFICATE_DAYS_LEFT_MIN:
        left = f"{int(left_days)} days are left" if left_days > 0 else "it has expired"
        raise CommandError(f"{told}: {left}; put a new one into its place")
    if is_readable_by_others(state.tls_key):
        raise CommandError(f"every user can read {state.tls_key}: chmod 600 {state.tls_key}")
    return told


def trouble(state: State) -> str | None:
    """For `status`: what `doctor` calls a problem."""
    try:
        finding(state)
    except CommandError as error:
        return f"certificate of the public port: {error}"
    return None


def _of_environment(names: tuple[str, ...]) -> str:
    return next((os.environ[name] for name in names if os.environ.get(name)), "")


def _is_address(name: str) -> bool:
    try:
        ipaddress.ip_address(name)
    except ValueError:
        return False
    return True


def _time(unix_s: float) -> str:
    return time.strftime("%Y-%m-%d %H:%M:%S UTC", time.gmtime(unix_s))
