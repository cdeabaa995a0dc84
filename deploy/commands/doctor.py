"""`doctor`: what an installation here would use, from where and why; and what is missing, with the next step."""

from __future__ import annotations

import argparse
import os
import shutil
import sys
from collections.abc import Callable
from datetime import datetime
from pathlib import Path
from typing import Any

from deploy import certificates, control, management, output, tls
from deploy.binaries import find_postgres
from deploy.commands import cluster_view, usage_view
from deploy.commands.status import not_up_lines, number_of, status_of
from deploy.errors import EXIT_FAILED, EXIT_NOT_RUNNING, CommandError
from deploy.identity import describe_identity
from deploy.installation import Installation
from deploy.limits import DEFAULT_PORT, REPORT_DEADLINE_S
from deploy.outside_servers import BROKER_URL, DATABASE_URL, outside_url
from deploy.ports import LOOPBACK, is_free
from deploy.postgres import major_of, postgres_directory
from deploy.valkey import choose_valkey
from storage_nodes.trust.credentials import InnerTlsMode

DISK_FREE_BYTES_MIN = 2 * 1024**3
# The supervisor renews them long before.
INNER_DAYS_LEFT_MIN = 7
MONTHS_SHOWN = 3


def run(options: argparse.Namespace) -> int:
    installation = Installation(options.data_dir)
    checks = [
        check("python", lambda: f"{sys.version.split()[0]} ({sys.executable})"),
        check("database", lambda: database(installation)),
        check("broker", lambda: broker(installation)),
        check("servers run as", describe_identity),
        check("data directory", lambda: data_directory(installation)),
        check("public port", lambda: public_port(installation)),
        check("TLS", lambda: certificate(installation)),
        check("inner TLS", lambda: inner_certificates(installation)),
        check("open files", open_files),
        check("clock", clock),
        check("spark", lambda: spark(installation)),
        check("invoices", lambda: invoices(installation)),
        check("processes", lambda: processes(installation)),
        check("storage", lambda: storage(installation)),
    ]
    if options.json:
        output.data_json([{"check": name, "ok": ok, "finding": text} for name, ok, text in checks])
    else:
        output.table(["CHECK", "", "FINDING"], [[name, "ok" if ok else "PROBLEM", text] for name, ok, text in checks])
    return 0 if all(ok for _, ok, _ in checks) else EXIT_FAILED


def check(name: str, look: Callable[[], str]) -> tuple[str, bool, str]:
    try:
        return name, True, output.complete(look())
    except CommandError as error:
        return name, False, output.complete(str(error))


def database(installation: Installation) -> str:
    if outside_url(DATABASE_URL):
        return "outside server, named by DATABASE_URL"
    major = major_of(postgres_directory(installation))
    found = find_postgres(major)
    return f"embedded PostgreSQL{'' if major is None else f' {major}, as its files are'}, {found.path} ({found.why})"


def broker(installation: Installation) -> str:
    if outside_url(BROKER_URL):
        return "outside broker, named by CELERY_BROKER_URL"
    found = choose_valkey(installation)
    return f"embedded {found.version}, {found.path} ({found.why})"


def processes(installation: Installation) -> str:
    """Those that run now; a CommandError names the ones that are not up, with their last words."""
    try:
        rows = control.ask(installation.run, {"command": "status"})["processes"]
    except CommandError as error:
        if error.exit_code == EXIT_NOT_RUNNING:
            return "not running"
        raise
    lines = not_up_lines(rows)
    # By hand, and so not to be started again by itself.
    stopped = [number_of(row) for row in rows if row["health"] == "stopped"]
    lines += [f"storage-node {name} is stopped. Start it: ./penstock node start {name}" for name in stopped]
    if lines:
        raise CommandError("\n".join(lines).strip())
    return f"{len(rows)} are up"


def storage(installation: Installation) -> str:
    """A CommandError says what the storage nodes cannot do."""
    if not runs(installation):
        return "not running"
    status = status_of(installation, installation.load_state())
    partitions = status["partitions"]
    if "cluster_error" in status:
        raise CommandError(f"no storage node answers: {status['cluster_error']}")
    leaderless = sum(not row["leader"] for row in partitions)
    if leaderless:
        text = f"without a leader, so that nothing is sent to or received from them: {leaderless:,} of"
        raise CommandError(f"{text} {len(partitions):,} partitions. See ./penstock status")
    if status["quarantined"]:
        raise CommandError(f"with a stopped replica: {len(status['quarantined']):,} partitions. See ./penstock status")
    if disks := cluster_view.disk_lines(status["nodes"]):
        raise CommandError("\n".join(disks))
    return f"each of {len(partitions):,} partitions has a leader"


