"""`python -m tests.api.measure_scale [--accounts N] [--queues N] [--large N]`: many accounts and queues at once.

100,000 accounts with a key each, 1,000,000 queues; one account has LARGE of them. Rows are written in bulk, with keys
that open; the queues share one partition of storage, so that each of them can be sent to. Tells how long the metadata
service takes to load them and what it holds, what a front end holds that was asked for many more than its caches keep,
how long the first request of an account takes, and how long CreateQueue takes in the large account beside an empty one.
"""

from __future__ import annotations

import argparse
import http.client
import itertools
import json
import os
import secrets
import signal
import statistics
import sys
import tempfile
import time
import uuid
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime
from typing import Any, NamedTuple
from urllib.parse import urlsplit

import httpx2
import psutil

from benchmarks.report import Report, percentile
from deploy.installation import Installation
from frontend.metadata.limits import QUEUES_CACHED_MAX
from tests.support.installation import RunningInstallation, running, wait_until

# Of rows that are written by one process, and in one transaction.
FILL_QUEUES = 200_000
FILL_BATCH = 20_000
COLD_REQUESTS = 500
COLD_MS_MAX = 50.0
# Distinct accounts and queues that one front end is asked for after that, and how many requests at a time.
SWEPT = 5 * QUEUES_CACHED_MAX
SWEEPERS = 8
SWEEP_S_MAX = 240.0
CREATES = 40
CREATE_RATIO_MAX = 1.10
LOAD_S_MAX = 300.0
BIG = "big"
FILL = "from tests.api.measure_scale import fill; fill({!r}, {}, {}, {}, {})"


class Filled(NamedTuple):
    """One account of the file that `fill` writes: its key, and one of its queues."""

    account_id: str
    bearer_token: str
    queue: str


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--accounts", type=int, default=100_000)
    parser.add_argument("--queues", type=int, default=1_000_000)
    parser.add_argument("--large", type=int, default=100_000, help="of them, queues of one account")
    options = parser.parse_args()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))  # the installation is stopped then, too
    report = Report("scale")
    with running(node_count=1, options=("--front-ends", "1")) as installation:
        is_within = measure(installation, options.accounts, options.queues, options.large, report)
    report.print()
    return 0 if is_within else 1


def measure(installation: RunningInstallation, accounts: int, queues: int, large: int, report: Report) -> bool:
    report.add("load of the machine before", os.getloadavg()[0], "")
    empty_mib = {role: _resident_mib(installation, role) for role in ("metadata", "frontend")}
    with tempfile.NamedTemporaryFile("w+") as file:
        os.chmod(file.name, 0o666)
        _fill(installation, accounts, queues, large, file.name, report)
        filled = [Filled(*json.loads(line)) for line in file]
    _load(installation, queues, empty_mib["metadata"], report)
    _restart(installation, "frontend")
    first = _ask_cold(installation, filled[:COLD_REQUESTS], report)
    _sweep(installation, filled[COLD_REQUESTS:], empty_mib["frontend"], report)
    ratio = _create(installation, next(one for one in filled if one.queue.startswith(BIG)), report)
    report.add("load of the machine after", os.getloadavg()[0], "")
    return first < COLD_MS_MAX and ratio <= CREATE_RATIO_MAX


# --- rows ---


