"""`up`: become the supervisor, or, detached, start one and wait until the endpoint answers."""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import subprocess
import sys
import time
from typing import Any

from deploy import control, limits, output
from deploy.commands.status import not_up_lines
from deploy.demo import ensure_demo_key, introduction
from deploy.errors import EXIT_FAILED, EXIT_USAGE, CommandError
from deploy.installation import ROOT, Installation
from deploy.ports import release_claims
from deploy.state import State, check_numbers, check_same_cluster, other_number_of_nodes
from deploy.supervisor import Say, Supervisor, take_lock
from deploy.tls import TlsWish


def run(options: argparse.Namespace) -> int:
    began = time.monotonic()
    check_numbers(options.port, options.nodes, options.front_ends, options.redirect_port, options.cluster_number)
    installation = Installation(options.data_dir)
    installation.prepare()
    lock = take_lock(installation)
    if lock is None:
        return already_running(installation, options)
    tls = TlsWish(options.tls_certificate, options.tls_key, options.no_tls, options.redirect_port)
    state = installation.settle_state(
        options.host, options.port, options.nodes, options.front_ends, tls, options.cluster_number
    )
    if options.report_to is None and len(state.node_ids()) < limits.NODES_TO_LOSE_ONE_MIN:
        output.say(few_nodes(len(state.node_ids())))
    if options.detach:
        lock.close()
        release_claims()
        return detach(installation, options.no_tls)
    say = output.say if options.report_to is None else reporter(options.report_to)
    if options.report_to is None:
        say(f"starting Penstock in {installation.data}")
    try:
        asyncio.run(supervise(installation, state, say, began))
    except CommandError as error:
        say(f"penstock: {error}")  # also through the pipe, to who started us detached
        return error.exit_code
    return 0


def few_nodes(count: int) -> str:
    nodes = "one storage node" if count == 1 else f"{count} storage nodes"
    return (
        f"penstock: with {nodes} none may be away: while one is, nothing is taken or delivered. "
        f"{limits.NODES_TO_LOSE_ONE_MIN} nodes go on without one."
    )


def already_running(installation: Installation, options: argparse.Namespace) -> int:
    """A second `up` finds the first one's work: say where it is. It may still be starting; then that is said."""
    status = control.ask(installation.run, {"command": "status"})
    state = installation.load_state()
    if options.nodes not in (None, len(state.node_ids())):
        raise CommandError(other_number_of_nodes(state), EXIT_USAGE)
    check_same_cluster(state, options.cluster_number)
    given = {"--host": options.host, "--port": options.port, "--front-ends": options.front_ends}
    present = {"--host": state.host, "--port": state.port, "--front-ends": state.front_ends}
    others = [f"{option} {present[option]}" for option, value in given.items() if value not in (None, present[option])]
    if others:
        raise CommandError(
            f"{installation.data} already runs, with {', '.join(others)}. Stop it first to change that: ./penstock down"
        )
    if options.tls_certificate or options.tls_key or options.no_tls or options.redirect_port is not None:
        raise CommandError(
            f"{installation.data} already runs. A new certificate in the place of the old one is taken by itself; for "
            "other files, or to begin or end TLS, stop it first: ./penstock down"
        )
    if not status["started"]:
        output.say(f"{installation.data} is being started by process {status['supervisor_pid']}")
        return 0
    output.say(f"already running (supervisor {status['supervisor_pid']})")
    output.data(introduction(installation, state, ensure_demo_key(installation, state), None))
    lines = not_up_lines(status["processes"])
    for line in lines:
        output.say(line)
    return EXIT_FAILED if lines else 0


async def supervise(installation: Installation, state: State, say: Say, began: float) -> None:
    def on_ready(supervisor: Supervisor) -> None:
        text = introduction(installation, state, supervisor.demo_key, time.monotonic() - began)
        say(json.dumps({"ready": text}) if say is not output.say else "")
        if say is output.say:
            output.data(text + " (or Ctrl-C here)")

    await Supervisor(installation, state, say).run(on_ready)


# --- detached -----------------------------------------------------------------------------------------------
# The supervisor runs as a session of its own and tells its progress over a pipe: plain lines, and at last a JSON line
# {"ready": what to print}. The pipe's end without that line is a failed start.


def reporter(descriptor: int) -> Say:
    """Progress goes to the pipe while somebody reads it, and always to the supervisor's log."""
    pipe = os.fdopen(descriptor, "w", buffering=1)

    def say(text: str) -> None:
        if not text.startswith('{"ready"'):
            output.say(text)
        try:
            pipe.write(text + "\n")
            if text.startswith('{"ready"'):
                pipe.close()
        except (OSError, ValueError):
            pass  # the command that started us has gone; the log has the rest

    return say


def detach(installation: Installation, is_tls_off: bool) -> int:
    """The state has what was asked for, but that the certificate of the environment does not count."""
    read_end, write_end = os.pipe()
    command = [sys.executable, "-P", "-m", "deploy", "up", "--data-dir", str(installation.data)]
    if is_tls_off:
        command.append("--no-tls")
    log = os.open(installation.logs / "supervisor.log", os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o640)
    output.say(f"starting Penstock in {installation.data}")
    with subprocess.Popen(
        [*command, "--report-to", str(write_end)], stdin=subprocess.DEVNULL, stdout=log, stderr=log, cwd=ROOT,
        start_new_session=True, pass_fds=(write_end,),
    ) as process:  # fmt: skip
        os.close(write_end)
        os.close(log)
        ready = relay(read_end)
        if ready is None:
            return process.wait() or EXIT_FAILED
        output.data(ready["ready"])
        process.returncode = 0  # it stays: not ours to wait for
        return 0


def relay(read_end: int) -> dict[str, Any] | None:
    """Pass the supervisor's lines on; its ready message, or None when it ended without one."""
    with os.fdopen(read_end) as lines:
        for line in lines:
            if line.startswith('{"ready"'):
                ready: dict[str, Any] = json.loads(line)
                return ready
            output.say(line.rstrip("\n"))
    return None
