"""Pages of messages: what is asked of the data plane, and how contents are shown."""

from __future__ import annotations

from typing import Any

import pytest

from tests.console.browsing import Browser, queue_row

pytestmark = pytest.mark.django_db
HTML = '</pre><script>alert(1)</script><img src=x onerror="alert(1)">'
SEEN = {
    "message": "TOKEN", "id": "11111111-1111-4111-8111-111111111111", "state": "waiting", "receive_count": 0,
    "sent_ms": 1_700_000_000_000, "first_received_ms": None, "visible_at_ms": None, "sender": HTML, "body": HTML,
    "attributes": {HTML: {"type": "String", "value": HTML}}, "group": HTML,
    "dead_letter": {"source": HTML, "reason": "moved", "note": HTML},
}  # fmt: skip


def asked(data_plane: Any, tail: str) -> Any:
    return next(content for _, _, target, content in reversed(data_plane.asked) if target.endswith(tail))


def test_contents_are_shown_as_text(ann: Browser, data_plane: Any) -> None:
    queue_row(ann.account_id, "orders")
    data_plane.answers["messages/find"] = {"messages": [SEEN], "scanned": 1, "cursor": None}
    text = ann.get(ann.at("queues/orders/messages/list")).content.decode()
    assert "<script>" not in text and "<img" not in text and "&lt;script&gt;" in text


def test_download_is_text_to_be_kept(ann: Browser, data_plane: Any) -> None:
    queue_row(ann.account_id, "orders")
    data_plane.answers["messages/find"] = {"messages": [SEEN], "scanned": 1, "cursor": None}
    answer = ann.get(ann.at(f"queues/orders/messages/body?id={SEEN['id']}&message=TOKEN"))
    assert answer["Content-Type"].startswith("text/plain") and answer["X-Content-Type-Options"] == "nosniff"
    assert answer["Content-Disposition"].startswith("attachment;") and answer.content.decode() == HTML
    name = ann.get(ann.at('queues/orders/messages/body?id=a"%0d%0ab/../c&message=TOKEN'))["Content-Disposition"]
    assert name == 'attachment; filename="message-abc.txt"'


def test_conditions_of_the_form_become_a_filter(ann: Browser, data_plane: Any) -> None:
    queue_row(ann.account_id, "orders")
    data_plane.answers["messages/find"] = {"messages": [], "scanned": 7, "cursor": None}
    query = "text=coupon&state=in_flight&receives_min=3&age_seconds_min=60&attribute=color%20%3D%20red&ids=a,b"
    answer = ann.get(ann.at(f"queues/orders/messages/list?{query}"))
    assert asked(data_plane, "messages/find")["filter"] == {
        "body_contains": "coupon", "states": ["in_flight"], "receives_min": 3, "age_seconds_min": 60,
        "attributes": {"color": "red"}, "ids": ["a", "b"],
    }  # fmt: skip
    assert b"No message matches" in answer.content and b"7 were looked at" in answer.content
    assert b"integer" in ann.get(ann.at("queues/orders/messages/list?receives_min=x")).content


def test_search_that_is_not_over_goes_on_from_where_it_was(ann: Browser, data_plane: Any) -> None:
    queue_row(ann.account_id, "orders")
    data_plane.answers["messages/find"] = {"messages": [], "scanned": 10_000, "cursor": "CUR"}
    text = ann.get(ann.at("queues/orders/messages/list?text=a")).content.decode()
    assert "cursor=CUR" in text and "Go on looking" in text and "10,000 looked at so far" in text


def test_test_message_is_sent_as_the_form_says(ann: Browser, data_plane: Any) -> None:
    queue_row(ann.account_id, "orders")
    data_plane.answers["orders/messages"] = {"id": "new-id"}
    page = ann.at("queues/orders/send")
    form = {
        "body": "hello", "delay_seconds": "5", "attribute_name": ["color", ""], "attribute_type": ["String", "String"],
        "attribute_value": ["red", ""], "count": "1",
    }  # fmt: skip
    answer = ann.post(page, form, page)
    assert asked(data_plane, "orders/messages") == {
        "body": "hello", "delay_seconds": 5, "attributes": {"color": {"type": "String", "value": "red"}}
    }  # fmt: skip
    assert b"new-id" in answer.content and b">hello</textarea>" in answer.content, "the form keeps what was sent"


def test_many_copies_go_in_batches(ann: Browser, data_plane: Any) -> None:
    queue_row(ann.account_id, "orders")
    data_plane.answers["orders/messages"] = {"messages": [{"id": "x"}]}
    page = ann.at("queues/orders/send")
    assert b"25 messages are sent" in ann.post(page, {"body": "a", "count": "25"}, page).content
    sizes = [len(content["messages"]) for _, _, target, content in data_plane.asked if target.endswith("/messages")]
    assert sizes == [10, 10, 5]
    for count in ("101", "00000000000101999", "9" * 5_000):
        assert ann.post(page, {"body": "a", "count": count}, page).status_code == 400, count
    assert len(data_plane.asked) == len(sizes)


