"""Webhooks: made over REST, named by alarms, called in rounds, with shares, pauses and a bounded history."""

from __future__ import annotations

import json
from collections import Counter
from datetime import timedelta
from typing import Any

import pytest

from api import clock
from api.alarms.models import AlarmEvent, MetricAlarm
from api.audit.models import AuditEntry
from api.webhooks import actions, deliveries, limits
from api.webhooks.deliveries import CallOutcome, ClaimedDelivery
from api.webhooks.models import CallResult, DeliveryState, Webhook, WebhookDelivery
from tests.api.alarms.test_alarms import know, sent
from tests.api.billing.usage import make_queue
from tests.support.control_plane import Caller, new_caller
from workers.series.alarms import judge_alarms
from workers.webhooks.rounds import run_round

pytestmark = pytest.mark.django_db
URL = "https://hooks.example.com/T0/secret-part"
RULE = {"queue": "orders", "metric": "NumberOfMessagesSent", "threshold": 10, "webhooks": ["ops"]}


class Endpoints:
    """Stands for the network: what was called, and what is answered."""

    def __init__(self) -> None:
        self.called: list[ClaimedDelivery] = []
        self.answers = CallOutcome(CallResult.DELIVERED, 200, 7)

    async def __call__(self, claimed: ClaimedDelivery, signed_s: int) -> CallOutcome:
        self.called.append(claimed)
        return self.answers


@pytest.fixture
def endpoints() -> Endpoints:
    return Endpoints()


def put(caller: Caller, name: str = "ops", url: str = URL) -> Any:
    return caller.request("PUT", f"/v1/webhooks/{name}", {"url": url})


def listed(caller: Caller, name: str = "ops") -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = caller.request("GET", f"/v1/webhooks/{name}/deliveries").json()["deliveries"]
    return found


def begin(caller: Caller, amount: int = 1, name: str = "ops") -> None:
    webhook = Webhook.objects.get(account_id=caller.account_id, name=name)
    for _ in range(amount):
        assert deliveries.begin_delivery(webhook, "busy", {"type": "t"}, clock.now())


def test_alarm_that_goes_off_calls_its_webhook_once(caller: Caller, endpoints: Endpoints) -> None:
    from api.queues.models import Queue

    orders = Queue.objects.get(uuid=make_queue(caller.account_id, "orders"))
    secret = put(caller).json()["secret"]
    assert caller.request("PUT", "/v1/alarms/busy", RULE).json()["webhooks"] == ["ops"]
    now = clock.now()
    know(now)
    sent(orders, now, 1, 12)
    judge_alarms()
    assert run_round(endpoints) == 1 and run_round(endpoints) == 0
    (claimed,) = endpoints.called
    content = json.loads(claimed.body)
    assert (claimed.url, claimed.secrets, content["id"]) == (URL, (secret,), claimed.public_id)
    told = {name: content[name] for name in ("type", "alarm", "queue", "before", "state", "threshold")}
    assert told == {
        "type": "alarm.state_changed", "alarm": "busy", "queue": "orders", "before": "INSUFFICIENT_DATA",
        "state": "ALARM", "threshold": 10.0,
    }  # fmt: skip
    (shown,) = listed(caller)
    assert (shown["state"], shown["result"], shown["status_code"], shown["latency_ms"]) == (
        "delivered", "delivered", 200, 7,
    )  # fmt: skip
    assert shown["alarm"] == "busy" and shown["id"] == claimed.public_id


def test_muted_alarm_calls_nothing(caller: Caller, endpoints: Endpoints) -> None:
    make_queue(caller.account_id, "orders")
    put(caller)
    caller.request("PUT", "/v1/alarms/busy", RULE)
    until = (clock.now() + timedelta(hours=1)).isoformat()
    caller.request("PUT", "/v1/alarms/busy/mute", {"until": until})
    know(clock.now())
    judge_alarms()
    assert run_round(endpoints) == 0 and AlarmEvent.objects.get().not_called == "muted"


def test_secret_and_path_are_shown_once_and_sealed(caller: Caller) -> None:
    made = put(caller)
    secret = made.json()["secret"]
    assert made.status_code == 201 and secret.startswith("whsec_")
    again = put(caller, url=f"{URL}/2")
    assert again.status_code == 200 and again.json()["secret"] == ""
    for path in ("/v1/webhooks", "/v1/webhooks/ops"):
        text = caller.request("GET", path).content.decode()
        assert "https://hooks.example.com/..." in text and "secret" not in text
    row = Webhook.objects.get()
    assert secret.encode() not in bytes(row.secret_sealed) and b"secret-part" not in bytes(row.url_sealed)
    trail = str(list(AuditEntry.objects.filter(subject="webhook:ops").values_list("details", flat=True)))
    assert secret not in trail and "secret-part" not in trail


def test_sealed_secret_of_another_webhook_does_not_open(caller: Caller) -> None:
    put(caller)
    put(caller, "other")
    begin(caller)
    stolen = Webhook.objects.get(name="other")
    Webhook.objects.filter(name="ops").update(secret_sealed=bytes(stolen.secret_sealed))
    assert deliveries.claim_deliveries(clock.now(), 9, {}) == []


