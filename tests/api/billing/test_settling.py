"""Rollups come in once, whatever is repeated; what cannot be billed is kept with its reason. On a real PostgreSQL."""

from __future__ import annotations

import uuid
from datetime import timedelta

import pytest
from django.utils import timezone

from api.billing import limits
from api.billing.actions.invoices import BILLING, issue_invoice
from api.billing.errors import BillingError
from api.billing.management.commands.billing_report import quarantine_report
from api.billing.models import FillLedger, HourlyUsage, QuarantinedUsage
from api.billing.pricing.meters import COUNTER_NAMES
from api.billing.pricing.periods import HOUR, Interval, floor_hour
from api.billing.quarantine import Quarantined, note_quarantined
from api.billing.selectors import settled_up_to
from api.billing.settling import SettledRun, SettlingError, begin_run, settle
from tests.api.billing.usage import (
    MONTH,
    MONTH_HOURS,
    PERIOD,
    QUEUE,
    hours,
    make_queue,
    month_hour,
    open_since,
    row,
    settle_rows,
)
from tests.support.control_plane import Caller
from workers.spark_jobs.limits import COUNTER_MAX

pytestmark = pytest.mark.django_db


def reasons() -> dict[str, bool]:
    """Reason to whether it is resolved."""
    return {one.reason: one.resolved_at is not None for one in QuarantinedUsage.objects.all()}


def test_run_that_is_repeated_changes_nothing(caller: Caller) -> None:
    rows = [row(caller.account_id, messages_sent=3), row(caller.account_id, origin="desk", messages_sent=1)]
    assert settle_rows(rows) == SettledRun(2, 0, 0)
    assert settle_rows(rows) == SettledRun(0, 0, 0)
    assert [(one.origin, one.messages_sent) for one in HourlyUsage.objects.order_by("origin")] == [
        ("client", 3),
        ("desk", 1),
    ]


def test_row_replaces_what_its_key_had_and_never_adds(caller: Caller) -> None:
    settle_rows([row(caller.account_id, messages_sent=3)])
    assert settle_rows([row(caller.account_id, messages_sent=5)]).merged == 1
    assert HourlyUsage.objects.get().messages_sent == 5


def test_row_given_twice_in_a_run_counts_once(caller: Caller) -> None:
    assert settle_rows([row(caller.account_id, messages_sent=3)] * 2) == SettledRun(1, 0, 0)


def test_run_that_crashed_left_nothing_and_its_hours_are_still_to_be_done(caller: Caller) -> None:
    run = uuid.uuid4()

    def broken() -> object:
        yield row(caller.account_id, messages_sent=3)
        raise OSError("the disk went away")

    with pytest.raises(OSError, match="disk"):
        settle(run, hours(0, 2), broken())  # type: ignore[arg-type]
    assert HourlyUsage.objects.count() == 0
    assert set(FillLedger.objects.values_list("run", "state")) == {(run, "started")}
    assert settled_up_to() is None
    again = uuid.uuid4()
    settle(again, hours(0, 2), [row(caller.account_id, messages_sent=3)])
    assert set(FillLedger.objects.values_list("run", "state", "times_done")) == {(again, "done", 1)}
    assert HourlyUsage.objects.get().messages_sent == 3


def test_settled_ends_at_the_first_hour_that_is_not_done(caller: Caller) -> None:
    settle_rows([], 0, 3)
    settle_rows([], 4, 2)
    assert settled_up_to() == month_hour(3)
    settle_rows([], 3, 1)
    assert settled_up_to() == month_hour(6)
    begin_run(uuid.uuid4(), hours(2, 1))
    assert settled_up_to() == month_hour(6), "an hour that is counted again stays settled"


def test_hours_that_are_not_done_at_the_beginning_are_not_passed_over(caller: Caller) -> None:
    open_since(caller.account_id, month_hour(0) + timedelta(minutes=59))
    begin_run(uuid.uuid4(), hours(0, 2))  # a run that crashed
    settle_rows([], 2, 4)
    assert settled_up_to() == month_hour(0)
    settle_rows([], 0, 1)
    assert settled_up_to() == month_hour(1)
    settle_rows([], 1, 1)
    assert settled_up_to() == month_hour(6)


def test_month_whose_last_hours_alone_are_settled_is_not_issued(caller: Caller) -> None:
    open_since(caller.account_id)
    settle_rows([row(caller.account_id, MONTH_HOURS - 1, sent_units=5_000_000)], MONTH_HOURS - 2, 10)
    with pytest.raises(BillingError, match="Usage is settled up to"):
        issue_invoice(BILLING, caller.account_id, PERIOD)
    settle_rows([], 0, MONTH_HOURS - 2)
    assert settled_up_to() == month_hour(MONTH_HOURS + 8)
    assert issue_invoice(BILLING, caller.account_id, PERIOD) is not None


