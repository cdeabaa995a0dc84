"""Deleted queues that are kept: how long, what the page of a deletion says, restored, let go."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest

from tests.console.browsing import Browser, owner, queue_row

pytestmark = pytest.mark.django_db
Joins = Callable[[Browser, str], Browser]


def keep_for(browser: Browser, days: str, **more: str) -> Any:
    page = browser.at("settings")
    return browser.post(page, {"grace_days": days, **more}, page)


def deleted(browser: Browser, name: str = "orders") -> Any:
    queue = queue_row(browser.account_id, name)
    assert browser.post(browser.at(f"queues/{name}/delete"), {"typed": name}).status_code == 302
    queue.refresh_from_db()
    return queue


def test_settings_say_how_long_deleted_queues_are_kept(ann: Browser) -> None:
    from api.accounts.models import Account

    assert keep_for(ann, "7", protection="true").status_code == 302
    account = Account.objects.get(pk=ann.account_id)
    assert (account.deletion_grace_days, account.deletion_protection) == (7, True)
    assert 'value="7"' in ann.get(ann.at("settings")).content.decode()
    for wrong in ("31", "-1", "x", "", "1" * 9):
        assert keep_for(ann, wrong).status_code == 400, wrong
    account.refresh_from_db()
    assert account.deletion_grace_days == 7
    keep_for(ann, "0")
    account.refresh_from_db()
    assert (account.deletion_grace_days, account.deletion_protection) == (0, False)


def test_page_of_a_deletion_says_what_becomes_of_the_messages(ann: Browser) -> None:
    queue_row(ann.account_id, "orders")
    page = ann.at("queues/orders/delete")
    assert "all its messages are deleted for good" in ann.get(page).content.decode()
    keep_for(ann, "7")
    for answer in (ann.get(page), ann.post(page, {"typed": "other"}, page)):
        text = answer.content.decode()
        assert "For 7 d it can be restored" in text and "all its messages are deleted for good" not in text
    keep_for(ann, "7", protection="true")
    assert "cannot be deleted" in ann.get(page).content.decode()


def test_deleted_queue_is_restored_under_another_name(ann: Browser, storage: Any) -> None:
    assert "No deleted queue is kept" in ann.get(ann.at("deleted-queues")).content.decode()
    keep_for(ann, "7")
    queue = deleted(ann)
    assert ann.at("deleted-queues") in ann.get(ann.at("queues")).content.decode()
    text = ann.get(ann.at("deleted-queues")).content.decode()
    assert "orders" in text and str(queue.uuid) in text
    restore = ann.at(f"deleted-queues/{queue.uuid}/restore")
    assert ann.post(restore, {"new_name": "no such!"}).status_code == 400
    answer = ann.post(restore, {"new_name": "orders-back"})
    assert answer.status_code == 302 and answer["Location"].endswith("/queues/orders-back")
    queue.refresh_from_db()
    assert (queue.name, queue.kept_until) == ("orders-back", None)
    assert ann.post(restore, {"new_name": "again"}).status_code == 404, "it is not deleted any more"
    assert ann.at("deleted-queues") not in ann.get(ann.at("queues")).content.decode()


def test_deleted_queue_is_let_go_by_those_who_may(ann: Browser, join: Joins, storage: Any) -> None:
    keep_for(ann, "7")
    queue = deleted(ann)
    end = ann.at(f"deleted-queues/{queue.uuid}/end")
    developer, reader = join(ann, "developer"), join(ann, "reader")
    assert developer.post(end).status_code == 403
    assert "Delete for good" not in developer.get(ann.at("deleted-queues")).content.decode()
    assert "Restore the queue" in developer.get(ann.at("deleted-queues")).content.decode()
    assert "Restore the queue" not in reader.get(ann.at("deleted-queues")).content.decode()
    assert reader.post(ann.at(f"deleted-queues/{queue.uuid}/restore"), {"new_name": "x"}).status_code == 403
    assert ann.post(end).status_code == 302
    queue.refresh_from_db()
    assert queue.state in ("deleting", "deleted")


def test_tags_of_the_deleted_queue_are_weighed_and_not_those_of_its_namesake(
    ann: Browser, join: Joins, storage: Any
) -> None:
    from api.audit.actions import OPERATOR
    from api.iam.actions.policies import attach_to_member, create_policy
    from api.people.models import Person
    from api.queues.models import Queue

    keep_for(ann, "7")
    queue = deleted(ann)
    Queue.objects.filter(pk=queue.pk).update(tags={"stage": "secret"})
    namesake = queue_row(ann.account_id, "orders-new")
    Queue.objects.filter(pk=namesake.pk).update(name="orders", tags={"stage": "open"})
    developer = join(ann, "developer")
    condition = {"StringEquals": {"aws:ResourceTag/stage": "secret"}}
    statement = {"Effect": "Deny", "Action": "penstock:RestoreQueue", "Resource": "*", "Condition": condition}
    text = json.dumps({"Version": "2012-10-17", "Statement": [statement]})
    create_policy(OPERATOR, ann.account_id, "no-secrets", text)
    attach_to_member(OPERATOR, ann.account_id, Person.objects.get(email=developer.email).pk, "no-secrets")
    restore = ann.at(f"deleted-queues/{queue.uuid}/restore")
    assert developer.post(restore, {"new_name": "mine"}).status_code == 403
    queue.refresh_from_db()
    assert queue.state == "kept"


def test_deleted_queue_of_another_account_is_not_found(ann: Browser) -> None:
    bob = owner("bob@example.com")
    keep_for(ann, "7")
    queue = deleted(ann)
    assert bob.post(bob.at(f"deleted-queues/{queue.uuid}/restore"), {"new_name": "mine"}).status_code == 404
    assert bob.post(bob.at(f"deleted-queues/{queue.uuid}/end")).status_code == 404
