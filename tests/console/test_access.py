"""Policies, groups, members, keys and the simulator on pages: what is offered, what is done, what is refused."""

from __future__ import annotations

import html
import json
from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest

from tests.console.browsing import Browser, deny, deny_in_account, person, queue_row

pytestmark = pytest.mark.django_db
Joins = Callable[[Browser, str], Browser]

SEND = {
    "Version": "2012-10-17",
    "Statement": [{"Sid": "s", "Effect": "Allow", "Action": "sqs:SendMessage", "Resource": "arn:aws:sqs:*:*:orders"}],
}


def person_id(browser: Browser) -> str:
    from api.people.models import Person

    return str(Person.objects.get(email=browser.email).pk)


def make_policy(browser: Browser, name: str = "send-orders", document: Any = None) -> Any:
    policy = json.dumps(SEND if document is None else document, indent=1)
    return browser.post(browser.at("new-policy"), {"name": name, "as": "json", "policy": policy}, browser.at("keys"))


def make_key(browser: Browser, name: str = "worker", **form: str) -> Any:
    from api.accounts.models import AccessKey

    assert browser.post(browser.at("keys/new"), {"name": name, **form}, browser.at("keys")).status_code == 200
    return AccessKey.objects.get(account_id=browser.account_id, name=name)


def test_new_key_is_shown_as_a_shell_takes_it(ann: Browser) -> None:
    answer = ann.post(ann.at("keys/new"), {"name": "worker"}, ann.at("keys"))
    text = html.unescape(answer.content.decode())
    for name in ("AWS_ACCESS_KEY_ID='AKPS", "AWS_SECRET_ACCESS_KEY='", "PENSTOCK_TOKEN='pstk_"):
        assert f"export {name}" in text


def test_policy_is_made_changed_and_deleted(ann: Browser) -> None:
    from api.iam.models import Policy

    assert make_policy(ann)["Location"] == ann.at("policies/send-orders")
    page = ann.at("policies/send-orders")
    assert "sqs:SendMessage" in ann.get(page).content.decode()
    fields = {"as": "form", "version": "2012-10-17", "statements": "1", "s0_effect": "Deny", "s0_resources": "*"}
    assert ann.post(page, {**fields, "s0_actions": "sqs:PurgeQueue"}, page).status_code == 302
    stored = json.loads(Policy.objects.get(account_id=ann.account_id).text)
    assert stored["Statement"] == [{"Effect": "Deny", "Action": "sqs:PurgeQueue", "Resource": "*"}]
    assert ann.post(page, {"what": "delete"}, page)["Location"] == ann.at("policies")
    assert ann.get(page).status_code == 404


def test_policy_names_its_holders_to_those_who_may_list_them(ann: Browser, join: Joins) -> None:
    make_policy(ann)
    make_key(ann, "payroll-worker", may="send-orders")
    developer, admin = join(ann, "developer"), join(ann, "admin")
    member = ann.at(f"people/{person_id(developer)}")
    assert ann.post(f"{member}/policies", {"what": "attach", "policy": "send-orders"}, member).status_code == 302
    page = ann.at("policies/send-orders")
    shown = admin.get(page).content.decode()
    assert developer.email in shown and "payroll-worker" in shown and "do not show" not in shown
    deny_in_account(admin, "penstock:List*")
    shown = admin.get(page).content.decode()
    assert developer.email not in shown and "payroll-worker" not in shown and "do not show" in shown
    assert "Delete the policy" not in shown, "it is attached"


def test_refused_policy_comes_back_with_the_member_and_its_line(ann: Browser) -> None:
    from api.iam.models import Policy

    broken = (
        '{"Version": "2012-10-17",\n "Statement": [\n  {"Effect": "allow",\n   "Action": "sqs:*", "Resource": "*"}]}'
    )
    form = {"name": "mine", "as": "json", "policy": broken}
    answer = ann.post(ann.at("new-policy"), form, ann.at("keys"))
    text = answer.content.decode()
    assert answer.status_code == 400 and "line 3" in text and "$.Statement[0].Effect" in text
    assert "&quot;allow&quot;" in text and 'value="mine"' in text, "what was typed is still there"
    assert not Policy.objects.filter(account_id=ann.account_id).exists()


