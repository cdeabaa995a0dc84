"""Ports that were chosen and are not listened on yet: two installations that start together choose different ones."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from deploy import limits, ports
from deploy.__main__ import main
from deploy.commands import up
from deploy.errors import CommandError
from deploy.installation import ROOT, Installation
from deploy.ports import LOOPBACK, choose_port, claim_port, is_free
from deploy.state import State, settle_ports

PORTS = 4
_CLAIMING = """
import sys
from deploy.ports import claim_port
print(all(claim_port(int(port)) for port in sys.argv[1:]), flush=True)
sys.stdin.read()
"""


@pytest.fixture
def claimed_elsewhere(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[int]]:
    """All ports that may be chosen but one, claimed by another process; the free one comes last and is not claimed."""
    first = next(
        start
        for start in range(limits.INTERNAL_PORT_MIN, limits.INTERNAL_PORT_MAX, PORTS)
        if all(is_free(LOOPBACK, port) and claim_port(port) for port in range(start, start + PORTS))
    )
    numbers = list(range(first, first + PORTS))
    for port in numbers:
        ports._held.pop(port).close()
    monkeypatch.setattr(limits, "INTERNAL_PORT_MIN", numbers[0])
    monkeypatch.setattr(limits, "INTERNAL_PORT_MAX", numbers[-1])
    command = [sys.executable, "-c", _CLAIMING, *map(str, numbers[:-1])]
    with subprocess.Popen(command, cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as other:
        assert other.stdout is not None
        assert other.stdout.readline() == "True\n"
        yield numbers
        other.communicate()


def test_port_that_another_installation_has_chosen_is_not_chosen(claimed_elsewhere: list[int]) -> None:
    assert choose_port(set()) == claimed_elsewhere[-1]
    with pytest.raises(CommandError, match="no free port was found"):
        choose_port({claimed_elsewhere[-1]})


def test_port_of_an_earlier_start_is_given_up_while_another_installation_has_chosen_it(
    claimed_elsewhere: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("deploy.state.internal_roles", lambda state: ["valkey"])
    state = State("pk-test", LOOPBACK, 9324, 1, ports={"valkey": claimed_elsewhere[0]})
    settle_ports(state)
    assert state.ports == {"valkey": claimed_elsewhere[-1]}
    settle_ports(state)  # its own claim does not count
    assert state.ports == {"valkey": claimed_elsewhere[-1]}


def test_claims_end_with_their_process(claimed_elsewhere: list[int]) -> None:
    assert not claim_port(claimed_elsewhere[0])
    assert another_can_claim(claimed_elsewhere[-1])
    assert claim_port(claimed_elsewhere[-1])


def test_claims_are_given_up_for_the_process_that_listens_instead() -> None:
    port = choose_port(set())
    assert not another_can_claim(port)
    ports.release_claims()
    assert another_can_claim(port)


def test_detached_start_leaves_its_claims_to_the_process_that_goes_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    held: list[int] = []
    settle = Installation.settle_state

    def settled(installation: Installation, *given: Any) -> State:
        state = settle(installation, *given)
        held.append(len(ports._held))
        return state

    def detach(*_: object) -> int:
        held.append(len(ports._held))
        return 0

    monkeypatch.setattr(Installation, "settle_state", settled)
    monkeypatch.setattr(up, "detach", detach)
    assert main(["up", "--detach", "--data-dir", str(tmp_path)]) == 0
    claimed, left = held
    assert claimed > 0 and left == 0


def another_can_claim(port: int) -> bool:
    command = [sys.executable, "-c", _CLAIMING, str(port)]
    return subprocess.run(command, cwd=ROOT, input="", capture_output=True, text=True, check=True).stdout == "True\n"
