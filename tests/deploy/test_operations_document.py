"""docs/operations.md: its unit, ports and secrets are those of the launcher."""

from __future__ import annotations

import configparser
import re

from deploy import limits
from deploy.__main__ import parser
from deploy.installation import ADMIN_SECRET_NAMES, ROOT, SERVER_SECRET_NAMES
from deploy.make_secrets import SECRET_NAMES
from deploy.state import State, internal_roles

TEXT = (ROOT / "docs" / "operations.md").read_text()


def unit() -> configparser.ConfigParser:
    block = re.search(r"^```ini\n(.*?)^```$", TEXT, re.MULTILINE | re.DOTALL)
    assert block
    read = configparser.ConfigParser()
    read.optionxform = str  # type: ignore[assignment,method-assign]
    read.read_string(block[1])
    return read


def test_unit_starts_a_command_that_there_is_and_waits_for_its_end() -> None:
    service = unit()["Service"]
    program, *words = service["ExecStart"].split()
    options = parser().parse_args(words)
    assert program.endswith("/penstock") and options.module == "up" and not options.detach
    assert int(service["TimeoutStopSec"]) > limits.DOWN_DEADLINE_S
    assert service["KillMode"] == "mixed", "the supervisor stops its processes in order"


def test_metrics_ports_are_named_as_in_the_state() -> None:
    named = {f"{name}" for name in re.findall(r"`([a-z0-9-]+-metrics)`", TEXT)}
    there = {name for name in internal_roles(State("c", "h", 1, 1)) if name.endswith("-metrics")}
    assert named == there


def test_every_secret_of_an_installation_has_its_row() -> None:
    named = set(re.findall(r"`([a-z-]+\.(?:key|password))`", TEXT.partition("## Change secrets")[2]))
    assert named == {*SECRET_NAMES, *SERVER_SECRET_NAMES, *ADMIN_SECRET_NAMES}
