"""`python -m tests.console.measure [--queues N] [--messages N]`: how long pages take at the server, and what they cost.

A list of 10,000 queues, the message browser on 1,000,000 messages, and the overview that stays open, on an installation
of its own. Times are those of a client on the same machine, front end and control plane together. The queues beyond
the first page are rows without storage: the list reads rows, and counts the queues of one page alone.
"""

from __future__ import annotations

import argparse
import itertools
import json
import os
import re
import signal
import sys
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime
from typing import Any

import httpx2
import psutil

from benchmarks.report import Report, percentile
from tests.console.pictures import link_of, open_link_without_scripts
from tests.support.installation import RunningInstallation, running

ANSWER_MS_MAX = 300
ROUNDS = 100
# Of one page: a machine with much else to do gives fewer rounds.
PAGE_S_MAX = 12.0
FILL_S_MAX = 100.0
FILLERS = 4
BULK = 500
SHOWN_QUEUES = 50
DEEP_PAGES = 20
IDLE_S = 5.0
# How often an overview that stays open asks for its two parts.
ATTENTION_INTERVAL_S, TRAFFIC_INTERVAL_S = 15, 60
BIG = "a-big"
ADD_QUEUES = "from tests.console.measure import add_queues; add_queues('tests', {}); print('{{}}')"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--queues", type=int, default=10_000)
    parser.add_argument("--messages", type=int, default=1_000_000)
    options = parser.parse_args()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))  # the installation is stopped then, too
    report = Report("console")
    with running() as installation:
        is_quick = measure(installation, options.queues, options.messages, report)
    report.print()
    return 0 if is_quick else 1


def add_queues(account_name: str, count: int) -> None:
    """Within the installation: rows that look like queues which are ready."""
    import uuid

    from api import clock
    from api.accounts.models import Account
    from api.queues.attributes import defaults_of
    from api.queues.models import Queue, QueueStatus

    account, now = Account.objects.get(name=account_name), clock.now()
    teams = itertools.cycle(("checkout", "mail", "search"))
    names = (f"{team}-{number:05}" for team, number in zip(teams, range(count), strict=False))
    far = datetime(9999, 1, 1, tzinfo=UTC)
    Queue.objects.bulk_create(
        [
            Queue(
                account=account, name=name, uuid=uuid.uuid4(), attributes=defaults_of(name), tags={"team": name[:4]},
                state=QueueStatus.ACTIVE, observed_generation=1, created_at=now, modified_at=now, next_attempt_at=far,
                version=0,
            )
            for name in names
        ],
        batch_size=1_000,
    )  # fmt: skip


def measure(installation: RunningInstallation, queues: int, messages: int, report: Report) -> bool:
    """Is every page within the bound?"""
    report.add("load of the machine before", os.getloadavg()[0], "")
    _create_shown_queues(installation)
    installation.manage("shell", "-v", "0", "-c", ADD_QUEUES.format(max(queues - SHOWN_QUEUES, 0)))
    stored = _send(installation, messages)
    report.add("messages in one queue", stored, "messages")
    report.add("queues of the account", queues, "queues")
    with httpx2.Client(base_url=installation.key["endpoint"], follow_redirects=True, timeout=30) as client:
        first = open_link_without_scripts(client, link_of(installation, "--account", "tests"))
        pages = AccountPages(client, str(first.url.path))
        slowest_ms = max(_time(name, ask, report) for name, ask in pages.all())
        _cost(installation, pages, report)
    report.add("slowest p99", slowest_ms, f"ms of {ANSWER_MS_MAX}")
    report.add("load of the machine after", os.getloadavg()[0], "")
    return slowest_ms <= ANSWER_MS_MAX