def test_lint_tells_what_a_policy_does_other_than_it_seems(ann: Browser) -> None:
    policy = json.dumps({**SEND, "Statement": [{**SEND["Statement"][0], "Action": "sqs:SendMesage"}]}, indent=1)
    form = {"do": "lint", "as": "json", "policy": policy}
    text = ann.post(ann.at("policy-editor"), form).content.decode()
    assert "line 7" in text and "no such action" in text and "Note" in text and "Error" not in text
    assert (
        "Nothing is wrong" in ann.post(ann.at("policy-editor"), {**form, "policy": json.dumps(SEND)}).content.decode()
    )


def test_lint_counts_the_lines_of_the_text_as_it_was_typed(ann: Browser) -> None:
    """The field keeps the one line: a line 5 of it would lead nowhere."""
    form = {"do": "lint", "as": "json", "policy": json.dumps({**SEND, "Version": "1999"})}
    text = ann.post(ann.at("policy-editor"), form).content.decode()
    assert "Error" in text and 'data-go-line="1"' in text and "line 2" not in text


def test_policy_of_a_queue_is_reviewed_as_one_of_that_queue(ann: Browser) -> None:
    queue_row(ann.account_id, "orders")
    statement = {"Effect": "Allow", "Principal": "*", "Action": "sqs:SendMessage", "Resource": "arn:aws:sqs:*:*:other"}
    form = {"do": "lint", "as": "json", "policy": json.dumps({"Version": "2012-10-17", "Statement": statement})}
    text = ann.post(ann.at("queues/orders/policy-editor"), form).content.decode()
    assert "does not match the queue whose policy it is" in text and "opens it to everyone" in text


def test_policy_of_a_queue_is_saved_from_the_form(ann: Browser, storage: Any) -> None:
    queue = queue_row(ann.account_id, "orders")
    page = ann.at("queues/orders/access")
    fields = {
        "as": "form", "version": "2012-10-17", "statements": "1", "s0_effect": "Allow", "s0_sid": "partner",
        "s0_principals": "AWS 123456789012", "s0_actions": "sqs:SendMessage", "s0_resources": "*",
    }  # fmt: skip
    assert ann.post(page, fields, page).status_code == 302
    queue.refresh_from_db()
    (statement,) = json.loads(queue.attributes["Policy"])["Statement"]
    assert statement["Principal"] == {"AWS": "123456789012"}
    answer = ann.post(page, {**fields, "s0_principals": "AWS x"}, page)
    assert answer.status_code == 400 and "AWS x" in answer.content.decode(), "the form comes back as it was"


def test_editor_goes_from_json_to_form_and_back(ann: Browser) -> None:
    url = ann.at("policy-editor")
    as_form = ann.post(url, {"do": "form", "as": "json", "policy": json.dumps(SEND)}).content.decode()
    assert 'name="s0_actions"' in as_form and "arn:aws:sqs:*:*:orders" in as_form
    fields = {"as": "form", "version": "2012-10-17", "statements": "1", "s0_effect": "Allow", "s0_actions": "sqs:*"}
    more = ann.post(url, {**fields, "do": "add-statement"}).content.decode()
    assert 'name="s1_actions"' in more and "sqs:*" in more
    assert 'name="policy"' in ann.post(url, {**fields, "do": "json"}).content.decode()
    kept = ann.post(url, {"do": "form", "as": "json", "policy": "{"}).content.decode()
    assert "The form cannot show this policy" in kept and 'name="policy"' in kept


def test_text_of_a_policy_is_text_on_the_page(ann: Browser) -> None:
    evil = '"</textarea><script>alert(1)</script>'
    for asked in ("json", "lint", "form"):
        text = ann.post(ann.at("policy-editor"), {"do": asked, "as": "json", "policy": evil}).content.decode()
        assert "<script>" not in text, asked
    fields = {"as": "form", "statements": "1", "s0_sid": evil, "s0_actions": evil, "do": "add-condition:0"}
    assert "<script>" not in ann.post(ann.at("policy-editor"), fields).content.decode()


