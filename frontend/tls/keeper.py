"""Keeps the certificate that new connections get: looks at its files, and takes what is new there if it is good.

    files change -> the same at two looks in a row -> loaded and checked -> taken, or refused and told

Two looks: a program that renews writes two files one after the other. What was refused is tried again when the files
change, and each TLS_CERTIFICATE_RETRY_LOOKS looks: what was wrong need not be in them (a clock that was behind). It is
told again only where the reason is another one; the certificate in use stays.
"""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import Callable

import structlog

from frontend.limits import TLS_CERTIFICATE_LOOK_S, TLS_CERTIFICATE_RETRY_LOOKS
from frontend.tls.certificate import CertificateRefused, ServerCertificate, is_readable_by_others, load_certificate

# Inode, size and times of change (of the content; of rights and owner) of both files; None: one of them is not there.
Signature = tuple[tuple[int, int, int, int], ...] | None

_log = structlog.get_logger("frontend.tls")


class CertificateKeeper:
    """`current` is replaced as a whole: a connection has the one that was there when it began."""

    def __init__(self, certificate_file: str, key_file: str, now_s: Callable[[], float] = time.time) -> None:
        """Raises CertificateRefused."""
        self._files = (certificate_file, key_file)
        self._now_s = now_s
        self._loaded = self._seen = self._sign()
        self.current = load_certificate(certificate_file, key_file)
        self.loads = 1
        self.is_refused = False  # whether what the files hold now is not what is in use
        self._refusal = ""  # the reason
        self._looks_to_retry = 0
        self._tell("certificate_loaded", self.current)

    async def run(self) -> None:
        """Until it is cancelled."""
        while True:
            await asyncio.sleep(TLS_CERTIFICATE_LOOK_S)
            try:
                await asyncio.to_thread(self.look)
            except Exception:  # our own bug: what is in use stays, and the next look comes
                _log.exception("certificate_look_failed")

    def look(self) -> None:
        before, self._seen = self._seen, self._sign()
        if self._seen is None or self._seen != before or (self._seen == self._loaded and not self._retries()):
            return
        self._loaded = self._seen
        try:
            found = load_certificate(*self._files)
            self._require_better(found)
        except CertificateRefused as error:
            self._refuse(str(error))
            return
        self.current = found
        self.loads += 1
        self.is_refused = False
        self._refusal = ""
        self._tell("certificate_loaded", found)

    def _retries(self) -> bool:
        """Whether files that were refused, and have not changed, are tried again at this look."""
        if not self.is_refused:
            return False
        self._looks_to_retry -= 1
        return self._looks_to_retry <= 0

    def _refuse(self, reason: str) -> None:
        self.is_refused = True
        self._looks_to_retry = TLS_CERTIFICATE_RETRY_LOOKS
        if reason != self._refusal:
            self._refusal = reason
            until = _day(self.current.not_after_s)
            _log.error("certificate_refused", reason=reason, in_use_until=until, in_use=self.current.serial_number)

    def _require_better(self, found: ServerCertificate) -> None:
        now_s = self._now_s()
        if self.current.is_valid_at(now_s) and not found.is_valid_at(now_s):
            raise CertificateRefused(f"{self._files[0]} {_invalidity(found, now_s)}, and the one in use is valid")

    def _tell(self, event: str, certificate: ServerCertificate) -> None:
        now_s = self._now_s()
        expires = _day(certificate.not_after_s)
        _log.info(event, names=certificate.names, serial_number=certificate.serial_number, expires=expires)
        if not certificate.is_valid_at(now_s):
            _log.error("certificate_not_valid", reason=_invalidity(certificate, now_s))
        if is_readable_by_others(self._files[1]):
            _log.warning("key_readable_by_others", file=self._files[1], advice="chmod 600")

    def _sign(self) -> Signature:
        try:
            stats = [os.stat(path) for path in self._files]
        except OSError:
            return None
        return tuple((one.st_ino, one.st_size, one.st_mtime_ns, one.st_ctime_ns) for one in stats)


def _invalidity(certificate: ServerCertificate, now_s: float) -> str:
    if now_s >= certificate.not_after_s:
        return f"expired at {_day(certificate.not_after_s)}"
    return f"is not valid before {_day(certificate.not_before_s)}"


def _day(unix_s: float) -> str:
    return time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(unix_s))