class AccountPages:
    """`start` is the path of the account's first page."""

    def __init__(self, client: httpx2.Client, start: str) -> None:
        self._client, self._start = client, start

    def ask(self, path: str, says: str = "") -> str:
        answer = self._client.get(f"{self._start}{path}")
        assert answer.status_code == 200 and says in answer.text, (path, answer.status_code, answer.text[:500])
        return answer.text

    def all(self) -> Iterator[tuple[str, Callable[[], object]]]:
        yield "queues, first page", lambda: self.ask("queues", BIG)
        yield "queues, last page", lambda: self.ask("queues?sort=-name", "search-")
        yield "queues, page 20 by change", lambda: self.ask("queues?sort=-modified&page=20")
        yield "queues, searched", lambda: self.ask("queues?q=0042", "0042")
        yield "queues, paused ones", lambda: self.ask("queues?kind=paused")
        yield "queues, dead-letter queues", lambda: self.ask("queues?kind=dead-letter")
        shown = re.search(r'hx-get="[^"]*/(counts\?names=[^"]+)"', self.ask("queues"))
        assert shown is not None
        yield "counts of a page of queues", lambda: self.ask(shown[1], BIG)
        yield "go to a queue (Ctrl K)", lambda: self.ask("jump?q=0042", "0042")
        browser = f"queues/{BIG}/messages/list"
        yield "messages, first page", lambda: self.ask(browser, "order")
        deep = self._deep(browser)
        yield f"messages, page {DEEP_PAGES + 1}", lambda: self.ask(deep, "order")
        yield "messages, text that many have", lambda: self.ask(f"{browser}?text=c-7", "order")
        yield "page of the queue", lambda: self.ask(f"queues/{BIG}")
        yield "overview", lambda: self.ask("")
        yield "overview, what needs attention", lambda: self.ask("attention")
        yield "overview, traffic", lambda: self.ask("traffic")

    def _deep(self, path: str) -> str:
        """The address of a page far behind the first one, as the button of each page gives it."""
        at = path
        for _ in range(DEEP_PAGES):
            more = re.search(r'hx-get="[^"]*/messages/list\?([^"]+)"', self.ask(at))
            if more is None:
                return at
            at = f"{path}?{more[1].replace('&amp;', '&')}"
        return at


def _create_shown_queues(installation: RunningInstallation) -> None:
    with installation.rest() as rest:
        for name in (BIG, *(f"a-{number:02}" for number in range(1, SHOWN_QUEUES))):
            rest.post("/v1/queues", json={"name": name}).raise_for_status()


def _send(installation: RunningInstallation, count: int) -> int:
    """How many are stored: as many as were asked for, or as the time allows."""
    ends_s = time.monotonic() + FILL_S_MAX

    def fill(filler: int) -> int:
        sent = 0
        with installation.rest() as rest:
            for start in range(filler * BULK, count, FILLERS * BULK):
                if time.monotonic() > ends_s:
                    break
                numbers = range(start, min(start + BULK, count))
                messages = [{"body": json.dumps({"order": one, "customer": f"c-{one % 97}"})} for one in numbers]
                rest.post(f"/v1/queues/{BIG}/messages", json={"messages": messages}).raise_for_status()
                sent += len(messages)
        return sent

    with ThreadPoolExecutor(FILLERS) as fillers:
        return sum(fillers.map(fill, range(FILLERS)))


def _time(name: str, ask: Callable[[], object], report: Report) -> float:
    """p99 in milliseconds; the first request is not counted."""
    ask()
    times_ms: list[float] = []
    ends_s = time.monotonic() + PAGE_S_MAX
    while len(times_ms) < ROUNDS and time.monotonic() < ends_s:
        began_s = time.perf_counter()
        ask()
        times_ms.append(1_000 * (time.perf_counter() - began_s))
    report.add(f"{name}, p50 of {len(times_ms)}", percentile(times_ms, 50), "ms")
    report.add(f"{name}, p99", found := percentile(times_ms, 99), "ms")
    return found


def _cost(installation: RunningInstallation, pages: AccountPages, report: Report) -> None:
    """CPU of the front ends and storage nodes for an overview that stays open, beside what they use by themselves."""
    rows = [row for row in installation.processes() if row["role"] in ("frontend", "node")]
    processes = [psutil.Process(row["pid"]) for row in rows]
    idle_began = _spent_s(processes)
    time.sleep(IDLE_S)
    idle = (_spent_s(processes) - idle_began) / IDLE_S
    per_ask_s: dict[str, float] = {}
    for part in ("attention", "traffic"):
        began_s, spent = time.monotonic(), _spent_s(processes)
        for _ in range(ROUNDS):
            pages.ask(part)
        passed_s = time.monotonic() - began_s
        per_ask_s[part] = max(_spent_s(processes) - spent - idle * passed_s, 0.0) / ROUNDS
        report.add(f"CPU of the data plane for one look at {part}", 1_000 * per_ask_s[part], "ms")
    share = per_ask_s["attention"] / ATTENTION_INTERVAL_S + per_ask_s["traffic"] / TRAFFIC_INTERVAL_S
    report.add("an open overview, of one core of the data plane", 100 * share, "%")


def _spent_s(processes: list[Any]) -> float:
    return sum(sum(one.cpu_times()[:2]) for one in processes)


if __name__ == "__main__":
    sys.exit(main())
