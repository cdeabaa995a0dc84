"""Pages of messages: what is asked of the data plane, and how contents are shown."""

from __future__ import annotations

import re
from typing import Any

import pytest

from api.schedules.models import CronSchedule
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
    assert b"No message matches" in answer.content and b"7 messages were checked" in answer.content
    assert b"integer" in ann.get(ann.at("queues/orders/messages/list?receives_min=x")).content


def test_every_condition_of_a_filter_is_offered(ann: Browser) -> None:
    queue_row(ann.account_id, "dead.fifo")
    arn = f"arn:aws:sqs:us-east-1:{ann.account_id}:dead.fifo"
    queue_row(ann.account_id, "orders.fifo", RedrivePolicy=f'{{"deadLetterTargetArn": "{arn}", "maxReceiveCount": 1}}')
    names = ["text", "state", "ids", "groups", "tags", "attribute", "receives_min", "note"]
    for name in (*names, "age_seconds_min", "age_seconds_max"):
        page = ann.get(ann.at(f"queues/dead.fifo/messages?{name}=7")).content.decode()
        assert f' name="{name}"' in page, name
        assert name in ("text", "state") or 'filter-more" open' in page, f"{name} is in force, so it is shown"


def test_length_of_a_body_is_shown_and_that_of_a_long_one_is_its_whole_length(ann: Browser, data_plane: Any) -> None:
    queue_row(ann.account_id, "orders")
    for more, text in (({"body": "x"}, "1 character<"), ({"body_cut_from_chars": 70_000}, "70,000 characters<")):
        data_plane.answers["messages/find"] = {"messages": [{**SEEN, **more}], "scanned": 1, "cursor": None}
        assert text in ann.get(ann.at("queues/orders/messages/list")).content.decode()


def test_search_that_is_not_over_goes_on_from_where_it_was(ann: Browser, data_plane: Any) -> None:
    queue_row(ann.account_id, "orders")
    data_plane.answers["messages/find"] = {"messages": [], "scanned": 10_000, "cursor": "CUR"}
    text = ann.get(ann.at("queues/orders/messages/list?text=a")).content.decode()
    assert "cursor=CUR" in text and "Continue searching" in text and "10,000 checked so far" in text


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


def test_message_is_scheduled_for_a_time(ann: Browser, data_plane: Any) -> None:
    queue_row(ann.account_id, "orders")
    data_plane.answers["orders/messages"] = {"id": "new-id", "schedule_id": "s"}
    page = ann.at("queues/orders/send")
    shown = ann.post(page, {"body": "a", "due": "2026-12-01T06:30"}, page).content.decode()
    assert asked(data_plane, "orders/messages") == {"body": "a", "deliver_at_ms": 1_796_106_600_000}
    assert "delivered at 2026-12-01T06:30 UTC" in shown and "Penstock.DeliverAt" in shown
    count = len(data_plane.asked)
    answer = ann.post(page, {"body": "a", "due": "soon"}, page)
    assert answer.status_code == 400 and b"A time is written like" in answer.content
    assert len(data_plane.asked) == count


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
    from tests.console.browsing import deny, member

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


def test_redrive_of_sqs_shows_what_it_counts(ann: Browser) -> None:
    from api.audit.actions import OPERATOR
    from api.queues.attributes import format_arn
    from api.queues.models import MessageMoveTask
    from api.queues.moves import start_move

    queue_row(ann.account_id, "dead")
    policy = f'{{"deadLetterTargetArn": "arn:aws:sqs:us-east-1:{ann.account_id}:dead", "maxReceiveCount": 1}}'
    queue_row(ann.account_id, "orders", RedrivePolicy=policy)
    start_move(OPERATOR, ann.account_id, format_arn("us-east-1", ann.account_id, "dead"), None, None)
    MessageMoveTask.objects.update(moved=3, to_move=4)
    text = ann.get(ann.at("queues/dead/moves")).content.decode()
    assert "<strong>3</strong> moved of about 4</p>" in text and "matched" not in text and "checked" not in text
    assert '<progress class="progress" max="4" value="3" aria-label="Moved">' in text


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


