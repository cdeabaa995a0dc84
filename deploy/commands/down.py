"""`down`: ask the supervisor to stop everything, and wait until it is gone."""

from __future__ import annotations

import argparse

from deploy import control, limits, output
from deploy.errors import CommandError
from deploy.installation import Installation
from deploy.leftovers import stop_leftovers
from deploy.supervisor import take_lock


def run(options: argparse.Namespace) -> int:
    installation = Installation(options.data_dir)
    if not installation.exists():
        raise CommandError(f"there is no installation in {installation.data}")
    connection = control.connect(installation.run)
    if connection is not None:
        with connection:
            control.exchange(connection, {"command": "stop"})
            connection.settimeout(limits.DOWN_DEADLINE_S)
            try:
                connection.recv(1)  # its end of the connection closes with the process
            except TimeoutError:
                sentence = f"still stopping after {limits.DOWN_DEADLINE_S:.0f} s; see {installation.logs}"
                raise CommandError(sentence) from None
        output.say("stopped")
        return 0
    lock = take_lock(installation)
    if lock is None:
        raise CommandError("the supervisor is starting or stopping; try again in a moment")
    with lock:
        count = stop_leftovers(installation.data)
    output.say(f"stopped {count} processes that had lost their supervisor" if count else "nothing was running")
    return 0
