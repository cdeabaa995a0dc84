"""`node start ID`, `node stop ID`: one storage node of a running installation; a stopped one stays down."""

from __future__ import annotations

import argparse

from deploy import control, limits, output
from deploy.installation import Installation


def run(options: argparse.Namespace) -> int:
    request = {"command": f"node {options.verb}", "id": options.id}
    # Stopping waits for the node's clean end, starting for its recovery.
    answer = control.ask(Installation(options.data_dir).run, request, limits.STOP_DEADLINE_S + limits.CONTROL_TIMEOUT_S)
    output.say(f"storage node {answer['id']} is {answer['health']}")
    return 0
