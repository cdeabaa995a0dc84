"""The own certificate: what is refused of its files, and how another one takes its place."""

from __future__ import annotations

import os
import shutil
import time
from pathlib import Path

import pytest

from storage_nodes.limits import CREDENTIALS_LOOK_S
from storage_nodes.trust import credentials as credentials_module
from storage_nodes.trust.credentials import (
    CredentialFiles,
    Credentials,
    CredentialsRefused,
    InnerTlsMode,
    LoadedCredentials,
    credentials_of,
)
from storage_nodes.trust.names import InnerName, InnerRole
from tests.support.inner_certificates import CLUSTER, InnerAuthority


class Clock:
    def __init__(self) -> None:
        self.now_s = 100.0

    def look_later(self, credentials: Credentials) -> None:
        self.now_s += CREDENTIALS_LOOK_S
        credentials.look()


@pytest.fixture
def authority(tmp_path: Path) -> InnerAuthority:
    return InnerAuthority(tmp_path / "ours")


def refused(files: CredentialFiles, cluster_id: str = CLUSTER) -> str:
    with pytest.raises(CredentialsRefused) as caught:
        Credentials(cluster_id, files)
    return str(caught.value)


def test_own_name_is_that_of_the_certificate(authority: InnerAuthority) -> None:
    credentials = authority.credentials(InnerRole.NODE, "3")
    assert credentials.name == InnerName(CLUSTER, InnerRole.NODE, "3")
    assert credentials.current.not_after_s > time.time() + 80 * 86_400


def test_certificate_of_another_cluster_is_refused(authority: InnerAuthority) -> None:
    assert "pk-other" in refused(authority.files(InnerRole.NODE, cluster_id="pk-other"))


def test_certificate_of_another_authority_is_refused(authority: InnerAuthority, tmp_path: Path) -> None:
    other = InnerAuthority(tmp_path / "theirs").files(InnerRole.NODE)
    mixed = authority.files(InnerRole.NODE)._replace(authority=other.authority)
    assert "is not believed" in refused(mixed)


def test_key_of_another_certificate_is_refused(authority: InnerAuthority) -> None:
    files = authority.files(InnerRole.NODE)._replace(key=authority.files(InnerRole.NODE, "2").key)
    assert "do not belong together" in refused(files)


def test_expired_certificate_is_refused(authority: InnerAuthority) -> None:
    assert "expired" in refused(authority.files(InnerRole.NODE, days=0))


@pytest.mark.parametrize("field", CredentialFiles._fields)
def test_file_that_is_missing_or_holds_something_else_is_named(
    authority: InnerAuthority, tmp_path: Path, field: str
) -> None:
    files = authority.files(InnerRole.NODE)
    absent = tmp_path / "absent.pem"
    assert str(absent) in refused(files._replace(**{field: str(absent)}))
    absent.write_text("nothing\n")
    assert str(absent) in refused(files._replace(**{field: str(absent)}))


def test_other_certificate_takes_the_place_of_the_one_before_without_a_restart(authority: InnerAuthority) -> None:
    clock = Clock()
    files = authority.files(InnerRole.NODE)
    credentials = Credentials(CLUSTER, files, steady_s=lambda: clock.now_s)
    before = credentials.current
    clock.look_later(credentials)
    assert credentials.current is before, "the same files are not read again"
    os.remove(files.certificate)
    authority.files(InnerRole.NODE)
    assert credentials.client_context() is before.client, "files are looked at now and then"
    clock.now_s += CREDENTIALS_LOOK_S
    assert credentials.client_context() is not before.client
    assert credentials.current.not_after_s >= before.not_after_s


def test_certificate_in_use_stays_while_the_files_are_no_good_and_is_replaced_when_they_are(
    authority: InnerAuthority, tmp_path: Path
) -> None:
    clock = Clock()
    good = authority.files(InnerRole.NODE)
    files = CredentialFiles(*(str(tmp_path / field) for field in CredentialFiles._fields))
    for source, place in zip(good, files, strict=True):
        shutil.copy(source, place)
    credentials = Credentials(CLUSTER, files, steady_s=lambda: clock.now_s)
    before = credentials.current
    os.remove(good.certificate)
    other = authority.files(InnerRole.NODE)
    Path(files.certificate).write_bytes(Path(other.certificate).read_bytes())
    clock.look_later(credentials)
    assert credentials.current is before and credentials.is_refused, "its key has not come yet"
    Path(files.key).write_bytes(Path(other.key).read_bytes())
    clock.look_later(credentials)
    assert credentials.current is not before and not credentials.is_refused