def test_attached_policy_cannot_be_deleted_and_says_who_has_it(ann: Browser, join: Joins) -> None:
    guest = join(ann, "reader")
    make_policy(ann)
    here = ann.at(f"people/{person_id(guest)}")
    assert ann.post(f"{here}/policies", {"what": "attach", "policy": "send-orders"}, here).status_code == 302
    page = ann.at("policies/send-orders")
    text = ann.get(page).content.decode()
    assert guest.email in text and "Delete the policy" not in text
    answer = ann.post(page, {"what": "delete"}, ann.at("keys"))
    assert answer.status_code == 409 and b"Detach it from all" in answer.content
    assert ann.post(f"{here}/policies", {"what": "detach", "policy": "send-orders"}, here).status_code == 302
    assert "Delete the policy" in ann.get(page).content.decode()


def test_group_gives_its_policies_to_its_members(ann: Browser, join: Joins, data_plane: Any) -> None:
    queue_row(ann.account_id, "orders")
    guest = join(ann, "reader")
    statement = {"Effect": "Allow", "Action": "penstock:CreateKey", "Resource": "*"}
    make_policy(ann, "keys", {"Version": "2012-10-17", "Statement": [statement]})
    assert ann.post(ann.at("groups"), {"name": "on-call"}, ann.at("groups"))["Location"] == ann.at("groups/on-call")
    page = ann.at("groups/on-call")
    assert guest.post(guest.at("keys/new"), {"name": "x"}).status_code == 403
    for form in ({"what": "add", "person": person_id(guest)}, {"what": "attach", "policy": "keys"}):
        assert ann.post(page, form, page).status_code == 302, form
    text = ann.get(page).content.decode()
    assert guest.email in text and "policies/keys" in text
    assert guest.post(guest.at("keys/new"), {"name": "x"}, guest.at("keys")).status_code == 200
    assert ann.post(page, {"what": "remove", "person": person_id(guest)}, page).status_code == 302
    assert guest.post(guest.at("keys/new"), {"name": "y"}).status_code == 403
    assert ann.post(page, {"what": "delete"}, page).status_code == 302
    assert ann.get(page).status_code == 404


def test_rights_are_given_shortly_after_the_password_alone(ann: Browser, join: Joins) -> None:
    from api import clock
    from api.iam.models import PolicyAttachment
    from api.people.models import PersonSession

    guest = join(ann, "reader")
    make_policy(ann)
    ann.post(ann.at("groups"), {"name": "on-call"}, ann.at("groups"))
    PersonSession.objects.update(authenticated_at=clock.now() - timedelta(hours=1))
    asked: list[tuple[str, dict[str, str]]] = [
        (f"people/{person_id(guest)}/policies", {"what": "attach", "policy": "send-orders"}),
        ("groups/on-call", {"what": "attach", "policy": "send-orders"}),
        ("groups/on-call", {"what": "add", "person": person_id(guest)}),
        ("policies/send-orders", {"as": "json", "policy": json.dumps(SEND)}),
    ]
    for path, form in asked:
        assert ann.post(ann.at(path), form, ann.at("keys"))["Location"].startswith("/console/again"), path
    assert not PolicyAttachment.objects.exists()


def test_owner_is_not_shut_out_by_a_policy_that_an_admin_attaches(ann: Browser, join: Joins) -> None:
    admin = join(ann, "admin")
    statement = {"Effect": "Deny", "Action": "*", "Resource": "*"}
    make_policy(admin, "no", {"Version": "2012-10-17", "Statement": [statement]})
    here = admin.at(f"people/{person_id(ann)}")
    assert admin.post(f"{here}/policies", {"what": "attach", "policy": "no"}, admin.at("keys")).status_code == 302
    assert ann.get(ann.at("keys")).status_code == 200
    assert ann.post(ann.at(f"people/{person_id(admin)}/role"), {"role": "reader"}, ann.at("people")).status_code == 302
    text = ann.get(ann.at(f"people/{person_id(ann)}")).content.decode()
    assert "An owner may do everything" in text


# --- keys ---


