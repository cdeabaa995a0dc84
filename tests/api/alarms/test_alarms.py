"""Alarms: made over REST, judged once a period from the series, noted, mailed, muted."""

from __future__ import annotations

from datetime import datetime, timedelta
from smtplib import SMTPRecipientsRefused
from typing import Any

import pytest
from django.core import mail

from api import clock
from api.alarms import actions, limits, selectors
from api.alarms.models import AlarmEvent, MetricAlarm
from api.audit.models import AuditEntry
from api.queues.models import Queue, QueueStatus
from api.series.collecting import minute_of
from api.series.models import SeriesClock, SeriesCoverage, SeriesMinute
from tests.api.billing.usage import make_queue
from tests.support.control_plane import Caller, new_caller
from workers.series.alarms import judge_alarms, mail_alarms

pytestmark = pytest.mark.django_db
RULE = {"queue": "orders", "metric": "NumberOfMessagesSent", "threshold": 10, "mail_to": ["On-Call@example.com"]}


@pytest.fixture
def orders(caller: Caller) -> Any:
    return Queue.objects.get(uuid=make_queue(caller.account_id, "orders"))


def put(caller: Caller, name: str = "busy", **given: Any) -> Any:
    return caller.request("PUT", f"/v1/alarms/{name}", {**RULE, **given})


def know(now: datetime, minutes: int = 60) -> None:
    """The series are complete up to now."""
    SeriesClock.objects.update_or_create(pk=1, defaults={"complete_at": now})
    SeriesCoverage.objects.bulk_create(
        [SeriesCoverage(minutes=1, at=minute_of(now) - timedelta(minutes=back), covered=1) for back in range(minutes)],
        ignore_conflicts=True,
    )


def sent(queue: Queue, now: datetime, back: int, amount: int) -> None:
    at = minute_of(now) - timedelta(minutes=back)
    SeriesMinute.objects.update_or_create(
        account_id=queue.account_id, queue_uuid=queue.uuid, at=at, defaults={"messages_sent": amount}
    )


def state_of(caller: Caller, name: str = "busy") -> str:
    found: str = caller.request("GET", f"/v1/alarms/{name}").json()["state"]
    return found


def test_alarm_goes_off_once_is_mailed_once_and_ends(caller: Caller, orders: Queue) -> None:
    assert put(caller).status_code == 201 and state_of(caller) == "INSUFFICIENT_DATA"
    now = clock.now()
    know(now)
    sent(orders, now, 1, 12)
    assert judge_alarms() == 1 and judge_alarms() == 0
    assert state_of(caller) == "ALARM"
    assert mail_alarms() == 1 and mail_alarms() == 0
    (written,) = mail.outbox
    assert (written.subject, written.to) == ("ALARM: busy", ["on-call@example.com"])
    assert "Queue: orders" in written.body and "the last value is 12" in written.body
    sent(orders, now, 1, 0)
    MetricAlarm.objects.update(judged_up_to=None, next_at=now)
    judge_alarms()
    assert state_of(caller) == "OK"
    events = caller.request("GET", "/v1/alarm-events?alarm=busy").json()["events"]
    assert [(event["before"], event["state"]) for event in events] == [
        ("ALARM", "OK"), ("INSUFFICIENT_DATA", "ALARM"),
    ]  # fmt: skip


def test_period_that_is_not_over_is_not_judged(caller: Caller, orders: Queue) -> None:
    put(caller)
    now = clock.now()
    know(now)
    sent(orders, now, 0, 99)
    judge_alarms()
    assert state_of(caller) == "OK"


def test_series_that_stand_still_are_no_data_after_a_while(caller: Caller, orders: Queue) -> None:
    put(caller)
    now = clock.now()
    know(now)
    judge_alarms()
    assert state_of(caller) == "OK"
    later = now + timedelta(seconds=limits.ALARM_WAIT_S + 120)
    assert selectors.judged_until(now + timedelta(seconds=60)) == now, "a look that is late is waited for"
    until = selectors.judged_until(later)
    (alarm,) = selectors.alarms_due(until)
    actions.note_values(alarm, *selectors.values_of(alarm, until, later), later)
    assert state_of(caller) == "INSUFFICIENT_DATA"


def test_period_is_judged_once_whichever_worker_does_it(caller: Caller, orders: Queue) -> None:
    put(caller)
    now = clock.now()
    know(now)
    alarm, until = MetricAlarm.objects.get(), selectors.judged_until(now)
    end, values = selectors.values_of(alarm, until, now)
    assert actions.note_values(alarm, end, values, now) and not actions.note_values(alarm, end, [99.0], now)
    assert AlarmEvent.objects.count() == 1


