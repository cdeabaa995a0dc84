"""The data directory: secrets made once, ports remembered, refusals in a sentence."""

from __future__ import annotations

import json
import os
import socket
import stat
from pathlib import Path

import pytest

from deploy import allocator, limits, roles
from deploy.commands import doctor
from deploy.errors import CommandError
from deploy.installation import MARK, ROOT, SETTINGS_OF_ROLE, Installation
from deploy.make_secrets import SECRET_NAMES, write_private_once
from deploy.management import schema_fingerprint
from deploy.outside_servers import is_outside
from deploy.ports import LOOPBACK, choose_port, is_free
from storage_nodes.ids import make_node_id, node_name
from storage_nodes.model import parse_node_list


@pytest.fixture
def installation(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Installation:
    for name in ("DATABASE_URL", "CELERY_BROKER_URL", "PENSTOCK_REGION", "PENSTOCK_DATA_DIR"):
        monkeypatch.delenv(name, raising=False)
    made = Installation(tmp_path / "data")
    made.prepare()
    return made


def free_port() -> int:
    return choose_port(set())


def test_secrets_second_prepare_keeps_them(installation: Installation) -> None:
    before = {name: installation.secret(name) for name in SECRET_NAMES}
    installation.prepare()
    assert {name: installation.secret(name) for name in SECRET_NAMES} == before
    assert len(set(before.values())) == len(SECRET_NAMES)
    assert all(len(bytes.fromhex(value)) == 32 for value in before.values())


def test_secrets_are_readable_by_their_owner_only(installation: Installation) -> None:
    assert stat.S_IMODE(installation.secrets.stat().st_mode) == 0o700
    for file in installation.secrets.iterdir():
        assert stat.S_IMODE(file.stat().st_mode) == 0o600, file.name


def test_private_file_interrupted_write_is_not_taken_for_the_file(tmp_path: Path) -> None:
    (tmp_path / "key.new").write_text("half")
    write_private_once(tmp_path / "key", "whole")
    assert (tmp_path / "key").read_text() == "whole"


def test_state_second_settle_keeps_ports_and_cluster(installation: Installation) -> None:
    port = free_port()
    first = installation.settle_state(None, port, 3)
    second = Installation(installation.data).settle_state(None, None, None)
    assert second == first and second.port == port
    assert len(set(first.ports.values())) == len(first.ports), "every process has a port of its own"


def test_state_internal_port_taken_meanwhile_is_replaced(installation: Installation) -> None:
    first = installation.settle_state(None, free_port(), 3)
    with socket.socket() as thief:
        thief.bind((LOOPBACK, first.ports["metadata"]))
        thief.listen()
        second = installation.settle_state(None, None, None)
    assert second.ports["metadata"] != first.ports["metadata"]
    assert second.ports["node-1"] == first.ports["node-1"]


def test_state_public_port_taken_is_refused_with_the_next_step(installation: Installation) -> None:
    with socket.socket() as other:
        other.bind((LOOPBACK, 0))
        other.listen()
        port = other.getsockname()[1]
        with pytest.raises(CommandError, match=rf"{port} is taken.*--port"):
            installation.settle_state(None, port, 3)


def test_state_other_number_of_nodes_is_refused(installation: Installation) -> None:
    installation.settle_state(None, free_port(), 3)
    with pytest.raises(CommandError, match=r"has 3 storage nodes.*node add"):
        installation.settle_state(None, None, 5)


def test_node_added_has_an_id_and_ports_of_its_own_and_is_remembered(installation: Installation) -> None:
    state = installation.settle_state(None, free_port(), 3)
    before = dict(state.ports)
    assert installation.add_node(state) == 4
    assert state.ports.items() >= before.items() and len(set(state.ports.values())) == len(state.ports)
    assert installation.load_state() == state and state.joining == [4]
    specs = {spec.number: spec for spec in roles.storage_node_specs(installation, state)}
    assert [spec.environment["PENSTOCK_NODE_JOIN"] for spec in specs.values()] == ["0", "0", "0", "1"]
    assert len(parse_node_list(specs[4].environment["PENSTOCK_STORAGE_NODES"])) == 4
    installation.node_joined(state, 4)
    assert installation.load_state().joining == []
    assert installation.settle_state(None, None, None).node_ids() == [1, 2, 3, 4]


def test_node_removed_leaves_its_id_unused(installation: Installation) -> None:
    state = installation.settle_state(None, free_port(), 3)
    installation.remove_node(state, 2)
    again = installation.settle_state(None, None, 2)
    assert again.node_ids() == [1, 3] and "node-2" not in again.ports
    assert [node.node_id for node in installation.nodes(again)] == [1, 3]
    assert installation.add_node(again) == 4


def test_more_nodes_than_one_machine_runs_are_refused(installation: Installation) -> None:
    state = installation.settle_state(None, free_port(), limits.NODES_MAX)
    with pytest.raises(CommandError, match="at most 9"):
        installation.add_node(state)


def test_state_written_before_nodes_could_be_added_is_read(installation: Installation) -> None:
    state = installation.settle_state(None, free_port(), 3)
    old = {"cluster_id": state.cluster_id, "host": state.host, "port": state.port, "node_count": 3, "ports": {}}
    installation.state_file.write_text(json.dumps(old))
    assert installation.load_state().node_ids() == [1, 2, 3]


def test_cluster_number_is_chosen_once_and_stands_in_all_ids(installation: Installation) -> None:
    port = free_port()
    state = installation.settle_state(None, port, 2, cluster_number=7)
    assert [node_name(node_id) for node_id in state.node_ids()] == ["7.1", "7.2"]
    assert [(node.node_id, node.zone) for node in installation.nodes(state)] == [
        (make_node_id(7, 1), "zone-7.1"), (make_node_id(7, 2), "zone-7.2")
    ]  # fmt: skip
    assert installation.add_node(state) == make_node_id(7, 3) and "node-7.3-metrics" in state.ports
    assert installation.settle_state(None, port, None, cluster_number=7).cluster_number == 7
    with pytest.raises(CommandError, match=r"is cluster 7, .*; leave --cluster-number out"):
        installation.settle_state(None, port, None, cluster_number=1)


@pytest.mark.parametrize("number", [0, -1, 8_193])
def test_cluster_number_that_no_id_can_hold_is_refused(installation: Installation, number: int) -> None:
    with pytest.raises(CommandError, match="--cluster-number must lie between 1 and 8192"):
        installation.settle_state(None, free_port(), 3, cluster_number=number)
    assert not installation.exists()


@pytest.mark.parametrize("count", [0, -1, 10])
def test_state_impossible_number_of_nodes_is_refused(installation: Installation, count: int) -> None:
    with pytest.raises(CommandError, match="--nodes must lie between"):
        installation.settle_state(None, free_port(), count)


def test_state_damaged_file_is_named(installation: Installation) -> None:
    installation.settle_state(None, free_port(), 3)
    installation.state_file.write_text("{")
    with pytest.raises(CommandError, match=r"state\.json is damaged"):
        installation.load_state()


def test_data_directory_that_cannot_be_made_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(CommandError, match="cannot be used"):
        Installation(tmp_path / "file" / "data").prepare()


def test_settings_carry_the_documented_names(installation: Installation) -> None:
    state = installation.settle_state(None, free_port(), 3)
    settings = installation.settings(state)
    nodes = parse_node_list(settings["PENSTOCK_STORAGE_NODES"])
    assert [node.node_id for node in nodes] == [1, 2, 3]
    assert len({node.zone for node in nodes}) == 3
    assert settings["PENSTOCK_SECRETS_DIR"] == str(installation.secrets)
    assert installation.secret("postgres.password") in settings["DATABASE_URL"]
    documented = (Path(__file__).parents[2] / "docs" / "processes.md").read_text()
    assert [name for name in settings if f"`{name}`" not in documented] == []


def test_settings_outside_servers_win(installation: Installation, monkeypatch: pytest.MonkeyPatch) -> None:
    state = installation.settle_state(None, free_port(), 3)
    monkeypatch.setenv("DATABASE_URL", "postgresql://me@db/penstock")
    monkeypatch.setenv("CELERY_BROKER_URL", "redis://broker/0")
    settings = installation.settings(state)
    assert (settings["DATABASE_URL"], settings["CELERY_BROKER_URL"]) == (
        "postgresql://me@db/penstock",
        "redis://broker/0",
    )


def test_outside_servers_that_files_name_are_used_and_their_words_stay_in_the_files(
    installation: Installation, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    state = installation.settle_state(None, free_port(), 3)
    for name, url in (("DATABASE_URL", "postgresql://me:word@db/penstock"), ("CELERY_BROKER_URL", "redis://:word@b/0")):
        (tmp_path / name).write_text(f"{url}\n")
        monkeypatch.setenv(f"{name}_FILE", str(tmp_path / name))
        assert installation.settings(state)[name] == url and is_outside(name)
    for role in ("control-plane", "worker", "schedule", "manage"):
        environment = installation.environment(state, role)
        assert environment["DATABASE_URL_FILE"] == str(tmp_path / "DATABASE_URL") and "DATABASE_URL" not in environment
        assert environment["CELERY_BROKER_URL_FILE"] == str(tmp_path / "CELERY_BROKER_URL")
        assert not any("word@" in text for text in environment.values())
    assert doctor.database(installation).startswith("outside server")
    assert doctor.broker(installation).startswith("outside broker")
    (tmp_path / "DATABASE_URL").write_text("")
    with pytest.raises(CommandError, match=r"DATABASE_URL_FILE: .*is empty"):
        installation.settings(state)
    monkeypatch.setenv("DATABASE_URL_FILE", str(tmp_path / "absent"))
    with pytest.raises(CommandError, match=r"cannot read .*absent"):
        installation.settings(state)


@pytest.mark.parametrize("role", sorted(SETTINGS_OF_ROLE))
def test_environment_of_a_role_holds_no_secret_of_another(
    role: str, installation: Installation, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("DATABASE_URL", "postgresql://me:database-word@db/penstock")
    monkeypatch.setenv("CELERY_BROKER_URL", "redis://:broker-word@broker/0")
    monkeypatch.setenv("DATABASE_URL_FILE", "/where/it/stands")
    monkeypatch.setenv("OTHER_SERVICE_TOKEN", "of the caller")
    monkeypatch.setenv("PENSTOCK_MAIL_URL", "smtp://me:mail-word@mail")
    environment = installation.environment(installation.settle_state(None, free_port(), 3), role)
    assert environment[MARK] == str(installation.data)
    told = {name for name in ("database-word", "broker-word") if any(name in text for text in environment.values())}
    of_rows = {"control-plane", "worker", "usage-worker", "schedule", "manage"}
    expected = {"database-word", "broker-word"} if role in of_rows else set()
    assert told == ({"database-word"} if role == "metadata" else expected)
    assert "DATABASE_URL_FILE" not in environment
    assert ("PENSTOCK_MAIL_URL" in environment) == (role in {"control-plane", "worker", "manage"})
    assert ("OTHER_SERVICE_TOKEN" in environment) == (role not in ("postgres", "valkey"))
    assert ("PENSTOCK_SECRETS_DIR" in environment) == (role in {*of_rows, "frontend"})


def test_environment_of_another_project_of_the_caller_stays_outside(
    installation: Installation, monkeypatch: pytest.MonkeyPatch
) -> None:
    state = installation.settle_state(None, free_port(), 3)
    for name in ("DJANGO_SETTINGS_MODULE", "CELERY_CONFIG_MODULE"):
        monkeypatch.setenv(name, "shop.settings")
    told = [value for role in SETTINGS_OF_ROLE for value in installation.environment(state, role).values()]
    assert "shop.settings" not in told


def test_environment_programs_of_the_virtual_environment_come_first(installation: Installation) -> None:
    import sys

    environment = installation.environment(installation.settle_state(None, free_port(), 3), "worker")
    assert environment["PATH"].split(os.pathsep)[0] == str(Path(sys.executable).parent)


def test_allocator_of_an_image_is_that_of_an_installation(installation: Installation) -> None:
    environment = installation.environment(installation.settle_state(None, free_port(), 3), "worker")
    lines = (ROOT / "deploy" / "Dockerfile").read_text().splitlines()
    image = dict(word.split("=") for line in lines if line.startswith("ENV ") for word in line.split()[1:])
    for settings in (environment, image):
        assert {name: text for name, text in settings.items() if name.startswith("MALLOC_")} == allocator.ENVIRONMENT


def test_schema_fingerprint_differs_by_database() -> None:
    assert schema_fingerprint("postgresql://a/x") == schema_fingerprint("postgresql://a/x")
    assert schema_fingerprint("postgresql://a/x") != schema_fingerprint("postgresql://b/x")


def test_port_in_use_is_not_free() -> None:
    with socket.socket() as other:
        other.bind((LOOPBACK, 0))
        other.listen()
        assert not is_free(LOOPBACK, other.getsockname()[1])


def test_secrets_for_containers_are_made_once(tmp_path: Path) -> None:
    from deploy.make_secrets import main

    assert main([]) == 2
    assert main([str(tmp_path)]) == 0
    made = {file.name: file.read_text() for file in tmp_path.iterdir()}
    assert set(made) == set(SECRET_NAMES)
    assert main([str(tmp_path)]) == 0
    assert {file.name: file.read_text() for file in tmp_path.iterdir()} == made