def test_key_with_a_policy_has_it_from_its_first_moment(ann: Browser) -> None:
    from api.iam.selectors import attached_to_key, key_rights

    make_policy(ann)
    key = make_key(ann, may="send-orders")
    assert attached_to_key(ann.account_id, key.access_key_id) == ["send-orders"]
    nothing = make_key(ann, "idle", may="-")
    found = key_rights(ann.account_id, nothing.access_key_id)
    assert found is not None and found.rights is not None and not found.rights.policy.statements
    free = make_key(ann, "root")
    found = key_rights(ann.account_id, free.access_key_id)
    assert found is not None and found.rights is None


def test_key_that_is_to_have_a_missing_policy_is_not_made(ann: Browser) -> None:
    from api.accounts.models import AccessKey

    answer = ann.post(ann.at("keys/new"), {"name": "worker", "may": "none-such"}, ann.at("keys"))
    assert answer.status_code == 404 and b"pstk_" not in answer.content
    assert not AccessKey.objects.filter(account_id=ann.account_id).exists()


def test_rotation_shows_the_new_secret_once_and_ends_the_old_key(ann: Browser) -> None:
    from api import clock
    from api.accounts.models import AccessKey

    make_policy(ann)
    old = make_key(ann, may="send-orders")
    page = ann.at(f"keys/{old.access_key_id}")
    answer = ann.post(f"{page}/rotate", {"hours": "1"}, page)
    text = answer.content.decode()
    new = AccessKey.objects.filter(account_id=ann.account_id).exclude(pk=old.pk).get()
    assert new.access_key_id in text and "pstk_" in text and old.access_key_id in text
    old.refresh_from_db()
    assert timedelta(minutes=59) < old.expires_at - clock.now() <= timedelta(hours=1)
    assert "pstk_" not in ann.get(ann.at("keys")).content.decode()
    assert "pstk_" not in ann.get(ann.at(f"keys/{new.access_key_id}")).content.decode()
    assert "send-orders" in ann.get(ann.at(f"keys/{new.access_key_id}")).content.decode()


def test_key_is_restricted_tagged_and_freed_on_its_page(ann: Browser) -> None:
    from api.iam.selectors import access_of_key

    key = make_key(ann)
    make_policy(ann)
    page = ann.at(f"keys/{key.access_key_id}")
    forms: list[dict[str, str]] = [
        {"what": "restrict"},
        {"what": "put", "as": "json", "policy": json.dumps(SEND)},
        {"what": "tag", "tags": "team=billing\nstage=test"},
        {"what": "attach", "policy_name": "send-orders"},
        {"what": "detach", "policy_name": "send-orders"},
        {"what": "remove"},
    ]
    for form in forms:
        assert ann.post(page, form, page).status_code == 302, form
    access = access_of_key(ann.account_id, key.access_key_id)
    assert access is not None and access.tags == {"team": "billing", "stage": "test"} and not access.policy
    assert ann.post(page, {"what": "free"}, page).status_code == 302
    assert access_of_key(ann.account_id, key.access_key_id) is None
    broken = ann.post(page, {"what": "put", "as": "json", "policy": "{}"}, page)
    assert broken.status_code == 400 and b"Statement" in broken.content
    assert ann.post(page, {"what": "tag", "tags": "no equals"}, page).status_code == 400


def test_key_is_switched_off_and_on_on_its_page(ann: Browser) -> None:
    key = make_key(ann)
    page = ann.at(f"keys/{key.access_key_id}")
    for what, active, offered in (("off", False, "Switch the key on"), ("on", True, "Switch the key off")):
        assert ann.post(page, {"what": what}, page).status_code == 302
        key.refresh_from_db()
        text = ann.get(page).content.decode()
        assert key.active is active and offered in text and ("Rotate the key" in text) is active


def test_key_page_of_a_reader_has_no_buttons_and_its_posts_are_refused(ann: Browser, join: Joins) -> None:
    guest = join(ann, "reader")
    key = make_key(ann)
    page = guest.at(f"keys/{key.access_key_id}")
    text = guest.get(page).content.decode()
    assert key.access_key_id in text
    for offered in ("Rotate", "Revoke", "Save the policy", "Restrict the key", "Attach", "Switch the key"):
        assert offered not in text, offered
    for what in ("attach", "detach", "put", "remove", "tag", "free", "restrict", "off", "on"):
        form = {"what": what, "as": "json", "policy": json.dumps(SEND), "policy_name": "x"}
        answer = guest.post(page, form)
        assert answer.status_code == 403 and b"Ask an owner or admin" in answer.content, what
    for tail in ("rotate", "revoke"):
        assert guest.post(f"{page}/{tail}").status_code == 403, tail


