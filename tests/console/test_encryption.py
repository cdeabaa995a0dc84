"""Encryption keys on pages: made, rotated, disabled, deleted after a typed name; chosen for queues."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from tests.console.browsing import Browser, deny, make_queue, person, queue_row

pytestmark = pytest.mark.django_db
Joins = Callable[[Browser, str], Browser]


def make_key(browser: Browser, name: str = "payments") -> Any:
    from api.encryption.models import EncryptionKey

    here = browser.at("encryption-keys")
    assert browser.post(here, {"name": name, "description": "of cards"}, here).status_code == 302
    return EncryptionKey.objects.get(account_id=browser.account_id, name=name)


def test_key_goes_through_its_states(ann: Browser) -> None:
    key = make_key(ann)
    page = ann.at(f"encryption-keys/{key.pk}")
    states = []
    for form in (
        {"what": "rotate"},
        {"what": "disable"},
        {"what": "enable"},
        {"what": "delete", "days": "7", "typed": "payments"},
        {"what": "keep"},
    ):
        assert ann.post(page, form, page).status_code == 302, form
        key.refresh_from_db()
        states.append(key.state)
    assert states == ["enabled", "disabled", "enabled", "pending_deletion", "disabled"]
    text = ann.get(page).content.decode()
    assert key.versions.count() == 2 and "encryption_key.rotate" in text and ann.email in text
    change = {"what": "update", "description": "new", "shared_accounts": "123456789012, 210987654321"}
    assert ann.post(page, change, page).status_code == 302
    key.refresh_from_db()
    assert key.description == "new" and key.shared_accounts == ["123456789012", "210987654321"]


@pytest.mark.parametrize(
    "form", [{"typed": "payment", "days": "7"}, {"typed": "payments", "days": "6"}, {"typed": "payments", "days": "x"}]
)
def test_key_is_not_deleted_without_its_name_and_a_waiting_period(ann: Browser, form: dict[str, str]) -> None:
    key = make_key(ann)
    page = ann.at(f"encryption-keys/{key.pk}")
    assert ann.post(page, {"what": "delete", **form}, page).status_code == 400
    key.refresh_from_db()
    assert key.state == "enabled"


def test_use_of_a_key_is_shown_by_hour(ann: Browser) -> None:
    from api.encryption.actions import note_uses

    key = make_key(ann)
    note_uses({key.pk: (1234, 5678)})
    text = ann.get(ann.at(f"encryption-keys/{key.pk}")).content.decode()
    assert "1,234" in text and "5,678" in text


@pytest.mark.django_db(transaction=True)
def test_key_is_chosen_in_the_form_of_a_queue_and_shows_that_queue(ann: Browser, storage: Any) -> None:
    key = make_key(ann)
    assert 'value="alias/payments"' in ann.get(ann.at("new-queue")).content.decode()
    answer = make_queue(ann, "cards", KmsMasterKeyId="alias/payments")
    assert answer.status_code == 302, answer.content
    assert "queues/cards" in ann.get(ann.at(f"encryption-keys/{key.pk}")).content.decode()


@pytest.mark.django_db(transaction=True)
def test_key_that_a_policy_denies_cannot_be_given_to_a_queue(ann: Browser, join: Joins, storage: Any) -> None:
    import json
    import uuid

    from api.audit.actions import OPERATOR
    from api.iam.actions.policies import attach_to_member, create_policy
    from api.people.models import Person

    key = make_key(ann)
    queue = queue_row(ann.account_id, "orders")
    guest = join(ann, "developer")
    arn = f"arn:aws:penstock:*:*:encryption-key/{key.pk}"
    statement = {"Effect": "Deny", "Action": "penstock:UseEncryptionKey", "Resource": arn}
    text = json.dumps({"Version": "2012-10-17", "Statement": [statement]})
    create_policy(OPERATOR, ann.account_id, "not-this", text)
    attach_to_member(OPERATOR, ann.account_id, uuid.UUID(str(Person.objects.get(email=guest.email).pk)), "not-this")
    for named in ("alias/payments", str(key.pk)):
        assert make_queue(guest, "cards", KmsMasterKeyId=named).status_code == 403
        form = {"KmsMasterKeyId": named, "version": ""}
        assert guest.post(guest.at("queues/orders/edit"), form, guest.at("queues/orders/edit")).status_code == 403
    queue.refresh_from_db()
    assert queue.encryption_key == ""
    assert make_queue(ann, "cards", KmsMasterKeyId="alias/payments").status_code == 302


@pytest.mark.django_db(transaction=True)
def test_queue_that_a_policy_does_not_let_be_made_is_not(ann: Browser, join: Joins, storage: Any) -> None:
    guest = join(ann, "developer")
    deny(guest, "sqs:CreateQueue", "secret-orders")
    assert make_queue(guest, "secret-orders").status_code == 403
    assert make_queue(guest, "other-orders").status_code == 302


@pytest.mark.parametrize("role", ["developer", "reader"])
def test_who_may_not_manage_keys_sees_no_buttons_and_is_refused(ann: Browser, join: Joins, role: str) -> None:
    key = make_key(ann)
    guest = join(ann, role)
    page = guest.at(f"encryption-keys/{key.pk}")
    text = guest.get(page).content.decode() + guest.get(guest.at("encryption-keys")).content.decode()
    for offered in ("Rotate</button>", "Disable</button>", "Schedule the deletion", "Create a key", "Save</button>"):
        assert offered not in text, offered
    for what in ("update", "rotate", "enable", "disable", "delete", "keep"):
        assert guest.post(page, {"what": what, "typed": "payments", "days": "7"}).status_code == 403, what
    assert guest.post(guest.at("encryption-keys"), {"name": "mine"}).status_code == 403
    key.refresh_from_db()
    assert key.state == "enabled" and key.versions.count() == 1


def test_key_of_another_account_is_not_here(ann: Browser) -> None:
    bob = person("bob@example.com")
    key = make_key(bob)
    for path in (ann.at(f"encryption-keys/{key.pk}"), bob.at(f"encryption-keys/{key.pk}"), bob.at("encryption-keys")):
        assert ann.get(path).status_code == 404, path
        assert ann.post(path, {"what": "disable"}).status_code == 404, path
    assert ann.get(ann.at("encryption-keys/not-an-id")).status_code == 404
    key.refresh_from_db()
    assert key.state == "enabled"


def test_form_of_another_site_disables_nothing(ann: Browser) -> None:
    key = make_key(ann)
    path = ann.at(f"encryption-keys/{key.pk}")
    answer = ann.client.post(path, {"what": "disable"}, REMOTE_ADDR=ann.source)
    assert answer.status_code == 403 and b"not sent from this site" in answer.content
    key.refresh_from_db()
    assert key.state == "enabled"