def _fill(installation: RunningInstallation, accounts: int, queues: int, large: int, path: str, report: Report) -> None:
    partition = _partition(installation)
    began_s = time.monotonic()
    installation.manage("shell", "-v", "0", "-c", FILL.format(path, 1, large, 0, partition) + "; print('{}')")
    small, each = accounts - 1, (queues - large) // max(accounts - 1, 1)
    step = max(1, FILL_QUEUES // each)
    for first in range(0, small, step):
        count = min(step, small - first)
        text = FILL.format(path, count, each, first + 1, partition)
        installation.manage("shell", "-v", "0", "-c", text + "; print('{}')")
    installation.manage("shell", "-v", "0", "-c", "from tests.api.measure_scale import analyse; analyse(); print('{}')")
    report.add("accounts, each with a key", accounts, "accounts")
    report.add("queues", large + small * each, "queues")
    report.add("rows written in", time.monotonic() - began_s, "s")


def _partition(installation: RunningInstallation) -> int:
    """Of a queue that was made as any other is."""
    with installation.rest() as rest:
        rest.post("/v1/queues", json={"name": "store"}).raise_for_status()
    said = installation.manage(
        "shell",
        "-v",
        "0",
        "-c",
        "from api.queues.models import Queue; print(Queue.objects.get(name='store').partitions)",
    )
    return int(said[0])


def fill(path: str, accounts: int, queues_each: int, first: int, partition: int) -> None:
    """Within the installation: so many accounts from number `first` on, each with a key and so many queues. Number 0 is
    the large one, which may have more than others."""
    from django.db import transaction

    with open(path, "a", encoding="ascii") as file:
        made = _accounts(accounts, first, queues_each, file)
        rows = ((account, number) for account in made for number in range(queues_each))
        while batch := list(itertools.islice(rows, FILL_BATCH)):
            with transaction.atomic():
                _queues(batch, partition)


def analyse() -> None:
    """As autovacuum does within a minute: what bulk loads leave behind is known to the planner."""
    from django.db import connection

    with connection.cursor() as cursor:
        for table in ("account", "access_key", "queue", "queue_data_key"):
            cursor.execute(f"ANALYZE {table}")


class _Account(NamedTuple):
    account_id: str
    account_key: bytes
    name: str


def _accounts(count: int, first: int, queues_each: int, file: Any) -> list[_Account]:
    from django.db import connection, transaction

    from api import clock
    from api.accounts.models import AccessKey, Account
    from api.changes import next_version
    from api.quotas.models import QuotaHolder
    from api.secrets import keyring, pepper
    from frontend.authn.tokens import hash_bearer_token, mint_key

    made: list[_Account] = []
    with transaction.atomic():
        now, version = clock.now(), next_version()
        accounts, keys = [], []
        for number in range(first, first + count):
            account_id = str(200_000_000_000 + number)
            name, account_key = (BIG if number == 0 else f"shop-{number}"), keyring().new_account_key(account_id)
            accounts.append(
                Account(id=account_id, name=name, account_key_wrapped=account_key, created_at=now, version=version)
            )
            key = mint_key()
            keys.append(
                AccessKey(
                    access_key_id=key.access_key_id, account_id=account_id, name="first", created_at=now,
                    secret_sealed=keyring().seal_secret(account_id, key.access_key_id, key.secret_access_key),
                    bearer_hash=hash_bearer_token(account_id, key.bearer_token, pepper()), version=version,
                )
            )  # fmt: skip
            told = Filled(account_id, key.bearer_token, f"{name}-{secrets.randbelow(queues_each):06}")
            file.write(json.dumps(told) + "\n")
            made.append(_Account(account_id, account_key, name))
        Account.objects.bulk_create(accounts, batch_size=5_000)
        AccessKey.objects.bulk_create(keys, batch_size=5_000)
        if first == 0:
            given = {"queues": queues_each * 10}
            QuotaHolder.objects.create(holder=made[0].account_id, given=given, changed_at=now, version=version)
    assert connection.connection is not None
    return made


def _queues(batch: list[tuple[_Account, int]], partition: int) -> None:
    """Rows of queues that are ready, and their data keys."""
    from django.db import connection

    from api import clock
    from api.changes import DATA_KEYS, next_version
    from api.queues.attributes import defaults_of
    from api.queues.models import QueueStatus
    from api.secrets import keyring

    now, version, far = clock.now(), next_version(), datetime(9999, 1, 1, tzinfo=UTC)
    attributes = json.dumps(defaults_of("any"))
    queues, data_keys = [], []
    with connection.cursor() as cursor:
        cursor.execute(
            "SELECT nextval(pg_get_serial_sequence('queue', 'id')), nextval(%s) FROM generate_series(1, %s)",
            (DATA_KEYS, len(batch)),
        )
        for (account, number), (queue_id, key_version) in zip(batch, cursor.fetchall(), strict=True):
            queue_uuid = uuid.uuid4()
            queues.append(
                (queue_id, account.account_id, f"{account.name}-{number:06}", queue_uuid, attributes, "{}", False, "",
                 "", "[]", QueueStatus.ACTIVE.value, 1, 1, json.dumps([partition]), "[]", "[]", 1, now, now, far, False,
                 0, 0, "", version)
            )  # fmt: skip
            wrapped = keyring().new_data_key(account.account_id, account.account_key, queue_uuid.bytes, key_version)
            data_keys.append((queue_id, key_version, wrapped, 0))
        for statement, rows in ((_QUEUES, queues), (_DATA_KEYS, data_keys)):
            with cursor.copy(statement) as copy:
                for row in rows:
                    copy.write_row(row)


_QUEUES = """
COPY queue (id, account_id, name, uuid, attributes, tags, fifo, dead_letter_target, encryption_key, encryption_keys,
            state, generation, observed_generation, partitions, layout, retired, number_end, created_at, modified_at,
            next_attempt_at, shreds, retention_extra_ms, failures, last_error, version) FROM STDIN
"""
_DATA_KEYS = "COPY queue_data_key (queue_id, version, wrapped, sealed) FROM STDIN"


# --- the metadata service ---


def _load(installation: RunningInstallation, queues: int, empty_mib: float, report: Report) -> None:
    """Started again, it loads all there is; then it loses its connections, and catches up by the log of changes."""
    began_s = time.monotonic()
    _restart(installation, "metadata")
    wait_until(lambda: _metrics(installation).get("penstock_metadata_feed_live") == 1.0, LOAD_S_MAX, 0.2)
    report.add("metadata service: from its start until all is loaded", time.monotonic() - began_s, "s")
    held = _metrics(installation)
    report.add("  queues in its copy", held['penstock_metadata_records_held{kind="queue"}'], "queues")
    report.add("  copy is complete", held['penstock_metadata_copy_complete{kind="queue"}'], "")
    resident_mib = _resident_mib(installation, "metadata")
    report.add("  its memory", resident_mib, "MiB")
    report.add("  for 100,000 queues, accounts and keys included", (resident_mib - empty_mib) / queues * 100_000, "MiB")
    began_s = time.monotonic()
    looks = held["penstock_metadata_feed_live"], held["penstock_metadata_loads_total"]
    installation.manage("shell", "-v", "0", "-c", f"{_CUT_OFF}; print('{{}}')")
    wait_until(lambda: _metrics(installation).get("penstock_metadata_feed_live") == 1.0, LOAD_S_MAX, 0.05)
    report.add("  its connections cut off, until it hears changes again", time.monotonic() - began_s, "s")
    loads = _metrics(installation)["penstock_metadata_loads_total"] - looks[1]
    report.add("  loads that took", loads, "loads")


_CUT_OFF = (
    "from django.db import connection; "
    'connection.cursor().execute("SELECT pg_terminate_backend(pid) FROM pg_stat_activity '
    "WHERE application_name LIKE 'penstock-metadata%'\")"
)


def _metrics(installation: RunningInstallation) -> dict[str, float]:
    port = Installation(installation.data).load_state().ports["metadata-metrics"]
    try:
        text = httpx2.get(f"http://127.0.0.1:{port}/metrics", timeout=30).text
    except httpx2.HTTPError:
        return {}
    lines = (line.rpartition(" ") for line in text.splitlines() if line.startswith("penstock_metadata_"))
    return {name: float(value) for name, _, value in lines}


# --- the front end ---


def _ask_cold(installation: RunningInstallation, accounts: list[Filled], report: Report) -> float:
    """The p99 of first requests, one after the other, each of an account that the front end has not heard of."""
    _send(installation, next(iter(accounts[-1:])))
    times_ms = []
    for one in accounts[:-1]:
        began_s = time.perf_counter()
        _send(installation, one)
        times_ms.append(1_000 * (time.perf_counter() - began_s))
    warm_ms = []
    for one in accounts[:-1]:
        began_s = time.perf_counter()
        _send(installation, one)
        warm_ms.append(1_000 * (time.perf_counter() - began_s))
    for name, found in (("first", times_ms), ("second", warm_ms)):
        report.add(f"{name} request of an account, a send: p50", percentile(found, 50), "ms")
        report.add(f"{name} request of an account, a send: p99", percentile(found, 99), "ms")
    return percentile(times_ms, 99)


def _send(
    installation: RunningInstallation, account: Filled, connection: http.client.HTTPConnection | None = None
) -> None:
    """On a new connection unless one is given."""
    used = connection or _connect(installation)
    headers = {"Authorization": f"Bearer {account.bearer_token}", "Content-Type": "application/json"}
    used.request("POST", f"/v1/queues/{account.queue}/messages", b'{"body": "hello"}', headers)
    answer = used.getresponse()
    text = answer.read()
    assert answer.status in (200, 201, 202), (answer.status, text[:300])
    if connection is None:
        used.close()


def _connect(installation: RunningInstallation) -> http.client.HTTPConnection:
    address = urlsplit(installation.key["endpoint"])
    return http.client.HTTPConnection(str(address.hostname), address.port, timeout=60)


def _sweep(installation: RunningInstallation, accounts: list[Filled], empty_mib: float, report: Report) -> None:
    """One request of each of many accounts: what a front end keeps of them is bounded by its caches."""
    ends_s = time.monotonic() + SWEEP_S_MAX
    asked = min(SWEPT, len(accounts))
    steps = [accounts[at : at + QUEUES_CACHED_MAX // 2] for at in range(0, asked, QUEUES_CACHED_MAX // 2)]
    report.add("front end, started: memory", empty_mib, "MiB")
    done, began_s = 0, time.monotonic()
    for step in steps:
        with ThreadPoolExecutor(SWEEPERS) as sweepers:
            done += sum(sweepers.map(lambda part: _send_all(installation, part, ends_s), _parts(step)))
        resident_mib = _resident_mib(installation, "frontend")
        report.add(f"  after one send to each of {done:,} queues of as many accounts", resident_mib, "MiB")
        if time.monotonic() > ends_s:
            break
    report.add("  first requests, several at a time", done / (time.monotonic() - began_s), "1/s")


def _parts(accounts: list[Filled]) -> Iterator[list[Filled]]:
    return (accounts[at::SWEEPERS] for at in range(SWEEPERS))


def _send_all(installation: RunningInstallation, accounts: list[Filled], ends_s: float) -> int:
    """To how many, until the time is over."""
    connection, done = _connect(installation), 0
    for one in itertools.takewhile(lambda _: time.monotonic() < ends_s, accounts):
        _send(installation, one, connection)
        done += 1
    connection.close()
    return done


# --- CreateQueue ---


def _create(installation: RunningInstallation, large: Filled, report: Report) -> float:
    """Time in the large account by that in an account without queues, medians; they take turns. Its
    transaction alone is told besides."""
    empty = Filled("", installation.key["bearer_token"], "")
    took_ms: dict[str, list[float]] = {"empty": [], "large": []}
    for number in range(CREATES):
        sides = [("empty", empty), ("large", large)]
        for name, account in sides if number % 2 else reversed(sides):
            headers = {"Authorization": f"Bearer {account.bearer_token}"}
            with httpx2.Client(base_url=installation.key["endpoint"], headers=headers, timeout=30) as rest:
                began_s = time.perf_counter()
                rest.post("/v1/queues", json={"name": f"new-{number}"}).raise_for_status()
                took_ms[name].append(1_000 * (time.perf_counter() - began_s))
    for name, found in took_ms.items():
        report.add(f"CreateQueue, account {name}: median of {CREATES}", statistics.median(found), "ms")
    count = 100
    said = installation.manage(
        "shell",
        "-v",
        "0",
        "-c",
        f"from tests.api.measure_scale import create_rows; create_rows({count}, {large.account_id!r})",
    )
    for name, found in said.items():
        report.add(f"  its transaction alone, account {name}: median of {count}", statistics.median(found), "ms")
    of_rows = statistics.median(said["large"]) / statistics.median(said["empty"])
    ratio = statistics.median(took_ms["large"]) / statistics.median(took_ms["empty"])
    report.add("  large by empty: call, transaction", ratio, f"and {of_rows:.2f}")
    return ratio


def create_rows(count: int, large_id: str) -> None:
    """Within the installation: CreateQueue without HTTP and without the worker's part."""
    from api.accounts.models import Account
    from api.audit.actions import OPERATOR
    from api.queues import actions

    actions.send_hint = lambda *_: None
    empty_id = Account.objects.get(name="tests").pk
    took_ms: dict[str, list[float]] = {"empty": [], "large": []}
    for number in range(count):
        sides = [("empty", empty_id), ("large", large_id)]
        for name, account_id in sides if number % 2 else reversed(sides):
            began_s = time.perf_counter()
            actions.create_queue(OPERATOR, account_id, f"row-{number}", {}, {})
            took_ms[name].append(1_000 * (time.perf_counter() - began_s))
    print(json.dumps(took_ms))


# --- processes ---


def _restart(installation: RunningInstallation, role: str) -> None:
    """kill -9; the supervisor starts it again. Returns when it is healthy."""
    before = installation.kill(role)

    def is_back() -> bool:
        rows = installation.processes(role)
        return bool(rows) and rows[0]["pid"] not in (None, 0, before) and rows[0]["health"] in ("healthy", "ready")

    wait_until(is_back, LOAD_S_MAX, 0.1)


def _resident_mib(installation: RunningInstallation, role: str) -> float:
    return sum(psutil.Process(row["pid"]).memory_info().rss for row in installation.processes(role)) / 2**20


if __name__ == "__main__":
    sys.exit(main())