def test_policy_about_one_key_counts_on_its_page_alone(ann: Browser, join: Joins) -> None:
    from api.audit.actions import OPERATOR
    from api.iam.actions.policies import attach_to_member, create_policy

    guest = join(ann, "admin")
    one, other = make_key(ann, "one"), make_key(ann, "other")
    arn = f"arn:aws:penstock:*:*:key/{one.access_key_id}"
    statement = {"Effect": "Deny", "Action": "penstock:*Key", "Resource": arn}
    policy = json.dumps({"Version": "2012-10-17", "Statement": [statement]})
    create_policy(OPERATOR, ann.account_id, "not-this", policy)
    import uuid

    attach_to_member(OPERATOR, ann.account_id, uuid.UUID(person_id(guest)), "not-this")
    assert guest.get(guest.at(f"keys/{one.access_key_id}")).status_code == 403
    assert guest.post(guest.at(f"keys/{one.access_key_id}/revoke")).status_code == 403
    assert guest.get(guest.at(f"keys/{other.access_key_id}")).status_code == 200


# --- the title of the account ---


def test_title_of_the_account_is_changed_by_those_who_configure_it(ann: Browser, join: Joins) -> None:
    from api.audit.models import AuditEntry
    from api.people.models import AccountLife

    page, before = ann.at("settings"), AccountLife.objects.get(pk=ann.account_id).title
    for wrong in ("", "  ", "a\nb", "x" * 201):
        assert ann.post(page, {"title": wrong}, page).status_code == 400, wrong
    guest = join(ann, "developer")
    assert b'name="title"' not in guest.get(guest.at("settings")).content
    assert guest.post(guest.at("settings"), {"title": "Mine"}).status_code == 403
    assert AccountLife.objects.get(pk=ann.account_id).title == before
    for _ in range(2):
        assert ann.post(page, {"title": " <b>Shop</b> "}, page).status_code == 302
    text = ann.get(page).content.decode()
    assert "&lt;b&gt;Shop&lt;/b&gt;" in text and "<b>Shop" not in text
    (entry,) = AuditEntry.objects.filter(account_id=ann.account_id, action="account.rename")
    assert entry.details["title"] == "<b>Shop</b>" and entry.details["before"] == before


# --- audit log ---


def test_details_of_the_audit_log_are_words_and_not_code(ann: Browser) -> None:
    from api.audit.actions import OPERATOR, record

    attributes = {"RedrivePolicy": '{"maxReceiveCount": 2}', "Paused": None, "Tags": ["a", "b"]}
    record(OPERATOR, ann.account_id, "queue.create", "queue:orders", attributes=attributes, fifo=True, uuid="u")
    record(OPERATOR, ann.account_id, "queue.create", "queue:plain", attributes={}, before=0)
    text = html.unescape(ann.get(ann.at("audit")).content.decode())
    for written in ('RedrivePolicy: {"maxReceiveCount": 2}', "Paused: none", "Tags: a, b", "; "):
        assert written in text, written
    assert '<span class="muted">fifo</span> yes' in text and '<span class="muted">uuid</span> u,' in text
    assert '<span class="muted">attributes</span> none' in text and '<span class="muted">before</span> 0,' in text


# --- simulator ---


def test_simulator_tells_the_decision_and_the_statement(ann: Browser, join: Joins) -> None:
    guest = join(ann, "developer")
    queue_row(ann.account_id, "orders")
    deny(guest, "sqs:PurgeQueue", "orders")
    asked = f"who=person:{person_id(guest)}&action=sqs:PurgeQueue+sqs:SendMessage&resource=orders"
    text = ann.get(ann.at(f"simulator?{asked}")).content.decode()
    assert "Denied" in text and "no-purgequeue-orders" in text and "&quot;Deny&quot;" in text
    assert "Allowed" in text and "role/developer" in text
    assert "Allowed" in ann.get(ann.at("simulator?who=root&action=sqs:PurgeQueue&resource=orders")).content.decode()