def test_old_secret_signs_beside_the_new_one_for_the_grace(caller: Caller) -> None:
    old = put(caller).json()["secret"]
    answer = caller.request("POST", "/v1/webhooks/ops/rotation", {"grace_seconds": 60})
    new = answer.json()["secret"]
    assert answer.status_code == 200 and new != old
    begin(caller, 2)
    now = clock.now()
    (claimed,) = deliveries.claim_deliveries(now, 1, {})
    assert claimed.secrets == (new, old)
    (later,) = deliveries.claim_deliveries(now + timedelta(seconds=61), 1, {})
    assert later.secrets == (new,)
    last = caller.request("POST", "/v1/webhooks/ops/rotation", {"grace_seconds": 0}).json()["secret"]
    WebhookDelivery.objects.all().delete()
    begin(caller)
    assert deliveries.claim_deliveries(clock.now(), 1, {})[0].secrets == (last,)


@pytest.mark.parametrize(
    "outcome",
    [CallOutcome(CallResult.TIMEOUT), CallOutcome(CallResult.STATUS, 500), CallOutcome(CallResult.STATUS, 302)],
)
def test_attempts_end_after_pauses_that_grow(caller: Caller, outcome: CallOutcome) -> None:
    put(caller)
    begin(caller)
    now, pauses = clock.now(), []
    for _ in range(limits.DELIVERY_ATTEMPTS_MAX):
        (claimed,) = deliveries.claim_deliveries(now, 1, {})
        assert deliveries.claim_deliveries(now, 1, {}) == []
        deliveries.note_outcome(claimed, outcome, now)
        due = WebhookDelivery.objects.get().next_at
        pauses.append(int((due - now).total_seconds()))
        now = due
    assert tuple(pauses[:-1]) == limits.DELIVERY_PAUSES_S == tuple(sorted(limits.DELIVERY_PAUSES_S))
    assert WebhookDelivery.objects.get().state == DeliveryState.FAILED
    assert deliveries.claim_deliveries(now + timedelta(days=1), 1, {}) == []


def test_endpoint_that_is_gone_is_not_called_again(caller: Caller, endpoints: Endpoints) -> None:
    put(caller)
    begin(caller)
    endpoints.answers = CallOutcome(CallResult.STATUS, 410)
    assert run_round(endpoints) == 1 and WebhookDelivery.objects.get().state == DeliveryState.FAILED


def test_call_that_breaks_fails_by_itself(caller: Caller) -> None:
    put(caller)
    begin(caller, 2)

    async def broken(claimed: ClaimedDelivery, signed_s: int) -> CallOutcome:
        raise RuntimeError

    assert run_round(broken) == 2
    assert {row.result for row in WebhookDelivery.objects.all()} == {CallResult.NO_ANSWER}


def test_claim_of_a_worker_that_died_is_given_to_another_and_its_outcome_is_too_late(caller: Caller) -> None:
    put(caller)
    begin(caller)
    now = clock.now()
    (lost,) = deliveries.claim_deliveries(now, 1, {})
    later = now + timedelta(seconds=limits.DELIVERY_CLAIM_S)
    (second,) = deliveries.claim_deliveries(later, 1, {})
    assert (lost.attempt, second.attempt, lost.public_id) == (1, 2, second.public_id)
    deliveries.note_outcome(lost, CallOutcome(CallResult.DELIVERED, 200), later)
    assert WebhookDelivery.objects.get().state == DeliveryState.WAITING
    WebhookDelivery.objects.update(attempts=limits.DELIVERY_ATTEMPTS_MAX)
    assert deliveries.end_lost_deliveries(later + timedelta(seconds=limits.DELIVERY_CLAIM_S)) == 1
    assert WebhookDelivery.objects.get().state == DeliveryState.FAILED


def test_account_has_no_more_places_than_its_share(caller: Caller) -> None:
    """However many deliveries of one account are due before, those of another one get a place."""
    put(caller)
    begin(caller, 40)
    neighbour = new_caller("neighbour")
    put(neighbour)
    begin(neighbour, 1)
    now = clock.now()
    claimed = deliveries.claim_deliveries(now, limits.CALLS_AT_ONCE_MAX, {})
    found = Counter(one.account_id for one in claimed)
    assert found == {caller.account_id: limits.CALLS_OF_ACCOUNT_MAX, neighbour.account_id: 1}
    assert deliveries.claim_deliveries(now, 9, {caller.account_id: limits.CALLS_OF_ACCOUNT_MAX}) == []
    assert len(deliveries.claim_deliveries(now, 9, {caller.account_id: limits.CALLS_OF_ACCOUNT_MAX - 1})) == 1


def test_webhook_is_called_so_often_an_hour(caller: Caller, monkeypatch: pytest.MonkeyPatch) -> None:
    make_queue(caller.account_id, "orders")
    put(caller)
    caller.request("PUT", "/v1/alarms/busy", RULE)
    monkeypatch.setattr(limits, "DELIVERIES_PER_HOUR_MAX", 2)
    begin(caller, 2)
    assert caller.request("POST", "/v1/webhooks/ops/test").status_code == 409
    know(clock.now())
    judge_alarms()
    assert AlarmEvent.objects.get().not_called == "too many calls" and WebhookDelivery.objects.count() == 2


