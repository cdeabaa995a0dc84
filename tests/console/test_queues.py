"""Pages of queues: the list, the forms, the tabs, and what must be typed before anything is gone."""

from __future__ import annotations

import json
import re
from typing import Any

import pytest

from tests.console.browsing import Browser, make_queue, queue_row
from tests.console.test_access import person_id
from tests.support.scripted_storage import ScriptedStorage

pytestmark = pytest.mark.django_db
HTML = '<img src=x onerror="alert(1)">'


def stored(account_id: str, name: str) -> Any:
    from api.queues.models import Queue

    return Queue.objects.get(account_id=account_id, name=name)


def names_in(answer: Any) -> list[str]:
    import re

    return re.findall(r'data-queue="([^"]+)"', answer.content.decode())


@pytest.mark.django_db(transaction=True)
def test_form_makes_a_queue_with_what_it_says(ann: Browser, storage: ScriptedStorage) -> None:
    form = {"VisibilityTimeout": "45", "Penstock.UncountedRelease": "true", "DelaySeconds": "0"}
    answer = make_queue(ann, "orders", **form)
    assert answer.status_code == 302 and answer["Location"] == ann.at("queues/orders")
    attributes = stored(ann.account_id, "orders").attributes
    assert attributes["VisibilityTimeout"] == "45" and attributes["Penstock.UncountedRelease"] == "true"
    assert b"The queue orders is ready." in ann.get(ann.at("queues/orders")).content
    assert b"is ready" not in ann.get(ann.at("queues/orders")).content, "told once"


@pytest.mark.django_db(transaction=True)
def test_fifo_form_adds_the_suffix(ann: Browser, storage: ScriptedStorage) -> None:
    assert make_queue(ann, "events", kind="fifo", ContentBasedDeduplication="true").status_code == 302
    assert stored(ann.account_id, "events.fifo").attributes["ContentBasedDeduplication"] == "true"


def test_value_out_of_range_is_told_at_its_field_and_the_form_keeps_the_rest(ann: Browser) -> None:
    answer = make_queue(ann, "orders", VisibilityTimeout="99999", DelaySeconds="7")
    text = answer.content.decode()
    assert answer.status_code == 400 and 'class="field wrong"' in text
    assert 'value="7"' in text and 'value="orders"' in text and 'value="99999"' in text


@pytest.mark.parametrize("typed", ["abc", "1e400", "nan", "²", "9" * 400, "{}"])
def test_value_that_is_no_number_is_told_at_its_field(ann: Browser, typed: str) -> None:
    answer = make_queue(ann, "orders", VisibilityTimeout=typed)
    assert answer.status_code == 400 and b'class="field wrong"' in answer.content
    queue = queue_row(ann.account_id, "orders")
    page = ann.at("queues/orders/edit")
    assert ann.post(page, {"version": str(queue.version), "VisibilityTimeout": typed}, page).status_code == 400


@pytest.mark.parametrize("target", ["no queue", "a/b", "é", "x" * 300])
def test_dead_letter_queue_of_a_wrong_name_is_refused(ann: Browser, target: str) -> None:
    assert make_queue(ann, "orders", dead_letter_name=target).status_code == 400
    queue = queue_row(ann.account_id, "orders")
    page = ann.at("queues/orders/edit")
    assert ann.post(page, {"version": str(queue.version), "dead_letter_name": target}, page).status_code == 400


def test_every_attribute_has_its_words(db: None) -> None:
    from api.queues.attributes import _CHECKS
    from console.attribute_words import ELSEWHERE, SECTIONS

    words = {word.name for section in SECTIONS for word in section.words}
    assert words | ELSEWHERE == set(_CHECKS) and not words & ELSEWHERE


def test_snippets_say_what_the_form_says(ann: Browser) -> None:
    form = {"name": "it's", "kind": "standard", "VisibilityTimeout": "45"}
    text = ann.post(ann.at("new-queue/same-as"), form, ann.at("new-queue")).content.decode()
    assert "&#x27;VisibilityTimeout&#x27;: &#x27;45&#x27;" in text and "visibility_timeout_seconds = 45" in text
    assert "DelaySeconds" not in text, "what is a default is left out"


def test_terraform_takes_a_name_of_digits() -> None:
    from console.same_as import creating

    text = next(one.text for one in creating("http://e", "r", "007", {}) if one.title == "Terraform")
    assert 'resource "aws_sqs_queue" "_007"' in text and 'name = "007"' in text


