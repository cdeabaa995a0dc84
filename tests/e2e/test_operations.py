"""docs/operations.md: a copy of a stopped installation is a backup, and the secrets that it says can be changed can."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Iterator

import pytest

from tests.support.installation import RunningInstallation, running

pytestmark = pytest.mark.slow
# Removed while the installation is stopped; the next `up` makes others.
CHANGEABLE = ("internal.key", "django.key", "valkey.password", "postgres.password")


@pytest.fixture
def own_installation() -> Iterator[RunningInstallation]:
    """It is moved, so it is nobody else's."""
    with running() as made:
        yield made


def test_copy_of_a_stopped_installation_goes_on_with_other_secrets(own_installation: RunningInstallation) -> None:
    installation = own_installation
    lines = [b"line %d" % number for number in range(500)]
    installation.command("send", "kept", input_bytes=b"\n".join(lines))
    installation.down()
    copy = installation.data.with_name("restored")
    subprocess.run(["cp", "-a", str(installation.data), str(copy)], check=True)
    installation.data = copy
    secrets = copy / "secrets"
    before = {name: (secrets / name).read_text() for name in CHANGEABLE}
    for name in CHANGEABLE:
        (secrets / name).unlink()
    installation.up()
    assert not any((secrets / name).read_text() == text for name, text in before.items())
    received = installation.command("receive", "kept", "--idle", "2").stdout.splitlines()
    assert sorted(received) == sorted(lines)
    accounts = json.loads(installation.command("accounts", "list", "--json").stdout)
    assert [account["name"] for account in accounts] == ["demo"]
