"""Certificates that the launcher makes for processes: who can read what, when they are renewed, who gets which."""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml
from cryptography import x509

from deploy import certificates, limits, make_certificates, roles
from deploy.commands import doctor
from deploy.errors import CommandError
from deploy.installation import ROOT, SETTINGS_OF_ROLE, Installation
from deploy.ports import choose_port
from deploy.state import State
from storage_nodes.trust.credentials import Credentials, credentials_of
from storage_nodes.trust.names import InnerName, InnerRole

NAME = InnerName("pk-1", InnerRole.NODE, "1")


@pytest.fixture
def installation(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Installation]:
    for name in list(os.environ):
        if name.startswith("PENSTOCK_"):
            monkeypatch.delenv(name)
    made = Installation(tmp_path / "data")
    made.prepare()
    yield made


def settled(installation: Installation) -> State:
    return installation.settle_state(None, choose_port(set()), 3)


def certificate_in(path: Path) -> x509.Certificate:
    return x509.load_pem_x509_certificate(path.read_bytes())


def test_certificate_is_made_once_and_kept(tmp_path: Path) -> None:
    assert certificates.settle(tmp_path / "ca", tmp_path / "own", [NAME]) == ["node-1"]
    before = {path: path.read_bytes() for path in tmp_path.rglob("*.*") if path.is_file()}
    assert certificates.settle(tmp_path / "ca", tmp_path / "own", [NAME]) == []
    assert {path: path.read_bytes() for path in before} == before


def test_only_the_owner_reads_keys_and_no_process_is_given_that_of_the_authority(installation: Installation) -> None:
    state = settled(installation)
    installation.renew_certificates(state)
    for folder in (installation.admin, installation.certificates, *installation.certificates.iterdir()):
        assert stat.S_IMODE(folder.stat().st_mode) == 0o700, folder
    files = [*installation.admin.iterdir(), *installation.certificates.rglob("*.pem")]
    assert all(stat.S_IMODE(path.stat().st_mode) == 0o600 for path in files)
    for role in SETTINGS_OF_ROLE:
        assert str(installation.admin) not in str(installation.environment(state, role))


@pytest.mark.parametrize(("days", "is_renewed"), [(29, True), (91, False)])
def test_certificate_is_renewed_before_its_end(tmp_path: Path, days: int, is_renewed: bool) -> None:
    """What was made for 29 days is taken for one of 90 that has run for 61: both have as long to go."""
    certificates.settle(tmp_path / "ca", tmp_path / "own", [NAME], days)
    path = tmp_path / "own" / "node-1" / "own.pem"
    first = certificate_in(path)
    patience = certificates._renew_days
    assert patience(first) == pytest.approx(days / 3, abs=0.1) if days < 90 else limits.CERTIFICATE_RENEW_DAYS
    certificates._renew_days = lambda certificate: limits.CERTIFICATE_RENEW_DAYS  # type: ignore[assignment]
    try:
        assert bool(certificates.settle(tmp_path / "ca", tmp_path / "own", [NAME])) is is_renewed
    finally:
        certificates._renew_days = patience
    assert (certificate_in(path).serial_number != first.serial_number) is is_renewed


@pytest.mark.parametrize("harm", ["content", "name", "authority"])
def test_certificate_that_is_no_good_is_made_again(tmp_path: Path, harm: str) -> None:
    own, authority = tmp_path / "own", tmp_path / "ca"
    certificates.settle(authority, own, [NAME])
    path = own / "node-1" / "own.pem"
    if harm == "content":
        path.write_bytes(path.read_bytes()[:500])
    elif harm == "name":
        certificates.settle(authority, own, [NAME._replace(number="2")])
        path.write_bytes((own / "node-2" / "own.pem").read_bytes())
    else:
        (authority / certificates.AUTHORITY_FILE).unlink()
    assert certificates.settle(authority, own, [NAME]) == ["node-1"]
    assert Credentials("pk-1", certificates.files_of(own, NAME)).name == NAME


def test_each_role_shows_its_own_name(installation: Installation) -> None:
    state = settled(installation)
    names = {
        "metadata": "metadata/1",
        "frontend": "front-end/1",
        "control-plane": "control-plane/1",
        "worker": "worker/1",
        "usage-worker": "worker/usage",
        "manage": "operator/manage",
    }
    for role, name in names.items():
        made = credentials_of(state.cluster_id, installation.environment(state, role))
        assert made is not None and str(made.name) == f"penstock://{state.cluster_id}/{name}"
    for spec in roles.storage_node_specs(installation, state):
        made = credentials_of(state.cluster_id, spec.environment)
        assert made is not None and made.name.number == str(spec.number)
    assert str(installation.credentials(state).name).endswith("operator/launcher")  # type: ignore[union-attr]
    assert not any(name.startswith("PENSTOCK_INNER") for name in installation.environment(state, "postgres"))