def test_message_is_sent_by_the_same_as_boto3_and_the_command_line(monkeypatch: pytest.MonkeyPatch) -> None:
    import shlex
    from unittest.mock import Mock

    import boto3

    from console.same_as import sending

    attributes = {"kind": {"type": "String", "value": "it's"}, "raw": {"type": "Binary", "value": "AAE="}}
    message = {"body": "a 'b'\n$c", "group": "g", "delay_seconds": 5, "priority": 7, "attributes": attributes}
    found = {one.title: one.text for one in sending("http://e", "r", "http://e/1/orders", "orders", message)}
    client = Mock()
    monkeypatch.setattr(boto3, "client", lambda *_, **__: client)
    exec(found["boto3"], {})
    asked = client.send_message.call_args.kwargs
    raw = {"DataType": "Binary", "BinaryValue": b"\0\1"}
    assert (asked["MessageBody"], asked["MessageGroupId"], asked["DelaySeconds"]) == (message["body"], "g", 5)
    assert asked["QueueUrl"] == "http://e/1/orders" and asked["MessageAttributes"]["raw"] == raw
    assert asked["MessageAttributes"]["Penstock.Priority"] == {"DataType": "Number", "StringValue": "7"}
    words = [word for word in shlex.split(found["AWS CLI"]) if word != "\n"]
    assert words[words.index("--message-body") + 1] == message["body"]
    assert json.loads(words[words.index("--message-attributes") + 1])["raw"]["BinaryValue"] == "AAE="
    assert list(found) == ["boto3", "AWS CLI", "curl"]
    wrong = {"body": "a", "attributes": {"raw": {"type": "Binary", "value": "z"}}}
    assert "'BinaryValue': 'z'" in sending("http://e", "r", "http://e/1/orders", "orders", wrong)[0].text


def test_page_of_a_queue_says_how_to_receive_and_where_the_key_goes(ann: Browser) -> None:
    queue_row(ann.account_id, "orders")
    text = ann.get(ann.at("queues/orders")).content.decode()
    assert "Receive with" in text and "sqs.delete_message(" in text
    assert f'<a href="{ann.at("keys")}">a key</a>: its id in <code>AWS_ACCESS_KEY_ID</code>' in text
    assert text.count("They sign with") == 1


def test_receive_deletes_what_it_received(monkeypatch: pytest.MonkeyPatch) -> None:
    from unittest.mock import Mock

    import boto3

    from console.same_as import receiving

    client = Mock()
    client.receive_message.return_value = {"Messages": [{"Body": "a", "ReceiptHandle": "r"}]}
    monkeypatch.setattr(boto3, "client", lambda *_, **__: client)
    exec(receiving("http://e", "r", "http://e/1/orders")[0].text, {})
    client.delete_message.assert_called_once_with(QueueUrl="http://e/1/orders", ReceiptHandle="r")


def test_command_line_names_its_region() -> None:
    from console.same_as import creating, receiving, sending

    url = "http://e/1/orders"
    lists = creating("http://e", "r-1", "orders", {}), sending("http://e", "r-1", url, "orders", {"body": "a"})
    for snippets in (*lists, receiving("http://e", "r-1", url)):
        text = next(one.text for one in snippets if one.title == "AWS CLI")
        assert text.count("--region r-1") == text.count("aws sqs") > 0


def test_list_searches_sorts_and_pages_in_the_server(ann: Browser) -> None:
    queue_row(ann.account_id, "first")
    from tests.support.control_plane import copy_queue

    copy_queue("first", [f"q-{number:03}" for number in range(120)] + ["Wide-q", "events.fifo"])
    assert names_in(ann.get(ann.at("queues")))[:2] == ["Wide-q", "events.fifo"]
    assert len(names_in(ann.get(ann.at("queues")))) == 50
    assert names_in(ann.get(ann.at("queues?sort=-name&q=q-")))[0] == "q-119"
    assert names_in(ann.get(ann.at("queues?q=DE-Q"))) == ["Wide-q"]
    last = ann.get(ann.at("queues?page=3"))
    assert len(names_in(last)) == 23 and b"101 to 123 of 123" in last.content
    for odd in ("page=0", "page=x", "sort=evil", "kind=evil", "q=%00"):
        assert ann.get(ann.at(f"queues?{odd}")).status_code == 200


