"""docker-compose.yml runs commands that exist, with settings that are documented."""

from __future__ import annotations

import importlib.util
import re
from typing import Any

import pytest
import yaml

from tests.tidy.repository import ROOT, text

COMPOSE: dict[str, Any] = yaml.safe_load(text("docker-compose.yml"))
# The images' own settings.
FOREIGN_SETTINGS = {"POSTGRES_USER", "POSTGRES_PASSWORD", "POSTGRES_DB", "POSTGRES_INITDB_ARGS", "PGDATA"}
OURS = {name: service for name, service in COMPOSE["services"].items() if service["image"].startswith("penstock:")}


def known_settings() -> set[str]:
    """Names in the settings table of docs/processes.md."""
    return set(re.findall(r"`((?:PENSTOCK|DATABASE|CELERY)_[A-Z_]+)`", text("docs/processes.md")))


def settings_of(service: dict[str, Any]) -> dict[str, str]:
    return dict(service.get("environment") or {})


@pytest.mark.parametrize("name", OURS)
def test_service_runs_a_command_that_exists(name: str) -> None:
    command = OURS[name].get("command")
    if command is None:
        return
    words = command.split() if isinstance(command, str) else list(command)
    if words[:2] == ["python", "-m"]:
        spec = importlib.util.find_spec(words[2])
        assert spec is not None, f"python -m {words[2]}: there is no such program"
        if spec.submodule_search_locations is not None:
            assert importlib.util.find_spec(f"{words[2]}.__main__"), f"{words[2]} has no __main__.py"
    elif words[0] == "celery":
        assert importlib.util.find_spec(words[words.index("-A") + 1]) and words[3] in ("worker", "beat")
    else:
        assert words[:2] == ["python", "manage.py"], f"{words}: not a command of docs/processes.md"
        assert (ROOT / "manage.py").exists()


@pytest.mark.parametrize("name", COMPOSE["services"])
def test_service_settings_are_known(name: str) -> None:
    unknown = set(settings_of(COMPOSE["services"][name])) - known_settings() - FOREIGN_SETTINGS
    assert not unknown, f"{name}: not in docs/processes.md, so no process reads it: {unknown}"


def test_settings_asked_of_the_user_stand_in_the_example() -> None:
    asked = set(re.findall(r"\$\{([A-Z_]+)", text("docker-compose.yml")))
    offered = set(re.findall(r"^#? ?([A-Z_]+)=", text(".env.example"), re.MULTILINE))
    assert asked == offered, f"docker-compose.yml and .env.example differ: {asked ^ offered}"


def test_ports_are_published_on_loopback_only() -> None:
    for name, service in COMPOSE["services"].items():
        for port in service.get("ports", []):
            assert str(port).startswith(("127.0.0.1:", "${PENSTOCK_PUBLISH")), f"{name} publishes {port} to the network"


def test_dependencies_and_volumes_are_declared() -> None:
    for name, service in COMPOSE["services"].items():
        assert set(service.get("depends_on", {})) <= set(COMPOSE["services"]), name
        named = {mount.split(":")[0] for mount in service.get("volumes", []) if not mount.startswith((".", "/"))}
        assert named <= set(COMPOSE["volumes"]), f"{name} uses a volume that is not declared"


def test_three_storage_nodes_stand_in_three_zones() -> None:
    lists = {settings_of(service).get("PENSTOCK_STORAGE_NODES") for service in OURS.values()} - {None}
    assert len(lists) == 1, "every process must be told of the same nodes"
    from storage_nodes.model import parse_node_list

    nodes = parse_node_list(str(lists.pop()))
    assert len(nodes) == 3 and len({node.zone for node in nodes}) == 3
    assert {node.host for node in nodes} <= set(COMPOSE["services"])