def test_schedule_is_edited_as_it_was_read(ann: Browser, data_plane: Any) -> None:
    queue_row(ann.account_id, "orders")
    page = ann.at("queues/orders/schedules")
    ann.post(page, {"name": "nightly", "cron": "0 3 * * *", "zone": "Europe/Berlin", "body": "go"}, page)
    edit = f"{page}/nightly/edit"
    assert f'href="{edit}"' in ann.get(page).content.decode()
    shown = ann.get(edit).content.decode()
    read_at = re.search(r'name="read_at" value="([^"]+)"', shown)
    assert 'value="0 3 * * *"' in shown and ">go<" not in shown and read_at is not None
    form = {"cron": "0 4 * * *", "zone": "Asia/Tokyo", "group": "g", "body": "", "read_at": read_at[1]}
    wrong = ann.post(edit, {**form, "cron": "99 3 * * *"}, edit)
    assert wrong.status_code == 400 and 'value="99 3 * * *"' in wrong.content.decode()
    attribute = {"attribute_name": "a", "attribute_type": "String", "attribute_value": "1"}
    assert ann.post(edit, {**form, **attribute}, edit).status_code == 400
    sealed = bytes(CronSchedule.objects.get().content_sealed)
    assert ann.post(edit, form, edit).status_code == 302
    row = CronSchedule.objects.get()
    assert (row.cron, row.zone, row.group) == ("0 4 * * *", "Asia/Tokyo", "g") and bytes(row.content_sealed) == sealed
    for read_before in (read_at[1], ""):
        late = ann.post(edit, {**form, "cron": "0 5 * * *", "read_at": read_before}, edit)
        assert late.status_code == 412 and CronSchedule.objects.get().cron == "0 4 * * *"
    assert (
        ann.post(edit, {**form, **attribute, "body": "new", "read_at": row.modified_at.isoformat()}).status_code == 302
    )
    assert bytes(CronSchedule.objects.get().content_sealed) != sealed
    assert ann.get(f"{page}/missing/edit").status_code == 404


def test_scheduled_message_gets_another_time(ann: Browser, data_plane: Any) -> None:
    queue_row(ann.account_id, "orders")
    one = {"id": "m", "schedule_id": "s-1", "deliver_at_ms": 1_796_106_600_000, "body": "hourly"}
    data_plane.answers["orders/scheduled"] = {"messages": [one], "next_cursor": None}
    data_plane.answers["scheduled/reschedule"] = {"done": ["s-1"], "failed": []}
    assert 'value="2026-12-01T06:30"' in ann.get(ann.at("queues/orders/scheduled")).content.decode()
    page = ann.at("queues/orders/scheduled/reschedule")
    assert ann.post(page, {"id": "s-1", "due": "2026-12-01T07:00"}).status_code == 302
    assert data_plane.asked[-1][3] == {"ids": ["s-1"], "deliver_at_ms": 1_796_108_400_000}
    asked = len(data_plane.asked)
    refused = ann.post(page, {"id": "s-1", "due": "tomorrow"})
    assert refused.status_code == 400 and "like 2026-12-01T06:30" in refused.content.decode()
    assert len(data_plane.asked) == asked


def test_chosen_messages_are_deleted_one_by_one(ann: Browser, data_plane: Any) -> None:
    queue_row(ann.account_id, "orders")
    data_plane.answers["messages/delete"] = {"id": "a", "state": "waiting"}
    form = {"what": "delete", "chosen": ["T1 id-1", "T2 id-2"]}
    answer = ann.post(ann.at("queues/orders/messages/chosen"), form)
    assert answer.status_code == 302 and "2 of 2 messages are deleted." in ann.get(answer["Location"]).content.decode()
    assert [content for _, _, target, content in data_plane.asked if target.endswith("/delete")] == [
        {"message": "T1"}, {"message": "T2"},
    ]  # fmt: skip