def test_list_sorts_by_what_waits_and_for_how_long(ann: Browser) -> None:
    from api.series.models import SeriesQueue

    for name, waiting, oldest in (("a", 5, 3_000), ("b", 0, 0), ("c", 70, 2_000), ("d", 6, 1_000), ("e", None, 0)):
        queue = queue_row(ann.account_id, name)
        if waiting is not None:
            levels = {"waiting": waiting, "oldest_sent_ms": oldest}
            SeriesQueue.objects.create(account_id=ann.account_id, queue_uuid=queue.uuid, **levels)
            SeriesQueue.objects.create(account_id="999999999999", queue_uuid=queue.uuid, waiting=1_000)
    orders = {"-waiting": "cdabe", "waiting": "beadc", "-age": "dcabe", "age": "beacd"}
    for sort, order in orders.items():
        assert "".join(names_in(ann.get(ann.at(f"queues?sort={sort}")))) == order, sort
    page = ann.get(ann.at("queues?sort=-waiting")).content.decode()
    assert 'aria-sort="descending"><a href="?sort=waiting"' in page and "?sort=-age" in page


def test_list_of_ten_thousand_queues_answers_in_time(ann: Browser) -> None:
    import time
    import uuid

    from api.queues.models import Queue
    from api.series.models import SeriesQueue

    first = queue_row(ann.account_id, "first")
    fields = {field.attname: getattr(first, field.attname) for field in Queue._meta.concrete_fields}
    names = (f"queue-{number:05}" for number in range(10_000))
    rows = [Queue(**{**fields, "id": None, "uuid": uuid.uuid4(), "name": name}) for name in names]
    Queue.objects.bulk_create(rows, batch_size=2_000)
    seen = [SeriesQueue(account_id=ann.account_id, queue_uuid=row.uuid, waiting=1, oldest_sent_ms=1) for row in rows]
    SeriesQueue.objects.bulk_create(seen, batch_size=2_000)
    ann.get(ann.at("queues"))
    for query in ("", "?q=99", "?sort=-modified&page=150", "?kind=dead-letter", "?sort=-waiting", "?sort=-age&page=3"):
        started = time.perf_counter()
        assert ann.get(ann.at(f"queues{query}")).status_code == 200
        assert time.perf_counter() - started < 1.0, f"{query}: a list stays fast"


def test_list_filters_by_kind(ann: Browser) -> None:
    target = queue_row(ann.account_id, "dead")
    arn = f"arn:aws:sqs:us-east-1:{ann.account_id}:dead"
    policy = json.dumps({"deadLetterTargetArn": arn, "maxReceiveCount": 3})
    queue_row(ann.account_id, "work", RedrivePolicy=policy)
    queue_row(ann.account_id, "still", **{"Penstock.Paused": "true"})
    assert names_in(ann.get(ann.at("queues?kind=dead-letter"))) == [target.name]
    assert names_in(ann.get(ann.at("queues?kind=paused"))) == ["still"]
    assert b"Dead letters" in ann.get(ann.at("queues?q=dead")).content


def test_counts_come_from_the_data_plane_as_the_person(ann: Browser, data_plane: Any) -> None:
    queue_row(ann.account_id, "orders")
    data_plane.answers["orders"] = {"waiting": 12_345}
    assert b"12,345" in ann.get(ann.at("counts?names=orders")).content
    assert b"12,345" in ann.get(ann.at("queues/orders/counts")).content
    assert b"12,345" in ann.get(ann.at("attention")).content
    (who, _, target, asked) = data_plane.asked[0]
    assert target == "/v1/message-counts" and asked == {"queues": ["orders"]}
    assert who == f"person:{person_id(ann)}"


def test_scheduled_messages_are_shown_as_some_of_the_delayed_ones(ann: Browser, data_plane: Any) -> None:
    queue_row(ann.account_id, "orders")
    data_plane.answers["orders"] = {"delayed": 3, "scheduled": 1}
    text = ann.get(ann.at("queues/orders/counts")).content.decode()
    figures = re.findall(r"<dt>([^<]+)</dt><dd[^>]*>([^<]+)</dd>", text)
    assert figures[2:4] == [("Delayed", "3"), ("Of these scheduled", "1")]


def test_overview_says_that_sending_is_stopped_and_why(ann: Browser) -> None:
    from api.audit.actions import OPERATOR
    from api.quotas.actions import stop_sending

    assert "Nothing needs attention" in ann.get(ann.at("attention")).content.decode()
    stop_sending(OPERATOR, ann.account_id, "The card <expired>.")
    text = ann.get(ann.at("attention")).content.decode()
    assert "Sending is stopped" in text and "The card &lt;expired&gt;." in text
    assert "Nothing needs attention" not in text