def test_webhook_that_is_created_again_is_not_tested_more_often(
    caller: Caller, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(actions, "_TESTS", actions._TESTS._replace(burst=2))

    def tested(who: Caller) -> int:
        put(who)
        status = int(who.request("POST", "/v1/webhooks/ops/test").status_code)
        assert who.request("DELETE", "/v1/webhooks/ops").status_code == 204
        return status

    assert [tested(caller) for _ in range(4)] == [202, 202, 409, 409]
    assert tested(new_caller("neighbour")) == 202


def test_history_of_a_webhook_is_bounded(caller: Caller, endpoints: Endpoints, monkeypatch: pytest.MonkeyPatch) -> None:
    put(caller)
    monkeypatch.setattr(limits, "DELIVERIES_KEPT_MAX", 3)
    begin(caller, 6)
    assert run_round(endpoints) == 6 and WebhookDelivery.objects.count() == 3
    deliveries.end_lost_deliveries(clock.now() + timedelta(days=limits.DELIVERIES_KEPT_DAYS + 1))
    assert not WebhookDelivery.objects.exists()


def test_test_is_called_once(caller: Caller, endpoints: Endpoints) -> None:
    put(caller)
    answer = caller.request("POST", "/v1/webhooks/ops/test")
    assert answer.status_code == 202 and answer.json()["state"] == "waiting"
    endpoints.answers = CallOutcome(CallResult.NO_ADDRESS)
    assert run_round(endpoints) == 1
    assert json.loads(endpoints.called[0].body)["type"] == "webhook.test"
    (shown,) = listed(caller)
    assert (shown["state"], shown["result"]) == ("failed", "no-address")


def test_webhook_that_an_alarm_names_stays(caller: Caller) -> None:
    make_queue(caller.account_id, "orders")
    put(caller)
    caller.request("PUT", "/v1/alarms/busy", RULE)
    refused = caller.request("DELETE", "/v1/webhooks/ops")
    assert (refused.status_code, refused.json()["code"]) == (409, "webhook-in-use")
    caller.request("PUT", "/v1/alarms/busy", {**RULE, "webhooks": []})
    begin(caller)
    assert caller.request("DELETE", "/v1/webhooks/ops").status_code == 204
    assert not WebhookDelivery.objects.exists() and caller.request("GET", "/v1/webhooks/ops").status_code == 404


def test_alarm_names_webhooks_that_are_there(caller: Caller) -> None:
    make_queue(caller.account_id, "orders")
    put(new_caller("neighbour"))
    answer = caller.request("PUT", "/v1/alarms/busy", {**RULE, "webhooks": ["ops", "on-call"]})
    assert answer.status_code == 400 and "no webhook 'ops', 'on-call' in this account" in answer.json()["detail"]
    assert not MetricAlarm.objects.exists()


@pytest.mark.parametrize("url", ["http://example.com/", "https://127.0.0.1/", "https://example.com:22/", "", 7, None])
def test_url_that_may_not_be_called_is_refused(caller: Caller, url: Any) -> None:
    assert put(caller, url=url).status_code == 400 and not Webhook.objects.exists()


def test_name_of_a_webhook_is_one_of_a_path(caller: Caller) -> None:
    for wrong in ("a" * (limits.WEBHOOK_NAME_CHARACTERS_MAX + 1), "a%0Ab", "a%20b", "a..b", ".a"):
        assert put(caller, wrong).status_code == 400


def test_account_has_so_many_webhooks(caller: Caller, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "WEBHOOKS_PER_ACCOUNT_MAX", 1)
    assert [put(caller, name).status_code for name in ("one", "one", "two")] == [201, 200, 409]


def test_webhooks_of_another_account_are_not_found(caller: Caller) -> None:
    put(caller)
    begin(caller)
    stranger = new_caller("stranger")
    for method, tail, content in (
        ("GET", "", None), ("DELETE", "", None), ("POST", "/rotation", {}), ("POST", "/test", None),
        ("GET", "/deliveries", None),
    ):  # fmt: skip
        assert stranger.request(method, f"/v1/webhooks/ops{tail}", content).status_code == 404
    assert stranger.request("GET", "/v1/webhooks").json() == {"webhooks": []}
    put(stranger)
    assert listed(stranger) == []


def test_changes_of_webhooks_stand_in_the_audit_trail(caller: Caller) -> None:
    put(caller)
    caller.request("POST", "/v1/webhooks/ops/rotation", {})
    caller.request("POST", "/v1/webhooks/ops/test")
    caller.request("DELETE", "/v1/webhooks/ops")
    found = set(AuditEntry.objects.filter(subject="webhook:ops").values_list("action", flat=True))
    assert found == {"webhook.put", "webhook.rotate", "webhook.test", "webhook.delete"}