def test_certificates_of_the_callers_environment_reach_no_process(
    installation: Installation, monkeypatch: pytest.MonkeyPatch
) -> None:
    state = settled(installation)
    for name in ("PENSTOCK_INNER_KEY", "PENSTOCK_INNER_KEY_FILE", "PENSTOCK_INNER_CA"):
        monkeypatch.setenv(name, "/elsewhere")
    for role in SETTINGS_OF_ROLE:
        assert "/elsewhere" not in installation.environment(state, role).values()


def test_doctor_tells_which_certificate_ends_first(installation: Installation) -> None:
    assert "made by up" in doctor.inner_certificates(installation)
    state = settled(installation)
    installation.renew_certificates(state)
    assert "10 certificates" in doctor.inner_certificates(installation)
    name = InnerName(state.cluster_id, InnerRole.WORKER, "1")
    (installation.certificates / "worker-1" / "own.pem").unlink()
    certificates.settle(installation.admin, installation.certificates, [name], 3)
    with pytest.raises(CommandError, match="worker-1 ends in 3 days"):
        doctor.inner_certificates(installation)
    state.inner_tls = "off"
    installation.save_state(state)
    assert doctor.inner_certificates(installation).startswith("off")


def test_doctor_names_certificates_that_are_no_good_and_not_as_ending(installation: Installation) -> None:
    state = settled(installation)
    installation.renew_certificates(state)
    folder = installation.certificates
    (folder / "node-1" / "own.pem").write_text("garbage")
    (folder / "node-2" / "own.pem").write_bytes((folder / "node-3" / "own.pem").read_bytes())
    with pytest.raises(CommandError) as told:
        doctor.inner_certificates(installation)
    first, second, advice = str(told.value).splitlines()
    assert first == f"{folder}/node-1/own.pem holds no certificate that can be read"
    assert second.endswith(
        f"certificate of penstock://{state.cluster_id}/node/3, not of penstock://{state.cluster_id}/node/2"
    )
    assert "./penstock node start" in advice
    assert installation.renew_certificates(state) == ["node-1", "node-2"]
    assert "10 certificates" in doctor.inner_certificates(installation)


def test_containers_get_a_certificate_each_and_no_more(tmp_path: Path) -> None:
    """As the service of docker-compose.yml makes them."""
    services = yaml.safe_load((ROOT / "docker-compose.yml").read_text())["services"]
    words = services["certificates"]["command"].split()
    assert words[:3] == ["python", "-m", "deploy.make_certificates"]
    assert words[3:7] == ["--stay", "/authority", "/certificates", "pk-compose"]
    made = dict(volume.split(":") for volume in services["certificates"]["volumes"])
    assert make_certificates.main([str(tmp_path / "ca"), str(tmp_path / "own"), *words[6:]]) == 0
    folders = {f"/certificates/{path.parent.name}" for path in (tmp_path / "own").glob("*/own.pem")}
    assert {place for volume, place in made.items() if volume != "authority"} == folders
    shown = {}
    for service, definition in services.items():
        for volume in definition.get("volumes", []):
            name, _, place = volume.partition(":")
            if service != "certificates" and name in made:
                assert place == "/certificate:ro" and name != "authority"
                shown[service] = made[name]
    assert len(set(shown.values())) == len(shown) == len(folders), "each of another one"
    assert shown["node-2"] == "/certificates/node-2" and shown["frontend"] == "/certificates/front-end-1"


@pytest.mark.parametrize("words", [[], ["a", "b", "c"], ["a", "b", "", "node/1"], ["a", "b", "c", "king/1"]])
def test_certificates_asked_for_wrongly_are_refused(words: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert make_certificates.main(words) == 2
    assert "usage" in capsys.readouterr().err


def test_inner_tls_is_off_where_the_caller_says_so_alone(
    installation: Installation, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert settled(installation).inner_tls == "authenticate"
    monkeypatch.setenv("PENSTOCK_INNER_TLS", "off")
    state = settled(installation)
    assert installation.credentials(state) is None and installation.control_context(state) is None
    for role in ("metadata", "frontend", "worker"):
        environment = installation.environment(state, role)
        assert environment["PENSTOCK_INNER_TLS"] == "off" and "PENSTOCK_INNER_KEY" not in environment
    monkeypatch.setenv("PENSTOCK_INNER_TLS", "perhaps")
    with pytest.raises(CommandError, match="PENSTOCK_INNER_TLS"):
        settled(installation)