def spark(installation: Installation) -> str:
    """Never a problem: everything but the counting of usage works without it, and what was used is counted later."""
    if not runs(installation):
        return usage_view.spark_finding()
    note = usage_view.last_round(installation, installation.load_state())
    if note is None:
        return usage_view.NOT_KNOWN
    return usage_view.spark_finding() if note["ended_at"] is None else usage_view.round_finding(note)


def invoices(installation: Installation) -> str:
    """A CommandError names the months whose invoices should be there and are not, with what they wait for."""
    if not runs(installation):
        return "issued while the installation runs"
    arguments = ["billing_report", "months"]
    try:
        report = management.run_manage_json(installation, installation.load_state(), arguments, REPORT_DEADLINE_S)
    except (CommandError, ValueError) as error:
        raise CommandError(f"whether any are due is not known: {error}") from None
    overdue = [one for one in report["months"] if one["overdue"]]
    if overdue:
        said = f"due and not issued: {months_said(overdue)}. See ./penstock report months"
        raise CommandError(f"{said}, and the check of spark" if report["not_settled"] else said)
    if report["months"]:
        return f"none is overdue; not issued yet: {months_said(report['months'])}"
    return "none is due"


def months_said(months: list[dict[str, Any]]) -> str:
    """The first of them with the reasons."""
    said = [f"{one['period']} ({', '.join(one['reasons'])})" for one in months[:MONTHS_SHOWN]]
    return ", ".join(said) + (f", and {len(months) - MONTHS_SHOWN} more" if len(months) > MONTHS_SHOWN else "")


def runs(installation: Installation) -> bool:
    return (installation.run / "control.sock").exists()


def data_directory(installation: Installation) -> str:
    place = installation.data
    while not place.exists():
        place = place.parent
    if not os.access(place, os.W_OK):
        raise CommandError(f"{place} is not writable; choose another with --data-dir")
    free_bytes = shutil.disk_usage(place).free
    if free_bytes < DISK_FREE_BYTES_MIN:
        raise CommandError(f"only {free_bytes / 1024**2:.0f} MiB free under {place}; at least 2 GiB are wanted")
    made = "in use" if installation.exists() else "not made yet"
    return f"{installation.data} ({made}, {free_bytes / 1024**3:.0f} GiB free)"


def public_port(installation: Installation) -> str:
    port = installation.load_state().port if installation.exists() else DEFAULT_PORT
    if is_free(LOOPBACK, port):
        return f"{port} is free"
    if runs(installation):
        return f"{port} is in use, by this installation if it is up"
    raise CommandError(f"{port} is taken by another program; choose another with --port")


def certificate(installation: Installation) -> str:
    return tls.finding(installation.load_state()) if installation.exists() else "off, unless up is given a certificate"


def inner_certificates(installation: Installation) -> str:
    """What processes show each other: the one that ends first."""
    if not installation.exists():
        return "certificates are made by up"
    state = installation.load_state()
    mode = state.inner_tls
    if mode == InnerTlsMode.OFF:
        return "off: every caller that reaches the ports of the processes is believed"
    if unusable := certificates.unusable_in(installation.certificates, state.cluster_id):
        advice = "up, ./penstock node start and, each hour, the supervisor make others"
        raise CommandError("\n".join([*unusable, advice]))
    ends = certificates.ends_of(installation.certificates)
    if not ends:
        return f"{mode}; certificates are made by up"
    name, left_days = min(ends.items(), key=lambda item: item[1])
    told = f"{mode}; {len(ends)} certificates in {installation.certificates}, {name} ends in {left_days:.0f} days"
    if left_days < INNER_DAYS_LEFT_MIN:
        raise CommandError(f"{told}: they are renewed by up and by the supervisor; see ./penstock logs")
    return told


def open_files() -> str:
    import resource

    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if hard < 4096:
        raise CommandError(f"at most {hard} open files are allowed; raise it (ulimit -Hn 65536)")
    return f"{soft} now, up to {hard}"


def clock() -> str:
    """A machine without a clock of its own starts in 1970, until somebody sets it."""
    now = datetime.now().astimezone()
    installed = datetime.fromtimestamp(Path(__file__).stat().st_mtime).astimezone()
    if now < installed:
        text = f"it says {now:%Y-%m-%d %H:%M}, before this program was installed ({installed:%Y-%m-%d %H:%M})"
        raise CommandError(f"{text}; set it, and keep it set (NTP)")
    return f"{now:%Y-%m-%d %H:%M:%S %z}"