def test_edit_changes_what_was_changed_and_empties_what_was_emptied(ann: Browser) -> None:
    queue = queue_row(ann.account_id, "orders", **{"Penstock.DeduplicationWindow": "60"})
    page = ann.at("queues/orders/edit")
    form = {"version": str(queue.version), "VisibilityTimeout": "77", "Penstock.DeduplicationWindow": ""}
    assert ann.post(page, form, page).status_code == 302
    attributes = stored(ann.account_id, "orders").attributes
    assert attributes["VisibilityTimeout"] == "77" and "Penstock.DeduplicationWindow" not in attributes
    again = ann.post(page, {**form, "VisibilityTimeout": "78"}, page)
    assert again.status_code == 412 and b"Load the page again" in again.content
    assert stored(ann.account_id, "orders").attributes["VisibilityTimeout"] == "77"


def test_edit_with_nothing_changed_writes_nothing(ann: Browser) -> None:
    from api.audit.models import AuditEntry
    from console.attribute_words import form_of

    queue = queue_row(ann.account_id, "orders")
    page = ann.at("queues/orders/edit")
    form = {field.word.name: field.value for part in form_of(queue.attributes, False) for field in part.fields}
    before = AuditEntry.objects.count()
    assert ann.post(page, {**form, "version": str(queue.version)}, page).status_code == 302
    assert AuditEntry.objects.count() == before


def test_dead_letter_queue_is_chosen_by_name(ann: Browser) -> None:
    queue_row(ann.account_id, "dead")
    queue = queue_row(ann.account_id, "orders")
    page = ann.at("queues/orders/edit")
    form = {"version": str(queue.version), "dead_letter_name": "dead", "dead_letter_receives": "4"}
    assert ann.post(page, form, page).status_code == 302
    assert stored(ann.account_id, "orders").dead_letter_target == "dead"
    shown = ann.get(ann.at("queues/orders")).content
    assert b"after 4 receives" in shown and b"Dead letters go to dead" in shown


@pytest.mark.parametrize("receives", ["²", "9" * 5_000, "many", "0"])
def test_receives_that_are_no_number_in_range_are_refused(ann: Browser, receives: str) -> None:
    queue_row(ann.account_id, "dead")
    queue = queue_row(ann.account_id, "orders")
    page = ann.at("queues/orders/edit")
    form = {"version": str(queue.version), "dead_letter_name": "dead", "dead_letter_receives": receives}
    assert ann.post(page, form, page).status_code == 400
    assert "RedrivePolicy" not in stored(ann.account_id, "orders").attributes


@pytest.mark.parametrize("typed", ["", "order", "ORDERS", "dead"])
def test_delete_wants_the_name_typed(ann: Browser, typed: str) -> None:
    queue_row(ann.account_id, "orders")
    page = ann.at("queues/orders/delete")
    assert ann.post(page, {"typed": typed}, page).status_code == 400
    assert stored(ann.account_id, "orders").state == "active"
    assert ann.post(page, {"typed": "orders"}, page)["Location"] == ann.at("queues")
    assert stored(ann.account_id, "orders").state == "deleting"


def test_tags_are_set_shown_as_text_and_removed(ann: Browser) -> None:
    queue_row(ann.account_id, "orders")
    page = ann.at("queues/orders/tags")
    assert ann.post(page, {"key": "team", "value": HTML}, page).status_code == 302
    shown = ann.get(page).content.decode()
    assert HTML not in shown and "&lt;img src=x" in shown
    assert HTML not in ann.get(ann.at("queues/orders")).content.decode()
    assert ann.post(page, {"key": "team", "remove": "1"}, page).status_code == 302
    assert stored(ann.account_id, "orders").tags == {}
    assert ann.post(page, {"key": "aws:x", "value": ""}, page).status_code == 400


def test_permission_is_given_and_taken_and_a_policy_is_checked(ann: Browser) -> None:
    queue_row(ann.account_id, "orders")
    page = ann.at("queues/orders/access")
    form = {"label": "partner", "accounts": "123456789012, 210987654321", "actions": ["SendMessage"]}
    assert ann.post(page, form, page).status_code == 302
    assert b"partner" in ann.get(page).content
    wrong = ann.post(page, {"policy": '{"Version": "2099"}'}, page)
    assert wrong.status_code == 400 and b"2099" in wrong.content
    no_text = ann.post(page, {"policy": r'{"Version": "\ud800"}'}, page)
    assert no_text.status_code == 400 and b"ud800" in no_text.content
    assert ann.post(page, {"remove": "partner"}, page).status_code == 302
    assert "partner" not in stored(ann.account_id, "orders").attributes.get("Policy", "")


def test_unknown_queue_is_not_here(ann: Browser) -> None:
    for tail in ("", "/counts", "/edit", "/tags", "/access", "/messages", "/send", "/moves", "/schedules", "/delete"):
        assert ann.get(ann.at(f"queues/none{tail}")).status_code == 404, tail