@pytest.mark.parametrize(("role", "number"), [(InnerRole.NODE, "2"), (InnerRole.FRONT_END, "1")])
def test_certificate_of_another_process_is_not_taken_while_it_runs(
    authority: InnerAuthority, tmp_path: Path, role: InnerRole, number: str
) -> None:
    """Its peers would hang up on it, one connection after the other."""
    clock = Clock()
    own = authority.files(InnerRole.NODE)
    files = CredentialFiles(*(str(tmp_path / field) for field in CredentialFiles._fields))

    def put(source: CredentialFiles) -> None:
        for one, place in zip(source, files, strict=True):
            shutil.copy(one, place)

    put(own)
    credentials = Credentials(CLUSTER, files, steady_s=lambda: clock.now_s)
    before = credentials.current
    put(authority.files(role, number))
    clock.look_later(credentials)
    assert credentials.current is before and credentials.is_refused
    put(own)
    clock.look_later(credentials)
    assert credentials.name == before.name and not credentials.is_refused


def test_front_end_may_get_another_number(authority: InnerAuthority, tmp_path: Path) -> None:
    clock = Clock()
    files = CredentialFiles(*(str(tmp_path / field) for field in CredentialFiles._fields))
    for source, place in zip(authority.files(InnerRole.FRONT_END), files, strict=True):
        shutil.copy(source, place)
    credentials = Credentials(CLUSTER, files, steady_s=lambda: clock.now_s)
    for source, place in zip(authority.files(InnerRole.FRONT_END, "2"), files, strict=True):
        shutil.copy(source, place)
    clock.look_later(credentials)
    assert credentials.name.number == "2" and not credentials.is_refused


def test_files_without_pem_are_said_to_hold_none_and_named_once(authority: InnerAuthority, tmp_path: Path) -> None:
    both = tmp_path / "own.pem"
    for content in ("", "nothing\n"):
        both.write_text(content)
        told = refused(authority.files(InnerRole.NODE)._replace(certificate=str(both), key=str(both)))
        assert told.count(str(both)) == 1 and "in PEM" in told, told


def test_files_that_were_refused_are_tried_again_though_they_did_not_change(
    authority: InnerAuthority, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What was wrong need not be in them: a clock that was behind."""
    clock = Clock()
    files = authority.files(InnerRole.NODE)
    credentials = Credentials(CLUSTER, files, steady_s=lambda: clock.now_s)
    before = credentials.current
    Path(files.certificate).write_bytes(Path(files.certificate).read_bytes() + b"\n")

    def refuse(*_: object) -> LoadedCredentials:
        raise CredentialsRefused("not yet valid")

    with monkeypatch.context() as patched:
        patched.setattr(credentials_module, "load", refuse)
        clock.look_later(credentials)
    assert credentials.current is before
    clock.look_later(credentials)
    assert credentials.current is not before


# --- settings -------------------------------------------------------------------------------------------------


def test_settings_name_three_files_under_either_name(authority: InnerAuthority) -> None:
    files = authority.files(InnerRole.WORKER)
    settings = {"PENSTOCK_INNER_CA": files.authority, "PENSTOCK_INNER_CERTIFICATE_FILE": files.certificate}
    settings["PENSTOCK_INNER_KEY"] = files.key
    made = credentials_of(CLUSTER, settings)
    assert made is not None and not made.encrypts and made.name.role is InnerRole.WORKER
    told = credentials_of(CLUSTER, {**settings, "PENSTOCK_INNER_TLS": "encrypt"})
    assert told is not None and told.mode is InnerTlsMode.ENCRYPT


def test_process_without_certificates_has_to_say_so() -> None:
    with pytest.raises(CredentialsRefused, match="PENSTOCK_INNER_CA, PENSTOCK_INNER_CERTIFICATE, PENSTOCK_INNER_KEY"):
        credentials_of(CLUSTER, {})
    with pytest.raises(CredentialsRefused, match="PENSTOCK_INNER_TLS"):
        credentials_of(CLUSTER, {"PENSTOCK_INNER_TLS": "no"})
    assert credentials_of(CLUSTER, {"PENSTOCK_INNER_TLS": "off"}) is None
