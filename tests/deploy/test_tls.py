"""TLS as `up` takes it: files that are checked while an operator is there, an endpoint that clients can verify."""

from __future__ import annotations

import argparse
import subprocess
from pathlib import Path
from typing import Any

import pytest

from api.cluster import system_alarms
from deploy import limits, roles, tls
from deploy.commands import doctor, status, up
from deploy.errors import EXIT_FAILED, CommandError
from deploy.installation import Installation
from deploy.ports import choose_port
from deploy.state import State, endpoint, internal_endpoint
from deploy.tls import TlsWish
from tests.support.certificates import DAY, CertificateAuthority


@pytest.fixture
def authority(tmp_path: Path) -> CertificateAuthority:
    return CertificateAuthority(tmp_path / "tls")


@pytest.fixture
def installation(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Installation:
    for name in ("PENSTOCK_FRONTEND_URL", *tls.CERTIFICATE_SETTINGS, *tls.KEY_SETTINGS):
        monkeypatch.delenv(name, raising=False)
    made = Installation(tmp_path / "data")
    made.prepare()
    return made


def settle(installation: Installation, host: str | None = None, **wish: Any) -> State:
    port = None if installation.exists() else choose_port(set())
    return installation.settle_state(host, port, None, 1, TlsWish(**{k: _text(v) for k, v in wish.items()}))


def _text(value: Any) -> Any:
    return str(value) if isinstance(value, Path) else value


def test_certificate_is_remembered_until_it_is_turned_off(
    installation: Installation, authority: CertificateAuthority
) -> None:
    certificate, key = authority.issue()
    state = settle(installation, certificate=certificate, key=key)
    assert endpoint(state) == f"https://127.0.0.1:{state.port}"
    again = settle(installation)
    assert (again.tls_certificate, again.tls_key) == (str(certificate), str(key))
    (spec,) = roles.frontend_specs(again)
    internal = spec.environment["PENSTOCK_INTERNAL_LISTEN"]
    assert spec.environment["PENSTOCK_TLS_KEY"] == str(key) and internal.startswith("127.0.0.1:")
    assert installation.settings(again)["PENSTOCK_FRONTEND_URL"] == internal_endpoint(again) == f"http://{internal}"
    off = settle(installation, is_off=True)
    assert endpoint(off) == internal_endpoint(off) == f"http://127.0.0.1:{off.port}"
    (spec,) = roles.frontend_specs(off)
    assert not [name for name in spec.environment if "TLS" in name or "INTERNAL" in name]


def test_environment_names_the_files_and_other_processes_do_not_hear_of_them(
    installation: Installation, authority: CertificateAuthority, monkeypatch: pytest.MonkeyPatch
) -> None:
    certificate, key = authority.issue()
    monkeypatch.setenv("PENSTOCK_TLS_CERTIFICATE_FILE", str(certificate))
    monkeypatch.setenv("PENSTOCK_TLS_KEY", str(key))
    state = settle(installation)
    assert state.tls_key == str(key)
    assert str(key) not in installation.environment(state, "worker").values()


@pytest.mark.parametrize(
    ("hosts", "listens", "expected"),
    [
        (("127.0.0.1", "localhost"), "127.0.0.1", "127.0.0.1"),
        (("localhost",), "127.0.0.1", "localhost"),
        (("queue.example.com",), "127.0.0.1", "queue.example.com"),
        (("*.example.com", "queue.example.com", "10.0.0.1"), "0.0.0.0", "queue.example.com"),
        (("*.example.com",), "0.0.0.0", "127.0.0.1"),
    ],
)
def test_endpoint_is_a_name_of_the_certificate(
    installation: Installation, authority: CertificateAuthority, hosts: tuple[str, ...], listens: str, expected: str
) -> None:
    certificate, key = authority.issue(hosts=hosts)
    state = settle(installation, listens, certificate=certificate, key=key)
    assert endpoint(state) == f"https://{expected}:{state.port}"


def test_files_that_are_not_good_enough_to_begin_with_are_refused(
    installation: Installation, authority: CertificateAuthority
) -> None:
    certificate, key = authority.issue()
    other = authority.issue("other")[1]
    expired = authority.issue("expired", begins_in=-3 * DAY, ends_in=-DAY)
    later = authority.issue("later", begins_in=DAY)
    open_to_all = authority.issue("open")
    open_to_all[1].chmod(0o644)
    for wish, told in (
        ({"certificate": certificate}, "needed both"),
        ({"key": key}, "needed both"),
        ({"certificate": certificate, "key": other}, "is not that of the certificate"),
        ({"certificate": key, "key": key}, "holds no certificate"),
        ({"certificate": expired[0], "key": expired[1]}, "expired at"),
        ({"certificate": later[0], "key": later[1]}, "begins"),
        ({"certificate": open_to_all[0], "key": open_to_all[1]}, "chmod 600"),
        ({"redirect_port": 8_080}, "needs --tls-certificate"),
        ({"is_off": True, "key": key}, "--no-tls goes with no other"),
    ):
        with pytest.raises(CommandError, match=told):
            settle(installation, **wish)
        assert not installation.exists(), wish


def test_certificate_that_has_expired_meanwhile_keeps_no_installation_from_starting(
    installation: Installation, authority: CertificateAuthority
) -> None:
    certificate, key = authority.issue()
    settle(installation, certificate=certificate, key=key)
    authority.issue(begins_in=-3 * DAY, ends_in=-DAY)
    assert settle(installation).tls_certificate == str(certificate)


def test_expired_certificate_of_the_environment_keeps_no_installation_from_starting_again(
    installation: Installation, authority: CertificateAuthority, monkeypatch: pytest.MonkeyPatch
) -> None:
    certificate, key = authority.issue()
    monkeypatch.setenv("PENSTOCK_TLS_CERTIFICATE", str(certificate))
    monkeypatch.setenv("PENSTOCK_TLS_KEY", str(key))
    settle(installation)
    expired = authority.issue("expired", begins_in=-3 * DAY, ends_in=-DAY)
    monkeypatch.setenv("PENSTOCK_TLS_CERTIFICATE", str(expired[0]))
    monkeypatch.setenv("PENSTOCK_TLS_KEY", str(expired[1]))
    with pytest.raises(CommandError, match="expired at"):
        settle(installation)
    authority.issue(begins_in=-3 * DAY, ends_in=-DAY)
    monkeypatch.setenv("PENSTOCK_TLS_CERTIFICATE", str(certificate))
    monkeypatch.setenv("PENSTOCK_TLS_KEY", str(key))
    assert settle(installation).tls_certificate == str(certificate)


@pytest.mark.parametrize("is_off", [True, False])
def test_detached_supervisor_hears_that_tls_is_off(
    installation: Installation, authority: CertificateAuthority, monkeypatch: pytest.MonkeyPatch, is_off: bool
) -> None:
    """It reads the environment, too, which may name a certificate."""
    settle(installation)
    commands: list[list[str]] = []

    class Started(subprocess.Popen[bytes]):
        def __init__(self, command: list[str], **options: Any) -> None:
            commands.append(command)
            super().__init__(["true"], **options)

    monkeypatch.setattr("deploy.commands.up.subprocess.Popen", Started)
    assert up.detach(installation, is_off) == EXIT_FAILED
    assert ("--no-tls" in commands[0]) is is_off


def test_redirect_port_that_is_the_port_is_refused(installation: Installation, authority: CertificateAuthority) -> None:
    certificate, key = authority.issue()
    state = settle(installation, certificate=certificate, key=key)
    with pytest.raises(CommandError, match="different ports"):
        settle(installation, redirect_port=state.port)


def test_redirect_port_is_remembered_and_can_be_given_up(
    installation: Installation, authority: CertificateAuthority
) -> None:
    certificate, key = authority.issue()
    port = choose_port(set())
    settle(installation, certificate=certificate, key=key, redirect_port=port)
    (spec,) = roles.frontend_specs(settle(installation))
    assert spec.environment["PENSTOCK_REDIRECT_LISTEN"] == f"127.0.0.1:{port}"
    (spec,) = roles.frontend_specs(settle(installation, redirect_port=0))
    assert "PENSTOCK_REDIRECT_LISTEN" not in spec.environment


def test_doctor_tells_how_long_the_certificate_is_good(
    installation: Installation, authority: CertificateAuthority, capsys: pytest.CaptureFixture[str]
) -> None:
    certificate, key = authority.issue()
    state = settle(installation, certificate=certificate, key=key)
    assert "for localhost, 127.0.0.1, until" in tls.finding(state)
    authority.issue(ends_in=5 * DAY)
    with pytest.raises(CommandError, match="4 days are left"):
        tls.finding(state)
    assert doctor.run(argparse.Namespace(data_dir=str(installation.data), json=False)) == 1
    assert "days are left" in capsys.readouterr().out


def test_page_of_the_cluster_judges_the_certificate_as_doctor_does() -> None:
    """The launcher and the control plane share no module for it."""
    assert system_alarms.CERTIFICATE_DAYS_LEFT_MIN == limits.CERTIFICATE_DAYS_LEFT_MIN


def test_certificate_that_ends_soon_is_told_by_status_too(
    installation: Installation, authority: CertificateAuthority, capsys: pytest.CaptureFixture[str]
) -> None:
    certificate, key = authority.issue(ends_in=4.5 * DAY)
    state = settle(installation, certificate=certificate, key=key)
    nothing: dict[str, Any] = {name: [] for name in ("processes", "partitions", "nodes", "quarantined")}
    shown = {"endpoint": "e", "console": "c", "usage_round": None, **nothing, "certificate_trouble": tls.trouble(state)}
    status.print_status(shown, lambda rows: {})
    said = capsys.readouterr().out
    assert f"certificate of the public port: {certificate}" in said and "4 days are left; put a new one" in said
    assert tls.trouble(settle(installation, is_off=True)) is None