def test_muted_alarm_is_noted_and_not_mailed(caller: Caller, orders: Queue) -> None:
    put(caller)
    now = clock.now()
    until = (now + timedelta(hours=1)).isoformat()
    assert caller.request("PUT", "/v1/alarms/busy/mute", {"until": until}).json()["muted_until"]
    know(now)
    judge_alarms()
    assert mail_alarms() == 0 and not mail.outbox
    assert AlarmEvent.objects.get().not_mailed == actions.MUTED
    assert caller.request("PUT", "/v1/alarms/busy/mute", {"until": None}).json()["muted_until"] is None
    for wrong in (now - timedelta(hours=1), now + timedelta(days=limits.ALARM_MUTE_DAYS_MAX + 1)):
        assert caller.request("PUT", "/v1/alarms/busy/mute", {"until": wrong.isoformat()}).status_code == 400


def test_alarms_that_change_all_the_time_write_so_many_mails_an_hour(
    caller: Caller, orders: Queue, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(limits, "ALARM_MAILS_PER_HOUR_MAX", 2)
    for name in ("one", "two", "three"):
        put(caller, name)
    know(clock.now())
    judge_alarms()
    assert mail_alarms() == 2
    assert sorted(event.not_mailed for event in AlarmEvent.objects.all()) == ["", "", actions.TOO_MANY]


def test_mail_that_is_not_taken_comes_again(caller: Caller, orders: Queue, monkeypatch: pytest.MonkeyPatch) -> None:
    put(caller)
    know(clock.now())
    judge_alarms()

    def fail(*given: object) -> None:
        raise ConnectionRefusedError

    with monkeypatch.context() as patch:
        patch.setattr("workers.series.alarms.send_alarm_mail", fail)
        assert mail_alarms() == 0
    assert mail_alarms() == 1


@pytest.mark.parametrize(
    ("error", "is_given_up"),
    [
        (SMTPRecipientsRefused({"a@example.com": (550, b"no such mailbox")}), True),
        (SMTPRecipientsRefused({"a@example.com": (450, b"later")}), False),
        (ValueError("no header"), True),
    ],
)
def test_mail_that_cannot_be_sent_holds_up_no_other_and_is_given_up(
    caller: Caller, orders: Queue, monkeypatch: pytest.MonkeyPatch, error: Exception, is_given_up: bool
) -> None:
    for name in ("one", "two"):
        put(caller, name)
    know(clock.now())
    judge_alarms()

    def fail_first(event: AlarmEvent, queue: str) -> None:
        if event.alarm_name == "one":
            raise error

    monkeypatch.setattr("workers.series.alarms.send_alarm_mail", fail_first)
    assert mail_alarms() == 1
    event = AlarmEvent.objects.get(alarm_name="one")
    assert (event.mailed_at is not None, event.not_mailed) == (is_given_up, actions.REFUSED if is_given_up else "")


@pytest.mark.parametrize(
    "wrong",
    [
        {"queue": "other"}, {"metric": "CPUUtilization"}, {"statistic": "Maximum"}, {"period_s": 90},
        {"period_s": 7200}, {"threshold": "10"}, {"threshold": 1e300}, {"periods": 0}, {"periods": 2, "breaching": 3},
        {"threshold": 10**400},
        {"period_s": 3600, "periods": 25}, {"mail_to": ["no address"]}, {"mail_to": ["a@example.com"] * 11},
        {"mail_to": ['"\x0bBcc:x"@example.com']},
        {"comparison": "Equal"}, {"webhook": "https://example.com"},
    ],
)  # fmt: skip
def test_alarm_that_makes_no_sense_is_refused(caller: Caller, orders: Queue, wrong: dict[str, Any]) -> None:
    assert put(caller, **wrong).status_code == 400
    assert not MetricAlarm.objects.exists()


def test_name_of_an_alarm_is_one_of_a_path(caller: Caller, orders: Queue) -> None:
    assert put(caller, "a" * (limits.ALARM_NAME_CHARACTERS_MAX + 1)).status_code == 400
    for wrong in ("a%0Ab", "a%20b", "a..b", ".a"):
        assert put(caller, wrong).status_code == 400
    assert put(caller, "orders.fifo-backlog").status_code == 201


def test_account_has_so_many_alarms(caller: Caller, orders: Queue, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "ALARMS_PER_ACCOUNT_MAX", 1)
    assert [put(caller, name).status_code for name in ("one", "one", "two")] == [201, 200, 409]


def test_alarms_of_another_account_are_not_found(caller: Caller, orders: Queue) -> None:
    put(caller)
    know(clock.now())
    judge_alarms()
    stranger = new_caller("stranger")
    for method, path, content in (
        ("GET", "/v1/alarms/busy", None), ("DELETE", "/v1/alarms/busy", None),
        ("PUT", "/v1/alarms/busy/mute", {"until": None}),
    ):  # fmt: skip
        assert stranger.request(method, path, content).status_code == 404
    assert stranger.request("GET", "/v1/alarms").json() == {"alarms": []}
    assert stranger.request("GET", "/v1/alarm-events").json() == {"events": []}
    assert put(stranger).status_code == 400, "there is no such queue"


def test_changes_stand_in_the_audit_trail_and_the_history_outlives_the_alarm(caller: Caller, orders: Queue) -> None:
    put(caller)
    know(clock.now())
    judge_alarms()
    assert caller.request("DELETE", "/v1/alarms/busy").status_code == 204
    assert caller.request("GET", "/v1/alarms/busy").status_code == 404
    found = set(AuditEntry.objects.filter(subject="alarm:busy").values_list("action", flat=True))
    assert found == {"alarm.put", "alarm.delete"}
    ended = AuditEntry.objects.get(action="alarm.delete").details["before"]
    assert (ended["threshold"], ended["mail_to"]) == (10, ["on-call@example.com"])
    assert len(caller.request("GET", "/v1/alarm-events").json()["events"]) == 1
    actions.remove_old_events(clock.now() + timedelta(days=limits.ALARM_EVENTS_KEPT_DAYS + 1))
    assert not AlarmEvent.objects.exists()


def test_trail_has_what_an_alarm_was_and_where_the_change_came_from(caller: Caller, orders: Queue) -> None:
    near = caller._replace(source_ip="192.0.2.7")
    put(near)
    until = (clock.now() + timedelta(hours=1)).isoformat()
    assert near.request("PUT", "/v1/alarms/busy/mute", {"until": until}).status_code == 200
    assert near.request("PUT", "/v1/alarms/busy/mute", {"until": None}).status_code == 200
    put(near, threshold=11)
    made, muted, loud, changed = AuditEntry.objects.filter(subject="alarm:busy").order_by("pk")
    assert "before" not in made.details and made.details["threshold"] == 10
    assert (muted.details["before"], loud.details["before"]) == (None, until)
    assert (changed.details["before"]["threshold"], changed.details["threshold"]) == (10, 11)
    assert {entry.details["source"] for entry in (made, muted, loud, changed)} == {"192.0.2.7"}


def test_alarm_is_set_on_the_queue_that_has_the_name_now(caller: Caller, orders: Queue) -> None:
    Queue.objects.filter(pk=orders.pk).update(state=QueueStatus.KEPT, kept_until=clock.now())
    assert put(caller).status_code == 400, "a deleted queue that is kept has no name"
    live = make_queue(caller.account_id, "orders")
    assert put(caller).status_code == 201
    assert MetricAlarm.objects.get().queue_uuid == live


def test_values_that_were_read_for_the_alarm_as_it_was_do_not_judge_the_changed_one(
    caller: Caller, orders: Queue
) -> None:
    put(caller, threshold=1000)
    now = clock.now()
    know(now)
    sent(orders, now, 1, 500)
    read = MetricAlarm.objects.get()
    end, values = selectors.values_of(read, selectors.judged_until(now), now)
    put(caller, metric="NumberOfMessagesDeleted", threshold=10)
    assert not actions.note_values(read, end, values, now)
    assert state_of(caller) == "INSUFFICIENT_DATA", "500 were sent, and deletes are asked for now"


@pytest.mark.parametrize(("missing", "state"), [("missing", "INSUFFICIENT_DATA"), ("breaching", "ALARM")])
def test_alarm_of_a_deleted_queue_has_no_values(caller: Caller, orders: Queue, missing: str, state: str) -> None:
    put(caller, comparison="LessThanThreshold", missing=missing)
    know(clock.now())
    Queue.objects.filter(pk=orders.pk).update(state=QueueStatus.KEPT, kept_until=clock.now())
    assert judge_alarms() == 1 and state_of(caller) == state