def test_refusal_of_the_data_plane_says_the_next_step(ann: Browser, data_plane: Any) -> None:
    from console.data_plane import DataPlaneError

    queue_row(ann.account_id, "orders")
    data_plane.answers["orders/messages"] = DataPlaneError("request-throttled", "Over the limit.", 429, 3)
    page = ann.at("queues/orders/send")
    answer = ann.post(page, {"body": "kept", "count": "1"}, page)
    assert answer.status_code == 429 and b"Try again in 3 s" in answer.content and b"kept" in answer.content


def test_message_is_changed_and_sent_again(ann: Browser, data_plane: Any) -> None:
    queue_row(ann.account_id, "orders")
    data_plane.answers["messages/find"] = {"messages": [SEEN], "scanned": 1, "cursor": None}
    data_plane.answers["messages/resend"] = {"id": "x", "removed": "y"}
    page = ann.at(f"queues/orders/messages/resend?id={SEEN['id']}&message=TOKEN")
    assert b"&lt;script&gt;" in ann.get(page).content
    form = {"message": "TOKEN", "body": "mended", "destination": "other"}
    assert ann.post(ann.at("queues/orders/messages/resend"), form, page).status_code == 302
    sent = asked(data_plane, "messages/resend")
    assert (sent["message"], sent["body"], sent["destination"]) == ("TOKEN", "mended", "other")


def test_message_is_deleted_and_set_aside(ann: Browser, data_plane: Any) -> None:
    queue_row(ann.account_id, "orders")
    data_plane.answers["messages/delete"] = {}
    data_plane.answers["messages/dead-letter"] = {"destination": "dead"}
    assert ann.post(ann.at("queues/orders/messages/delete"), {"message": "TOKEN"}).status_code == 302
    assert ann.post(ann.at("queues/orders/messages/dead-letter"), {"message": "TOKEN"}).status_code == 302
    assert asked(data_plane, "messages/delete")["message"] == "TOKEN"
    assert asked(data_plane, "messages/dead-letter") == {"message": "TOKEN", "reason": "moved by hand"}


def test_purge_wants_the_name_typed(ann: Browser, data_plane: Any) -> None:
    queue_row(ann.account_id, "orders")
    data_plane.answers["messages/purge"] = {}
    page = ann.at("queues/orders/purge")
    assert ann.post(page, {"typed": "order"}, page).status_code == 400 and not data_plane.asked
    assert ann.post(page, {"typed": "orders"}, page).status_code == 302
    assert data_plane.asked[-1][2] == "/v1/queues/orders/messages/purge"


def test_redrive_is_counted_started_paused_and_cancelled(ann: Browser) -> None:
    from api.queues.models import MessageMoveTask

    queue_row(ann.account_id, "dead")
    policy = f'{{"deadLetterTargetArn": "arn:aws:sqs:us-east-1:{ann.account_id}:dead", "maxReceiveCount": 1}}'
    queue_row(ann.account_id, "orders", RedrivePolicy=policy)
    page = ann.at("queues/dead/moves")
    form = {"what": "count", "text": "coupon", "messages_per_second": "50"}
    assert ann.post(page, form, page).status_code == 302
    task = MessageMoveTask.objects.get()
    assert task.dry_run and task.filter == {"body_contains": "coupon"} and task.messages_per_s == 50
    assert b"Dry run" in ann.get(page).content and b"every 1s" in ann.get(ann.at("queues/dead/moves/progress")).content
    assert ann.post(page, {"what": "move"}, page).status_code == 400, "one at a time"
    from tests.console.browsing import member
    from tests.console.test_roles import deny

    guest = member(ann, "admin")
    for action, verb in (("sqs:Cancel*", "cancel"), ("penstock:Pause*", "pause"), ("penstock:Resume*", "resume")):
        deny(guest, action, "dead")
        assert guest.post(guest.at(f"queues/dead/moves/{task.uuid}/{verb}")).status_code == 403, verb
    for verb in ("pause", "resume", "cancel"):
        assert ann.post(ann.at(f"queues/dead/moves/{task.uuid}/{verb}")).status_code == 302
    task.refresh_from_db()
    assert task.status == "CANCELLING"
    assert ann.post(ann.at(f"queues/dead/moves/{task.uuid}/explode")).status_code == 404
    assert ann.post(page, {"what": "move", "messages_per_second": "0"}, page).status_code == 400


def test_schedule_is_set_paused_and_deleted(ann: Browser, data_plane: Any) -> None:
    queue_row(ann.account_id, "orders")
    page = ann.at("queues/orders/schedules")
    form = {"name": "nightly", "cron": "0 3 * * *", "zone": "Europe/Berlin", "body": "go"}
    assert ann.post(page, form, page).status_code == 302
    assert b"nightly" in ann.get(page).content and b">go<" not in ann.get(page).content
    assert ann.post(page, {**form, "name": "other", "cron": "99 3 * * *"}, page).status_code == 400
    assert ann.post(f"{page}/nightly/pause", {}, page).status_code == 302
    assert b"Paused" in ann.get(page).content
    assert ann.post(f"{page}/nightly/delete", {}, page).status_code == 302
    data_plane.answers["orders/scheduled"] = {"messages": [], "next_cursor": None}
    assert b"No single message" in ann.get(ann.at("queues/orders/scheduled")).content
