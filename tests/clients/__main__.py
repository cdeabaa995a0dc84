"""Run clients of other makers against a temporary installation, and write docs/sqs_clients.md.

    python -m tests.clients                    every client; the document is written
    python -m tests.clients NAME [NAME...]     these clients; only the table is printed
    python -m tests.clients --list

Environments are kept under --directory (default: `clients` in the project's state directory), which can be deleted at
any time. A client whose environment cannot be made here is reported as not run. Exit code: 0 when all that was asked
for passed, 1 when a check failed, 2 when something was not run.
"""

from __future__ import annotations

import argparse
import os
import signal
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path

from tests.clients import document
from tests.clients.environments import Environments, NotInstallable
from tests.clients.outcome import Outcome, run_program
from tests.clients.registry import CLIENTS, Client, Program
from tests.support.installation import ROOT, RunningInstallation, running

KEPT_VARIABLES = ("HOME", "LANG", "LC_ALL", "LOGNAME", "PATH", "TMPDIR", "TZ", "USER")
STATE_DIRECTORY = Path(os.environ.get("PENSTOCK_DATA_DIR") or ROOT / ".penstock")
EXIT_FAILED = 1
EXIT_NOT_RUN = 2


def main() -> int:
    # What runs is stopped on the way out.
    signal.signal(signal.SIGTERM, lambda number, frame: sys.exit(128 + number))
    arguments = _arguments()
    if arguments.list:
        sys.stdout.writelines(f"{client.name:<18} {client.title}\n" for client in CLIENTS)
        return 0
    chosen = [client for client in CLIENTS if not arguments.names or client.name in arguments.names]
    prepared, outcomes = prepare(chosen, Environments(arguments.directory.absolute(), tell))
    for region in sorted({client.region for client in prepared}):
        outcomes |= run_in_region(
            region, {client: made for client, made in prepared.items() if client.region == region}
        )
    ordered = [outcomes[client.name] for client in chosen]
    sys.stdout.write(document.table(ordered) + document.failures(ordered))
    if not arguments.names:
        document.PATH.write_text(document.document(ordered))
        tell(f"wrote {document.PATH.relative_to(ROOT)}")
    if any(outcome.failures for outcome in ordered):
        return EXIT_FAILED
    return 0 if all(outcome.passed for outcome in ordered) else EXIT_NOT_RUN


def prepare(chosen: Sequence[Client], environments: Environments) -> tuple[dict[Client, Program], dict[str, Outcome]]:
    """Programs that can run here, and outcomes of those that cannot."""
    prepared: dict[Client, Program] = {}
    outcomes: dict[str, Outcome] = {}
    for client in chosen:
        try:
            prepared[client] = client.prepare(environments)
        except NotInstallable as error:
            tell(f"{client.name} is not run: {error}")
            outcomes[client.name] = Outcome(client.title, not_run=f"its environment could not be made: {error}")
    return prepared, outcomes


def run_in_region(region: str, programs: Mapping[Client, Program]) -> dict[str, Outcome]:
    """One installation for all clients of a region."""
    outcomes: dict[str, Outcome] = {}
    tell(f"starting an installation in region {region}")
    with running(settings={"PENSTOCK_REGION": region}) as installation:
        for client, program in programs.items():
            tell(f"{client.name} ...")
            started = time.monotonic()
            outcome = run_client(client, program, installation)
            outcomes[client.name] = outcome
            tell(f"{client.name}: {document.result(outcome)} after {time.monotonic() - started:.0f} s")
    return outcomes


def run_client(client: Client, program: Program, installation: RunningInstallation) -> Outcome:
    environment = {**client_environment(installation), **dict(program.settings)}
    return run_program(client.title, program.command, environment, program.directory or ROOT, client.timeout_s)


def client_environment(installation: RunningInstallation) -> dict[str, str]:
    """What any program needs of ours and nothing else, plus the endpoint, the region and a key.

    A setting of ours can be one of theirs: Celery reads CELERY_BROKER_URL and DJANGO_SETTINGS_MODULE of itself.
    """
    key = installation.key
    return {
        **{name: os.environ[name] for name in KEPT_VARIABLES if name in os.environ},
        "PYTHONPATH": str(ROOT),
        "AWS_ENDPOINT_URL_SQS": key["endpoint"],
        "AWS_REGION": key["region"],
        "AWS_DEFAULT_REGION": key["region"],
        "AWS_ACCESS_KEY_ID": key["access_key_id"],
        "AWS_SECRET_ACCESS_KEY": key["secret_access_key"],
        "AWS_CONFIG_FILE": os.devnull,
        "AWS_SHARED_CREDENTIALS_FILE": os.devnull,
        "AWS_EC2_METADATA_DISABLED": "true",
    }


def tell(text: str) -> None:
    sys.stderr.write(f"clients: {text}\n")
    sys.stderr.flush()


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m tests.clients", description="clients of other makers on Penstock")
    parser.add_argument("names", nargs="*", metavar="NAME", help="clients to run (default: all)")
    parser.add_argument(
        "--directory", type=Path, default=STATE_DIRECTORY / "clients", help="where environments are kept"
    )
    parser.add_argument("--list", action="store_true", help="names of the clients")
    arguments = parser.parse_args()
    unknown = sorted(set(arguments.names) - {client.name for client in CLIENTS})
    if unknown:
        parser.error(f"no client is named {', '.join(unknown)}; --list names those there are")
    return arguments


if __name__ == "__main__":
    sys.exit(main())