def test_chosen_message_that_is_gone_is_told(ann: Browser, data_plane: Any) -> None:
    from console.data_plane import DataPlaneError

    queue_row(ann.account_id, "orders")
    data_plane.answers["messages/dead-letter"] = DataPlaneError("message-does-not-exist", "The queue was deleted.", 404)
    form = {"what": "dead-letter", "chosen": ["T1 id-1"]}
    answer = ann.post(ann.at("queues/orders/messages/chosen"), form)
    assert "0 of 1 messages" in ann.get(answer["Location"]).content.decode()
    assert asked(data_plane, "dead-letter") == {"message": "T1", "reason": "moved by hand"}


def test_chosen_messages_go_into_the_form_of_the_redrive(ann: Browser, data_plane: Any) -> None:
    queue_row(ann.account_id, "orders")
    path = ann.at("queues/orders/messages/chosen")
    answer = ann.post(path, {"what": "redrive", "chosen": ["T1 id-1", "T2 id-2", "T3 "]})
    assert answer["Location"].endswith("queues/orders/moves?ids=id-1%2Cid-2")
    assert b'value="id-1,id-2"' in ann.get(answer["Location"]).content
    many = ann.post(path, {"what": "redrive", "chosen": [f"T{number} id-{number}" for number in range(11)]})
    assert "Choose 1 to 10 messages" in ann.get(many["Location"]).content.decode()
    assert not data_plane.asked


@pytest.mark.parametrize("form", [{"what": "delete"}, {"what": "delete", "chosen": ["T x"] * 101}])
def test_too_many_or_no_chosen_messages_are_refused(ann: Browser, data_plane: Any, form: dict[str, Any]) -> None:
    queue_row(ann.account_id, "orders")
    answer = ann.post(ann.at("queues/orders/messages/chosen"), form)
    assert "Choose 1 to 100 messages." in ann.get(answer["Location"]).content.decode() and not data_plane.asked
    assert ann.post(ann.at("queues/orders/messages/chosen"), {"what": "purge"}).status_code == 403


def test_download_of_a_filter_holds_whole_messages_a_line_each(ann: Browser, data_plane: Any) -> None:
    import json

    queue_row(ann.account_id, "orders")
    data_plane.answers["messages/find"] = {"messages": [dict(SEEN)], "scanned": 1, "cursor": None}
    answer = ann.get(ann.at("queues/orders/messages/download?text=alert"))
    assert answer["Content-Type"] == "application/x-ndjson"
    assert answer["Content-Disposition"] == 'attachment; filename="orders-messages.jsonl"'
    first, last = map(json.loads, answer.content.decode().splitlines())
    assert first["body"] == HTML and "message" not in first
    assert last == {"messages": 1, "complete": True}
    assert asked(data_plane, "messages/find") == {"filter": {"body_contains": "alert"}, "limit": 100, "cursor": ""}
    assert ann.get(ann.at("queues/orders/messages/download?receives_min=x")).status_code == 400


def test_download_ends_at_its_bound_and_says_so(ann: Browser, data_plane: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    from console.views import message_batch

    queue_row(ann.account_id, "orders")
    monkeypatch.setattr(message_batch, "WORK_S_MAX", -1.0)
    data_plane.answers["messages/find"] = {"messages": [], "scanned": 1, "cursor": "CUR"}
    content = ann.get(ann.at("queues/orders/messages/download")).content
    assert content == b'{"messages":0,"complete":false}\n'


def test_download_holds_so_many_bytes_and_says_that_there_is_more(
    ann: Browser, data_plane: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    from console.views import message_batch

    queue_row(ann.account_id, "orders")
    monkeypatch.setattr(message_batch, "DOWNLOADED_BYTES_MAX", 25_000)
    seen = {**SEEN, "body": "x" * 10_000}
    data_plane.answers["messages/find"] = {"messages": [seen], "scanned": 1, "cursor": "CUR"}
    content = ann.get(ann.at("queues/orders/messages/download")).content
    assert content.endswith(b'\n{"messages":3,"complete":false}\n')