def test_without_an_account_the_hours_count_from_the_first_one_that_is_done() -> None:
    assert settled_up_to() is None
    settle_rows([], 3, 2)
    assert settled_up_to() == month_hour(5)


def test_hours_settled_before_there_was_an_account_hold_nothing_up(caller: Caller) -> None:
    """Nobody settles what lies between them and the first account."""
    early = MONTH - timedelta(days=400)
    settle(uuid.uuid4(), Interval(early, early + HOUR), [])
    settle_rows([], 0, 3)
    assert settled_up_to() == month_hour(3)
    open_since(caller.account_id, early)
    assert settled_up_to() == early + HOUR, "an account was open in the gap"


def test_recount_removes_what_is_not_among_its_rows(caller: Caller) -> None:
    other = uuid.UUID(int=8)
    first, last = row(caller.account_id), row(caller.account_id, hour=1)
    settle_rows([first, row(caller.account_id, queue_uuid=other), last], 0, 2)
    assert settle_rows([row(caller.account_id, queue_uuid=other)], recount=True) == SettledRun(0, 1, 0)
    assert set(HourlyUsage.objects.values_list("queue_uuid", "hour")) == {
        (other, month_hour(0)),
        (QUEUE, month_hour(1)),
    }


def test_row_of_an_hour_that_is_done_is_late_and_merged(caller: Caller) -> None:
    settle_rows([], 0, 2)
    settle_rows([row(caller.account_id, hour=0, messages_sent=4)], 2, 1)
    assert HourlyUsage.objects.get().messages_sent == 4


BAD = {
    "negative_counter": {"messages_deleted": -1},
    "counter_too_large": {"sent_bytes": limits.HOUR_COUNTER_MAX + 1},
    "bad_partition": {"partition_id": -2},
    "unknown_origin": {"origin": "moon"},
    "hour_not_whole": {"hour": 0.5},
    "hour_in_future": {"hour": 20_000_000},
    "unknown_account": {"account_id": "999999999999"},
}


@pytest.mark.parametrize("reason", BAD)
def test_row_that_cannot_be_billed_is_kept_with_its_reason_and_the_rest_is_merged(caller: Caller, reason: str) -> None:
    given = dict(BAD[reason])
    if "hour" in given:
        given["hour"] = month_hour(0) + float(given["hour"]) * HOUR  # type: ignore[arg-type]
    bad = row(caller.account_id, messages_sent=9)._replace(**given)
    good = row(caller.account_id, queue_uuid=uuid.UUID(int=9), messages_sent=2)
    assert settle_rows([bad, good]) == SettledRun(1, 0, 1)
    assert reasons() == {reason: False}
    assert HourlyUsage.objects.get().messages_sent == 2
    settle_rows([bad, good])
    assert QuarantinedUsage.objects.count() == 1, "the same record is one row"


TOO_LARGE = [("sent_units", 2**48 + 1), ("delivered_units", 10**60), ("messages_sent", 2**63), ("requests", 2**64),
             ("stored_byte_ms", limits.HOUR_STORED_BYTE_MS_MAX + 1), ("stored_byte_ms", 10**37)]  # fmt: skip


@pytest.mark.parametrize(("counter", "figure"), TOO_LARGE)
def test_figure_that_no_hour_has_keeps_no_month_from_being_issued(caller: Caller, counter: str, figure: int) -> None:
    open_since(caller.account_id)
    bad = row(caller.account_id, queue_uuid=uuid.UUID(int=9))._replace(**{counter: figure})
    good = row(caller.account_id, sent_units=2_000_000)
    assert settle_rows([bad, good], 0, MONTH_HOURS + 6) == SettledRun(1, 0, 1)
    assert reasons() == {"counter_too_large": False}
    invoice = issue_invoice(BILLING, caller.account_id, PERIOD)
    assert invoice is not None and invoice.number and invoice.total_minor == 40, "the rest is billed"
    report = quarantine_report(PERIOD, caller.account_id)
    assert report["counts"] == [{"reason": "counter_too_large", "records": 1}]
    assert [one["record"][counter] for one in report["records"]] == [figure]


def test_greatest_figures_of_an_hour_are_billed(caller: Caller) -> None:
    open_since(caller.account_id)
    most = dict.fromkeys(COUNTER_NAMES, limits.HOUR_COUNTER_MAX) | {"stored_byte_ms": limits.HOUR_STORED_BYTE_MS_MAX}
    assert settle_rows([row(caller.account_id, **most)], 0, MONTH_HOURS + 6) == SettledRun(1, 0, 0)
    assert issue_invoice(BILLING, caller.account_id, PERIOD) is not None
    assert limits.HOUR_COUNTER_MAX == COUNTER_MAX, "what the pipeline takes is not refused by the merge"


