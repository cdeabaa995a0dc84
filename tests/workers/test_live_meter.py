"""The worker's side of the live meter: what the stream's end says, what a closing leaves out, when a look is due."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from types import SimpleNamespace
from typing import Any, cast

import msgspec
import pytest

from api import clock
from api.billing.models import MeterReading
from api.billing.pricing.meters import UsageMeter
from frontend.metering.request_counts import CountedHour, CountedRow
from frontend.usage_reports import request_record
from storage_nodes.client import StorageClient
from storage_nodes.protocol.records import decode_body
from storage_nodes.protocol.usage import Origin
from storage_nodes.protocol.usage_records import HOUR_MS, KIND_WINDOW, VERSION
from workers import limits
from workers.billing import rounds
from workers.storage import StorageThread
from workers.usage import meter_round, running, stream_tail
from workers.usage.__main__ import bring_up_to_now
from workers.usage.meter_round import MeterLook, is_due
from workers.usage.open_windows import what_is_missing
from workers.usage.running import RoundDone
from workers.usage.stream_tail import rows_of

HOUR = 496_000 * HOUR_MS
ACCOUNT = "123456789012"
QUEUE = b"q" * 16


def window(
    sent: int,
    until_ms: int = HOUR_MS,
    hour_ms: int = HOUR,
    origin: int = Origin.CLIENT,
    stored: int = 0,
    account: str = ACCOUNT,
    cluster: str = "one",
    level: int = 0,
) -> bytes:
    row = [cluster, 7, account, QUEUE, hour_ms, hour_ms + until_ms, False, stored, level]
    return bytes((VERSION, KIND_WINDOW)) + msgspec.msgpack.encode(
        [*row, [[origin, sent, 0, 0, 0, 0, 0, sent * 10, 0, sent, 0]]]
    )


def figures(values: list[bytes], meter: UsageMeter = UsageMeter.MESSAGES_SENT) -> dict[str, int]:
    """By origin."""
    found: dict[str, int] = {}
    for row in rows_of(values, HOUR):
        found[row.origin] = found.get(row.origin, 0) + row.counters[list(UsageMeter).index(meter)]
    return found


def test_windows_of_one_hour_count_once_in_any_order() -> None:
    values = [window(3, 1000), window(9, 3000), window(5, 2000), window(9, 3000)]
    assert figures(values) == {"client": 9} == figures(values[::-1])


def test_what_is_stored_counts_once_however_many_origins_there_are() -> None:
    values = [window(3, origin=Origin.PUSH, stored=70)]
    assert figures(values, UsageMeter.STORED_BYTE_MS) == {"client": 70, "push": 0}
    assert figures(values) == {"client": 0, "push": 3}


@pytest.mark.parametrize(
    "value",
    [b"", b"\x09\x01\x90", window(-1), window(3, hour_ms=HOUR + 1), window(3, hour_ms=HOUR + 48 * HOUR_MS),
     window(1 << 50), window(3, origin=9), window(3, account="1" * 13), window(3, account="a\0"),
     window(3, cluster="\0"), window(3, until_ms=HOUR_MS + 1), window(3, until_ms=-1), window(3, stored=(1 << 63) - 1),
     window(3, level=1 << 41), window(3, level=-1)],
)  # fmt: skip
def test_record_that_is_not_sound_adds_nothing(value: bytes) -> None:
    assert sum(figures([value, window(1)]).values()) == 1


def test_reports_of_front_ends_are_requests() -> None:
    hour = CountedHour(HOUR)
    rows = ([CountedRow((ACCOUNT, QUEUE, "K"), (n, 1, n - 1, 3))] for n in (2, 5))
    early, late = (request_record(b"f" * 16, hour, one) for one in rows)
    (row,) = rows_of([decode_body(early).value, decode_body(late).value], HOUR)
    assert row.counters[-2:] == [5, 1] and row.shown == [4, 3] and row.source.endswith("/K")


def test_report_without_errors_is_read() -> None:
    content = [b"f" * 16, HOUR // HOUR_MS, HOUR, [[ACCOUNT, QUEUE, "K", 2, 1, 7]]]
    (row,) = rows_of([bytes((1, 2)) + msgspec.msgpack.encode(content)], HOUR)
    assert row.counters[-2:] == [2, 1] and row.shown == [7, 0]


def test_requests_that_were_only_refused_make_a_row_for_the_series() -> None:
    report = request_record(b"f" * 16, CountedHour(HOUR), [CountedRow((ACCOUNT, bytes(16), "K"), (0, 0, 7, 0))])
    (row,) = rows_of([decode_body(report).value], HOUR)
    assert not any(row.counters) and row.shown == [7, 0]


def test_report_of_now_judges_the_budgets_of_what_it_has_read(monkeypatch: pytest.MonkeyPatch) -> None:
    judged: list[set[str]] = []
    monkeypatch.setattr("workers.storage.storage", lambda: None)
    monkeypatch.setattr(meter_round, "look", lambda *given: MeterLook("", {ACCOUNT}, datetime.now(UTC)))
    monkeypatch.setattr(meter_round, "judge_spending", lambda accounts, is_late: judged.append(accounts))
    asked: list[Any] = []
    monkeypatch.setattr(running, "run_round", lambda *_, **given: asked.append(given) or RoundDone(0, ""))
    assert bring_up_to_now(0.0)["missing"] == "" and judged == [{ACCOUNT}]
    assert asked == [{"is_asked": True}], "what came late is settled, too"


class Log:
    """A stream of 20 records, one a page; the client of `read_tail`."""

    async def stream_read(self, partition: int, offset: int, limit_bytes: int) -> SimpleNamespace:
        return SimpleNamespace(batches=[bytes(1000)], next_offset=offset + 1, high_watermark=20)


async def test_tail_is_bounded_by_its_bytes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stream_tail, "records_of", lambda batch, start, end: [(start, 0, b"", window(1))])
    monkeypatch.setattr(limits, "METER_BYTES_MAX", 2500)
    tail = await stream_tail.read_tail(cast(StorageClient, Log()), 3, 0, HOUR)
    assert (tail.next_offset, tail.at_end) == (3, False)
    assert (await stream_tail.read_tail(cast(StorageClient, Log()), 3, 18, HOUR)).at_end


@pytest.mark.django_db
def test_look_that_reads_for_too_long_leaves_the_rest_to_the_next_one(monkeypatch: pytest.MonkeyPatch) -> None:
    now_s = [0.0]
    answers: list[Any] = ["", [3], stream_tail.Tail([], 5, False), stream_tail.Tail([], 9, False)]

    class Slow:
        """In the place of the storage thread: each call takes more than half of what all reads may."""

        def run(self, work: Any, timeout_s: float) -> Any:
            now_s[0] += limits.METER_READ_S_MAX * 0.6
            return answers.pop(0)

    monkeypatch.setattr(meter_round, "monotonic", lambda: now_s[0])
    found = meter_round.look(cast(StorageThread, Slow()))
    assert found.missing == meter_round.MORE and len(answers) == 1


@pytest.mark.django_db
def test_one_look_of_the_schedule_at_a_time(monkeypatch: pytest.MonkeyPatch) -> None:
    looks: list[int] = []

    def look(storage: object) -> MeterLook:
        looks.append(rounds.read_meter())
        return MeterLook("", {ACCOUNT}, clock.now())

    monkeypatch.setattr(rounds, "storage", lambda: None)
    monkeypatch.setattr(meter_round, "look", look)
    assert rounds.read_meter() == 1 and looks == [0]


def test_closing_names_what_it_may_lack() -> None:
    before = {1: (1, 4), 2: (2, 4), 3: (3, 4)}
    assert what_is_missing(before, before, set()) == ""
    assert "no leader" in what_is_missing(before, {**before, 2: (0, 0)}, set())
    assert "nodes 3" in what_is_missing(before, before, {3})
    assert "1 partitions changed" in what_is_missing(before, {**before, 2: (1, 5)}, set())
    assert what_is_missing(before, {1: (1, 4), 2: (2, 4), 9: (0, 0)}, {3}) == "", "gone, and new ones, tell nothing"


@pytest.mark.django_db
def test_look_that_took_long_leaves_the_nodes_their_time() -> None:
    now = clock.now()
    assert is_due(MeterReading(), now)
    slow = MeterReading(took_ms=1_000, ended_at=now - timedelta(seconds=6))
    assert not is_due(slow, now) and is_due(slow, now + timedelta(seconds=6))
    slower = MeterReading(took_ms=9_000, ended_at=now - timedelta(seconds=15))
    assert not is_due(slower, now) and is_due(slower, now + timedelta(seconds=6)), "budgets wait for it"
    assert is_due(MeterReading(took_ms=10_000, ended_at=now + timedelta(days=1)), now), "the clock was a day ahead"
