"""Which certificates are taken, which are refused and why, and how new ones are taken while the front end runs."""

from __future__ import annotations

import asyncio
import os
import time
from pathlib import Path
from typing import Any

import pytest
import structlog

from frontend.config import FrontendConfig
from frontend.limits import TLS_CERTIFICATE_RETRY_LOOKS
from frontend.tls import keeper as keeper_module
from frontend.tls.certificate import CertificateRefused, ServerCertificate, load_certificate
from frontend.tls.keeper import CertificateKeeper
from frontend.tls.port import TlsPort
from tests.support.certificates import DAY, CertificateAuthority


@pytest.fixture
def authority(tmp_path: Path) -> CertificateAuthority:
    return CertificateAuthority(tmp_path / "tls")


def files(made: tuple[Path, Path]) -> tuple[str, str]:
    return str(made[0]), str(made[1])


def test_certificate_tells_its_names_and_times(authority: CertificateAuthority) -> None:
    made = load_certificate(*files(authority.issue(hosts=("queue.example.com", "::1", "10.0.0.1"))))
    assert made.names == ("queue.example.com", "::1", "10.0.0.1")
    assert made.is_valid_at(time.time()) and not made.is_valid_at(time.time() + 31 * 86_400)
    assert not made.is_valid_at(time.time() - 2 * 86_400)


@pytest.mark.parametrize("file", ["certificate", "key"])
@pytest.mark.parametrize(
    "content", [b"", b"\x00\xff" * 500, b"-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n", None]
)
def test_file_that_is_no_pem_is_refused_by_its_name(
    authority: CertificateAuthority, file: str, content: bytes | None
) -> None:
    certificate, key = authority.issue()
    harmed = certificate if file == "certificate" else key
    if content is None:
        harmed.unlink()
    else:
        harmed.write_bytes(content)
    with pytest.raises(CertificateRefused, match=str(harmed)):
        load_certificate(str(certificate), str(key))


def test_file_that_is_huge_is_not_read_whole(authority: CertificateAuthority) -> None:
    certificate, key = authority.issue()
    os.truncate(certificate, 10**12)
    with pytest.raises(CertificateRefused, match="is larger than"):
        load_certificate(str(certificate), str(key))


def test_key_of_another_certificate_is_refused(authority: CertificateAuthority) -> None:
    certificate, _ = authority.issue("one")
    _, key = authority.issue("other")
    with pytest.raises(CertificateRefused, match=r"other\.key is not that of the certificate in .*one\.pem"):
        load_certificate(str(certificate), str(key))


def test_key_under_a_password_is_refused_and_nobody_is_asked_for_it(authority: CertificateAuthority) -> None:
    with pytest.raises(CertificateRefused, match=r"server\.key"):
        load_certificate(*files(authority.issue(password=b"secret")))


# --- while it runs ---


def settled(keeper: CertificateKeeper) -> None:
    """Two looks: files that are just being written are left alone."""
    keeper.look()
    keeper.look()


def test_new_files_are_taken_once_they_are_at_rest(authority: CertificateAuthority) -> None:
    keeper = CertificateKeeper(*files(authority.issue()))
    first = keeper.current
    settled(keeper)
    assert keeper.current is first and keeper.loads == 1
    authority.issue()
    keeper.look()
    assert keeper.current is first
    keeper.look()
    assert keeper.current.serial_number != first.serial_number and keeper.loads == 2 and not keeper.is_refused