def test_account_id_with_a_nul_is_unknown(caller: Caller) -> None:
    assert settle_rows([row("0\0" + caller.account_id[2:])]).quarantined == 1


def test_queue_of_another_account_is_refused(caller: Caller) -> None:
    from tests.support.control_plane import new_caller

    other = new_caller("another")
    queue_uuid = make_queue(caller.account_id, "orders")
    rows = [row(one, queue_uuid=queue_uuid) for one in (other.account_id, caller.account_id)]
    assert settle_rows(rows) == SettledRun(1, 0, 1)
    assert reasons() == {"queue_of_another_account": False}


def test_hour_in_which_the_account_was_not_open_is_kept_aside(caller: Caller) -> None:
    from api.people.models import AccountLife, AccountState

    open_since(caller.account_id, month_hour(2) + timedelta(minutes=59))
    since = month_hour(4) + timedelta(minutes=1)
    AccountLife.objects.create(account_id=caller.account_id, title="t", state=AccountState.CLOSED, state_since=since)
    rows = [row(caller.account_id, hour) for hour in range(1, 6)]
    assert settle_rows(rows, 0, 6) == SettledRun(3, 0, 2)
    kept = {one.hour: one.reason for one in QuarantinedUsage.objects.all()}
    assert kept == {month_hour(1): "hour_before_account", month_hour(5): "account_closed"}


def test_rows_of_one_key_that_contradict_each_other_are_both_kept_aside(caller: Caller) -> None:
    one, other = row(caller.account_id, messages_sent=1), row(caller.account_id, messages_sent=2)
    assert settle_rows([one, other]) == SettledRun(0, 0, 2)
    assert reasons() == {"conflicting_duplicate": False}


def test_row_of_all_partitions_and_one_of_a_partition_are_never_both_counted(caller: Caller) -> None:
    part, whole = row(caller.account_id, sent_units=3), row(caller.account_id, partition_id=0, sent_units=5)
    front_ends = row(caller.account_id, partition_id=-1, requests=7)
    assert settle_rows([part, whole, front_ends]) == SettledRun(1, 0, 2)
    assert reasons() == {"counted_twice": False}
    for first, second in ((part, whole), (whole, part)):
        assert settle_rows([first, front_ends], recount=True).quarantined == 0
        assert settle_rows([second]) == SettledRun(0, 0, 1), "beside what another run left there"
        assert set(HourlyUsage.objects.values_list("partition_id", flat=True)) == {first.partition_id, -1}


def test_good_row_resolves_the_bad_one_of_its_key(caller: Caller) -> None:
    settle_rows([row(caller.account_id, messages_sent=-1), row(caller.account_id, hour=1, messages_sent=-1)], 0, 2)
    settle_rows([row(caller.account_id, messages_sent=1)])
    assert {one.hour: one.resolved_at is None for one in QuarantinedUsage.objects.all()} == {
        month_hour(0): False,
        month_hour(1): True,
    }


def test_storage_of_petabytes_fits(caller: Caller) -> None:
    stored = 10 * 2**50 * 3_600_000
    settle_rows([row(caller.account_id, stored_byte_ms=stored)])
    assert int(HourlyUsage.objects.get().stored_byte_ms) == stored


def test_hours_that_make_no_sense_are_refused(caller: Caller) -> None:
    now = floor_hour(timezone.now())
    for wrong in (hours(1, 0), Interval(month_hour(0) + timedelta(minutes=1), month_hour(2)), Interval(now, now + HOUR),
                  hours(0, 366 * 24 + 1)):  # fmt: skip
        with pytest.raises(SettlingError):
            begin_run(uuid.uuid4(), wrong)
    assert FillLedger.objects.count() == 0


def test_what_the_pipeline_could_not_read_is_noted_once(caller: Caller) -> None:
    found = Quarantined("unknown_schema_version", "file x", {"offset": 7})
    assert note_quarantined(uuid.uuid4(), [found, found]) == 1
    note_quarantined(uuid.uuid4(), [found._replace(detail="file y")])
    assert [(one.reason, one.detail) for one in QuarantinedUsage.objects.all()] == [
        ("unknown_schema_version", "file y")
    ]


def test_many_rows_are_merged_in_one_run(caller: Caller) -> None:
    rows = [row(caller.account_id, queue_uuid=uuid.UUID(int=number), messages_sent=1) for number in range(1, 20_001)]
    assert settle_rows(rows).merged == 20_000
    assert settle_rows(rows, recount=True) == SettledRun(0, 0, 0)
