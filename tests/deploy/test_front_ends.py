"""How many front ends an installation has, and what each of them is told."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from deploy import limits, roles
from deploy.errors import CommandError
from deploy.installation import Installation, default_front_ends
from deploy.ports import choose_port


@pytest.fixture
def installation(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Installation:
    for name in ("DATABASE_URL", "CELERY_BROKER_URL"):
        monkeypatch.delenv(name, raising=False)
    made = Installation(tmp_path / "data")
    made.prepare()
    return made


@pytest.mark.parametrize(("cores", "front_ends"), [(1, 1), (2, 1), (3, 1), (4, 2), (16, 8), (1_000, 16)])
def test_number_by_default_leaves_half_the_cores_to_the_rest(cores: int, front_ends: int) -> None:
    assert default_front_ends(cores) == front_ends


def test_number_is_kept_until_the_flag_changes_it(installation: Installation) -> None:
    port = choose_port(set())
    assert installation.settle_state(None, port, 3, 2).front_ends == 2
    assert installation.settle_state(None, None, None).front_ends == 2
    assert installation.settle_state(None, None, None, 1).front_ends == 1
    assert installation.load_state().front_ends == 1


@pytest.mark.parametrize("count", [0, -1, limits.FRONT_ENDS_MAX + 1])
def test_impossible_number_is_refused_and_nothing_is_remembered(installation: Installation, count: int) -> None:
    with pytest.raises(CommandError, match="--front-ends must lie between"):
        installation.settle_state(None, choose_port(set()), 3, count)
    assert not installation.exists()


def test_installation_from_before_keeps_its_one_front_end(installation: Installation) -> None:
    state = installation.settle_state(None, choose_port(set()), 3, 4)
    known = json.loads(installation.state_file.read_text())
    old = {name: known[name] for name in ("cluster_id", "host", "port", "node_count", "ports", "gone", "joining")}
    installation.state_file.write_text(json.dumps(old))
    again = installation.settle_state(None, None, None)
    assert again.front_ends == 1 and again.ports["frontend-metrics"] == state.ports["frontend-metrics"]


def test_each_front_end_has_a_log_and_an_operators_port_of_its_own_and_all_share_the_public_one(
    installation: Installation,
) -> None:
    state = installation.settle_state(None, choose_port(set()), 3, 3)
    specs = roles.frontend_specs(state)
    assert [(spec.role, spec.number, spec.name) for spec in specs] == [
        ("frontend", 1, "frontend"), ("frontend", 2, "frontend-2"), ("frontend", 3, "frontend-3"),
    ]  # fmt: skip
    assert {spec.environment["PENSTOCK_LISTEN"] for spec in specs} == {f"127.0.0.1:{state.port}"}
    assert {spec.environment["PENSTOCK_LISTEN_SHARED"] for spec in specs} == {"1"}
    assert len({spec.environment["PENSTOCK_METRICS_LISTEN"] for spec in specs}) == 3
    fewer = installation.settle_state(None, None, None, 1)
    assert "frontend-2-metrics" not in fewer.ports
    (alone,) = roles.frontend_specs(fewer)
    assert alone.environment["PENSTOCK_LISTEN_SHARED"] == "0", "no other program may listen there beside it"