async def test_new_files_are_taken_by_themselves(
    authority: CertificateAuthority, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(keeper_module, "TLS_CERTIFICATE_LOOK_S", 0.01)
    keeper = CertificateKeeper(*files(authority.issue()))
    running = asyncio.create_task(keeper.run())
    authority.issue()
    async with asyncio.timeout(5):
        while keeper.loads == 1:
            await asyncio.sleep(0.01)
    running.cancel()


@pytest.mark.parametrize("harm", ["garbage", "mismatch", "expired", "later"])
def test_bad_new_file_is_refused_and_told_once_and_the_old_one_stays(
    authority: CertificateAuthority, harm: str
) -> None:
    made = authority.issue()
    keeper = CertificateKeeper(*files(made))
    first = keeper.current
    if harm == "garbage":
        made[0].write_text("no certificate")
    elif harm == "mismatch":
        made[1].write_bytes(authority.issue("other")[1].read_bytes())
    elif harm == "expired":
        authority.issue(begins_in=-3 * DAY, ends_in=-DAY)
    else:
        authority.issue(begins_in=DAY)
    with structlog.testing.capture_logs() as logs:
        for _ in range(5):
            keeper.look()
    (line,) = logs
    assert line["event"] == "certificate_refused" and line["log_level"] == "error"
    assert str(made[0]) in line["reason"] and "PRIVATE" not in str(line)
    assert keeper.current is first and keeper.is_refused
    authority.issue()
    settled(keeper)
    assert keeper.current is not first and not keeper.is_refused


def test_refused_certificate_is_tried_again_though_its_files_rest(authority: CertificateAuthority) -> None:
    """The clock was behind the certificate's first moment."""
    now_s = time.time()
    keeper = CertificateKeeper(*files(authority.issue()), now_s=lambda: now_s)
    first = keeper.current
    authority.issue(begins_in=DAY)
    with structlog.testing.capture_logs() as logs:
        for _ in range(5 * TLS_CERTIFICATE_RETRY_LOOKS):
            keeper.look()
    assert len(logs) == 1 and keeper.is_refused, "told once, however often it is tried"
    now_s += 2 * 86_400
    for _ in range(TLS_CERTIFICATE_RETRY_LOOKS):
        keeper.look()
    assert keeper.current is not first and not keeper.is_refused and keeper.loads == 2


def test_key_that_could_not_be_read_is_taken_once_its_rights_allow_it(
    authority: CertificateAuthority, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A change of rights moves neither the size nor the time of change of a file."""
    keeper = CertificateKeeper(*files(authority.issue()))
    _, key = authority.issue()
    monkeypatch.setattr(keeper_module, "load_certificate", refuse_to_read)
    settled(keeper)
    assert keeper.is_refused
    monkeypatch.undo()
    key.chmod(0o400)
    settled(keeper)
    assert not keeper.is_refused and keeper.loads == 2


def refuse_to_read(certificate_file: str, key_file: str) -> ServerCertificate:
    raise CertificateRefused(f"{key_file} cannot be read: Permission denied")


def test_files_that_are_gone_leave_the_old_one_in_use(authority: CertificateAuthority) -> None:
    made = authority.issue()
    keeper = CertificateKeeper(*files(made))
    for path in made:
        path.unlink()
    settled(keeper)
    assert keeper.loads == 1
    authority.issue()
    settled(keeper)
    assert keeper.loads == 2


def test_expired_certificate_at_the_start_is_served_and_told(authority: CertificateAuthority) -> None:
    """A front end that is started again in the night serves those clients that it served before."""
    with structlog.testing.capture_logs() as logs:
        keeper = CertificateKeeper(*files(authority.issue(begins_in=-3 * DAY, ends_in=-DAY)))
    (line,) = [line for line in logs if line["event"] == "certificate_not_valid"]
    assert line["reason"].startswith("expired at")
    authority.issue(begins_in=-3 * DAY, ends_in=-2 * DAY)
    settled(keeper)
    assert keeper.loads == 2, "of two that are not valid the new one is what its owner wants"


def test_key_that_everyone_can_read_is_told(authority: CertificateAuthority) -> None:
    made = authority.issue()
    made[1].chmod(0o644)
    with structlog.testing.capture_logs() as logs:
        CertificateKeeper(*files(made))
    assert [line["file"] for line in logs if line["event"] == "key_readable_by_others"] == [str(made[1])]


def test_metrics_tell_the_expiry_and_a_refusal(authority: CertificateAuthority) -> None:
    made = authority.issue()
    port = TlsPort(*files(made))

    def figures() -> dict[str, float]:
        return {sample.name: sample.value for metric in port.metrics.collect() for sample in metric.samples}

    assert abs(figures()["penstock_tls_certificate_expires_seconds"] - time.time() - 30 * 86_400) < 60
    assert figures()["penstock_tls_certificate_refused"] == 0
    made[1].write_text("no key")
    settled(port.keeper)
    assert figures()["penstock_tls_certificate_refused"] == 1


@pytest.mark.parametrize(
    ("settings", "told"),
    [
        ({"TLS_CERTIFICATE": "/a"}, "needed both"),
        ({"TLS_KEY_FILE": "/a"}, "needed both"),
        ({"REDIRECT_LISTEN": "127.0.0.1:80"}, "needs PENSTOCK_TLS_CERTIFICATE"),
        ({"INTERNAL_LISTEN": "nonsense"}, "HOST:PORT"),
        ({"METRICS_LISTEN": "127.0.0.1:9324"}, "different addresses"),
    ],
)
def test_settings_that_do_not_belong_together_are_refused(
    monkeypatch: pytest.MonkeyPatch, settings: dict[str, str], told: str
) -> None:
    base = {
        "CLUSTER_ID": "pk-1", "SECRETS_DIR": "/s", "STORAGE_NODES": "1=127.0.0.1:7101@a", "METADATA": "127.0.0.1:7201",
        "CONTROL": "127.0.0.1:7301",
    }  # fmt: skip
    nothing: dict[str, Any] = {}  # all of it is read from the environment
    for name, value in (base | settings).items():
        monkeypatch.setenv(f"PENSTOCK_{name}", value)
    with pytest.raises(ValueError, match=told):
        FrontendConfig(**nothing)
    monkeypatch.setenv("PENSTOCK_TLS_CERTIFICATE_FILE", "/c")
    monkeypatch.setenv("PENSTOCK_TLS_KEY_FILE", "/k")
    monkeypatch.setenv("PENSTOCK_INTERNAL_LISTEN", "127.0.0.1:1")
    monkeypatch.setenv("PENSTOCK_METRICS_LISTEN", "127.0.0.1:0")
    expected = (settings.get("TLS_CERTIFICATE", "/c"), "/k")
    assert FrontendConfig(**nothing).tls_files == expected