def test_simulator_weighs_a_policy_that_nothing_has_yet(ann: Browser) -> None:
    make_policy(ann)
    base = ann.at("simulator?who=policy:send-orders&resource=orders&action=")
    text = ann.get(f"{base}sqs:SendMessage").content.decode()
    assert "Allowed" in text and "policies/send-orders" in text
    assert "Not allowed" in ann.get(f"{base}sqs:ReceiveMessage").content.decode()


@pytest.mark.parametrize(
    "query",
    [
        "action=sqs:Nothing",
        "action=sqs:SendMessage&resource=arn:x",
        "action=sqs:SendMessage&source_ip=x",
        "action=sqs:SendMessage&time=x",
        "action=sqs:SendMessage&resource_tags=x",
        "action=sqs:SendMessage&who=person:x",
        "action=sqs:SendMessage&who=nonsense",
        "action=sqs:SendMessage&who=key:%00",
    ],
)
def test_question_that_cannot_be_read_is_refused_in_words(ann: Browser, query: str) -> None:
    answer = ann.get(ann.at(f"simulator?{query}"))
    assert answer.status_code in (400, 404) and b'role="alert"' in answer.content


def test_simulator_looks_into_no_other_account(ann: Browser) -> None:
    bob = person("bob@example.com")
    key = make_key(bob, "bobs")
    make_policy(bob, "bobs-policy")
    for who in (f"key:{key.access_key_id}", f"person:{person_id(bob)}", "policy:bobs-policy"):
        answer = ann.get(ann.at(f"simulator?action=sqs:SendMessage&resource=x&who={who}"))
        assert answer.status_code == 404 and b"bobs-policy decided" not in answer.content, who


# --- attacks ---


def test_what_belongs_to_another_account_is_not_here(ann: Browser) -> None:
    bob = person("bob@example.com")
    key = make_key(bob, "bobs")
    make_policy(bob, "bobs-policy")
    bob.post(bob.at("groups"), {"name": "bobs-group"}, bob.at("groups"))
    for path in (
        f"keys/{key.access_key_id}",
        "policies/bobs-policy",
        "groups/bobs-group",
        f"people/{person_id(bob)}",
    ):
        assert ann.get(ann.at(path)).status_code == 404, path
        assert ann.get(f"/console/a/{bob.account_id}/{path}").status_code == 404, path
        form = {"what": "delete", "as": "json", "policy": "{}"}
        assert ann.post(f"/console/a/{bob.account_id}/{path}", form).status_code in (404, 405), path
    for tail in ("rotate", "revoke"):
        assert ann.post(ann.at(f"keys/{key.access_key_id}/{tail}")).status_code == 404, tail
    here = ann.at("groups")
    ann.post(here, {"name": "mine"}, here)
    answer = ann.post(ann.at("groups/mine"), {"what": "add", "person": person_id(bob)}, here)
    assert answer.status_code == 404 and bob.email.encode() not in answer.content


def test_form_of_another_site_changes_nothing(ann: Browser) -> None:
    from api.accounts.models import AccessKey
    from api.iam.models import PeopleGroup, Policy

    key = make_key(ann)
    for path, form in (
        ("new-policy", {"name": "evil", "as": "json", "policy": json.dumps(SEND)}),
        ("groups", {"name": "evil"}),
        (f"keys/{key.access_key_id}", {"what": "restrict"}),
        (f"keys/{key.access_key_id}/rotate", {"hours": "0"}),
        (f"keys/{key.access_key_id}/revoke", {}),
        (f"people/{person_id(ann)}/policies", {"what": "attach", "policy": "evil"}),
        ("policy-editor", {"do": "lint", "policy": "{}"}),
    ):
        answer = ann.client.post(ann.at(path), form, REMOTE_ADDR=ann.source)
        assert answer.status_code == 403 and b"not sent from this site" in answer.content, path
    assert AccessKey.objects.filter(account_id=ann.account_id).count() == 1
    assert not Policy.objects.exists() and not PeopleGroup.objects.exists()
