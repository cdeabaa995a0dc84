"""Definitions of an account: what a document holds, what it would change, and what its import does."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest

from tests.console.browsing import Browser, deny, deny_in_account, person, queue_row
from tests.support.scripted_storage import ScriptedStorage

pytestmark = pytest.mark.django_db
Joins = Callable[[Browser, str], Browser]
HTML = '<script>alert(1)</script>"'
POLICY = {"Version": "2012-10-17", "Statement": [{"Effect": "Allow", "Action": "sqs:*", "Resource": "*"}]}


@pytest.fixture
def shop(ann: Browser, storage: ScriptedStorage) -> Browser:
    """With a queue that has a dead-letter queue, and a policy."""
    from api.audit.actions import OPERATOR
    from api.iam.actions.policies import create_policy
    from api.queues.actions import tag_queue

    queue_row(ann.account_id, "orders-dead")
    redrive = {"deadLetterTargetArn": f"arn:aws:sqs:us-east-1:{ann.account_id}:orders-dead", "maxReceiveCount": 3}
    queue_row(ann.account_id, "orders", VisibilityTimeout="90", RedrivePolicy=json.dumps(redrive))
    tag_queue(OPERATOR, ann.account_id, "orders", {"team": "checkout"})
    create_policy(OPERATOR, ann.account_id, "all-queues", json.dumps(POLICY, separators=(",", ":")))
    return ann


def exported(browser: Browser) -> dict[str, Any]:
    answer = browser.get(browser.at("definitions/document"))
    assert answer.status_code == 200 and answer["Content-Type"] == "application/json"
    assert answer["Content-Disposition"] == f'attachment; filename="penstock-{browser.account_id}.json"'
    found: dict[str, Any] = json.loads(answer.content)
    return found


def shown(browser: Browser, document: object) -> Any:
    """The page that shows what would change."""
    text = document if isinstance(document, str) else json.dumps(document)
    return browser.post(browser.at("definitions"), {"document": text}, browser.at("definitions"))


def applied(browser: Browser, document: object, digest: str | None = None) -> Any:
    page = shown(browser, document)
    if digest is None:
        digest = page.context["digest"]
    form = {"what": "import", "digest": digest, "document": json.dumps(document)}
    return browser.post(browser.at("definitions"), form, browser.at("definitions"))


def outcomes(answer: Any) -> list[tuple[str, str, str]]:
    return [(one.name, str(one.kind), one.problem) for one in answer.context["result"].outcomes]


def attributes(account_id: str, name: str) -> dict[str, str]:
    from api.queues.models import Queue

    found: dict[str, str] = Queue.objects.get(account_id=account_id, name=name).attributes
    return found


def test_document_holds_what_differs_from_the_defaults(shop: Browser) -> None:
    document = exported(shop)
    orders, dead = document["queues"]
    assert (document["format"], document["account_id"]) == ("penstock.definitions/1", shop.account_id)
    assert (orders["name"], orders["tags"]) == ("orders", {"team": "checkout"})
    assert orders["attributes"].keys() == {"VisibilityTimeout", "RedrivePolicy"}
    assert dead == {"name": "orders-dead", "attributes": {}, "tags": {}, "quotas": {}}
    assert document["policies"] == [{"name": "all-queues", "policy": POLICY}]


def test_own_document_changes_nothing(shop: Browser) -> None:
    page = shown(shop, exported(shop))
    assert page.context["changes"] == [] and page.context["same"] == 3
    assert "Import these changes" not in page.content.decode()


def test_document_of_another_account_makes_the_same_there(shop: Browser) -> None:
    document = exported(shop)
    bob = person("bob@example.com")
    assert outcomes(applied(bob, document)) == [
        ("orders", "create", ""), ("orders-dead", "create", ""), ("all-queues", "create", ""),
    ]  # fmt: skip
    assert exported(bob) == json.loads(json.dumps(document).replace(shop.account_id, bob.account_id))
    redrive = json.loads(attributes(bob.account_id, "orders")["RedrivePolicy"])
    assert redrive["deadLetterTargetArn"].endswith(f":{bob.account_id}:orders-dead")


def test_changes_are_shown_before_they_are_made(shop: Browser) -> None:
    document = exported(shop)
    document["queues"][0] |= {"attributes": {"DelaySeconds": "5"}, "tags": {"stage": "test"}}
    (change,) = shown(shop, document).context["changes"]
    assert {(one.field, one.after) for one in change.differences} == {
        ("DelaySeconds", "5"), ("RedrivePolicy", ""), ("VisibilityTimeout", "30"),
        ("tag:stage", "test"), ("tag:team", ""),
    }  # fmt: skip
    assert attributes(shop.account_id, "orders")["VisibilityTimeout"] == "90", "looking changes nothing"
    assert outcomes(applied(shop, document)) == [("orders", "update", "")]
    after = exported(shop)["queues"][0]
    assert after == {"name": "orders", "attributes": {"DelaySeconds": "5"}, "tags": {"stage": "test"}, "quotas": {}}


def test_queues_that_the_document_does_not_name_stay(shop: Browser) -> None:
    document = exported(shop)
    document["queues"] = [{"name": "new", "attributes": {}, "tags": {}}]
    assert outcomes(applied(shop, document)) == [("new", "create", "")]
    assert [one["name"] for one in exported(shop)["queues"]] == ["new", "orders", "orders-dead"]


def test_what_has_changed_since_it_was_shown_is_not_applied(shop: Browser) -> None:
    from api.audit.actions import OPERATOR
    from api.queues.actions import set_queue_attributes

    document = exported(shop)
    document["queues"][0]["attributes"]["DelaySeconds"] = "5"
    digest = shown(shop, document).context["digest"]
    set_queue_attributes(OPERATOR, shop.account_id, "orders", {"DelaySeconds": "7"})
    answer = applied(shop, document, digest)
    assert answer.status_code == 400 and b"has changed since" in answer.content
    assert attributes(shop.account_id, "orders")["DelaySeconds"] == "7"


def test_import_goes_on_where_the_time_was_over(shop: Browser, monkeypatch: pytest.MonkeyPatch) -> None:
    from api.definitions import importing

    document = exported(shop)
    document["queues"] = [{"name": f"n{number}", "attributes": {}, "tags": {}} for number in range(3)]
    monkeypatch.setattr(importing, "IMPORT_S_MAX", -1.0)
    answer = applied(shop, document)
    assert answer.context["result"] == ([], 3) and b"were not started" in answer.content
    assert exported(shop)["queues"][0]["name"] == "n0", "one step is taken in any case"
    monkeypatch.undo()
    assert len(outcomes(applied(shop, document))) == 2


def test_comparison_counts_in_the_time_of_an_import(shop: Browser, monkeypatch: pytest.MonkeyPatch) -> None:
    from types import SimpleNamespace

    from api.definitions import importing

    now_s, compare = [0.0], importing.compare

    def slow(*asked: Any) -> Any:
        now_s[0] += importing.IMPORT_S_MAX + 1
        return compare(*asked)

    document = exported(shop)
    document["queues"] = [{"name": f"n{number}", "attributes": {}, "tags": {}} for number in range(3)]
    monkeypatch.setattr(importing, "time", SimpleNamespace(monotonic=lambda: now_s[0]))
    monkeypatch.setattr(importing, "compare", slow)
    assert applied(shop, document).context["result"].left == 3
    assert [one["name"] for one in exported(shop)["queues"]] == ["n0", "orders", "orders-dead"]


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ('{"format": "penstock.definitions/1", "account_id": "111111111111", "queues": [], "queues": []}', "twice"),
        ('{"format": "penstock.definitions/2", "account_id": "111111111111"}', "not one of"),
        ('{"format": "penstock.definitions/1", "account_id": "111111111111", "more": 1}', "more"),
        ('{"format": "penstock.definitions/1", "account_id": "1"}', "account_id"),
        ('{"format": "penstock.definitions/1", "account_id": "111111111111", "queues": [{"name": 7}]}', "name"),
        ("{", "not valid JSON"),
        ("[" * 5_000, "nested too deeply"),
        ('{"a": NaN}', "not valid JSON"),
        ("", "not valid JSON"),
    ],
)
def test_document_is_read_strictly(shop: Browser, change: str, says: str) -> None:
    answer = shown(shop, change)
    assert answer.status_code == 400 and says in answer.content.decode()


def test_queue_that_stands_twice_is_refused(shop: Browser) -> None:
    document = exported(shop)
    document["queues"] *= 2
    assert b"twice" in shown(shop, document).content


@pytest.mark.parametrize(
    "queue",
    [
        {"name": "a b"},
        {"name": "orders", "attributes": {"DelaySeconds": "soon"}},
        {"name": "orders", "attributes": {"Unknown": "1"}},
        {"name": "orders", "attributes": {"FifoQueue": "true"}},
        {"name": "orders", "tags": {"": "x"}},
    ],
)
def test_one_that_is_refused_keeps_the_whole_document_out(shop: Browser, queue: dict[str, Any]) -> None:
    document = {**exported(shop), "queues": [{"name": "new"}, queue]}
    page = shown(shop, document)
    assert page.context["refused"] and b"Nothing is imported while something is refused" in page.content
    assert applied(shop, document).status_code == 400
    assert "new" not in [one["name"] for one in exported(shop)["queues"]]


def test_names_and_values_are_shown_as_text(shop: Browser) -> None:
    document = {**exported(shop), "queues": [{"name": HTML}, {"name": "new", "tags": {"k": HTML}}]}
    assert "<script>alert" not in shown(shop, document).content.decode()


def test_reader_exports_and_imports_nothing(shop: Browser, join: Joins) -> None:
    guest = join(shop, "reader")
    document = exported(guest)
    assert [one["name"] for one in document["queues"]] == ["orders", "orders-dead"]
    assert b"Show what would change" not in guest.get(guest.at("definitions")).content
    document["queues"].append({"name": "new"})
    assert shown(guest, document).status_code == 403 and applied(guest, document, "x").status_code == 403


def test_developer_imports_queues_and_no_policies(shop: Browser, join: Joins) -> None:
    guest = join(shop, "developer")
    document = exported(guest) | {"policies": [{"name": "mine", "policy": POLICY}], "queues": [{"name": "new"}]}
    kinds = {one.name: str(one.kind) for one in shown(guest, document).context["changes"]}
    assert kinds == {"new": "create", "mine": "refused"}
    assert outcomes(applied(guest, document | {"policies": []})) == [("new", "create", "")]


def test_policy_about_one_queue_counts_in_documents(shop: Browser, join: Joins) -> None:
    guest = join(shop, "developer")
    deny(guest, "sqs:*", "orders")
    assert [one["name"] for one in exported(guest)["queues"]] == ["orders-dead"]
    document = exported(shop)
    document["queues"][0]["attributes"]["DelaySeconds"] = "5"
    (change,) = [one for one in shown(guest, document).context["changes"] if one.what == "queue"]
    assert str(change.kind) == "refused" and not change.differences


@pytest.mark.parametrize("actions", ["sqs:GetQueueAttributes", "sqs:ListQueueTags"])
def test_guess_of_what_cannot_be_read_is_not_confirmed(shop: Browser, join: Joins, actions: str) -> None:
    guest = join(shop, "developer")
    document = exported(shop)
    deny(guest, actions, "orders")
    right = shown(guest, document).context["changes"]
    document["queues"][0]["attributes"]["VisibilityTimeout"] = "91"
    wrong = shown(guest, document).context["changes"]
    assert [(one.name, str(one.kind)) for one in right] == [("orders", "refused")] and right == wrong
    assert actions.lower() in right[0].problem


def test_guess_of_a_policy_that_cannot_be_read_is_not_confirmed(shop: Browser, join: Joins) -> None:
    guest = join(shop, "admin")
    document = exported(shop)
    deny_in_account(guest, "penstock:GetPolicy")
    (change,) = shown(guest, document).context["changes"]
    assert (change.name, str(change.kind)) == ("all-queues", "refused") and "getpolicy" in change.problem


def test_name_that_can_neither_be_read_nor_made_looks_free(shop: Browser, join: Joins) -> None:
    guest = join(shop, "developer")
    deny(guest, "sqs:*", "orders*")
    document = exported(guest) | {"queues": [{"name": "orders"}, {"name": "orders-free"}], "policies": []}
    taken, free = shown(guest, document).context["changes"]
    assert taken.problem == free.problem.replace("orders-free", "orders") and "createqueue" in free.problem


def test_page_is_filled_with_what_can_be_read(shop: Browser, join: Joins, monkeypatch: pytest.MonkeyPatch) -> None:
    from api.definitions import exporting

    for number in range(4):
        queue_row(shop.account_id, f"a{number}")
    guest = join(shop, "developer")
    deny(guest, "sqs:GetQueueAttributes", "a*")
    monkeypatch.setattr(exporting, "QUEUES_MAX", 2)
    found = exported(guest)
    assert [one["name"] for one in found["queues"]] == ["orders", "orders-dead"] and "next_after" not in found
    first = exported(shop)
    assert ([one["name"] for one in first["queues"]], first["next_after"]) == (["a0", "a1"], "a1")
    read = shown(shop, {**first, "policies": []}).context
    assert (read["changes"], read["same"]) == ([], 2), "it can be imported with the name of the next one"


def test_empty_page_names_the_next_one(shop: Browser, join: Joins, monkeypatch: pytest.MonkeyPatch) -> None:
    from api.definitions import exporting

    for number in range(4):
        queue_row(shop.account_id, f"a{number}")
    guest = join(shop, "developer")
    deny(guest, "sqs:GetQueueAttributes", "a*")
    monkeypatch.setattr(exporting, "QUEUES_MAX", 2)
    monkeypatch.setattr(exporting, "QUEUES_READ_MAX", 4)
    assert (exported(guest)["queues"], exported(guest)["next_after"]) == ([], "a3")
    rest = json.loads(guest.get(guest.at("definitions/document?after=a3")).content)
    assert [one["name"] for one in rest["queues"]] == ["orders", "orders-dead"] and "next_after" not in rest


@pytest.mark.parametrize("action", ["penstock:GetDefinitions", "penstock:ImportDefinitions"])
def test_policy_about_definitions_counts_on_the_page(shop: Browser, join: Joins, action: str) -> None:
    guest = join(shop, "developer")
    document = exported(guest) | {"queues": [{"name": "new"}]}
    deny_in_account(guest, action)
    is_export = action == "penstock:GetDefinitions"
    assert guest.get(guest.at("definitions/document")).status_code == (403 if is_export else 200)
    assert shown(guest, document).status_code == (200 if is_export else 403)


def test_rest_exports_compares_and_imports(shop: Browser) -> None:
    from api.accounts.actions import create_key
    from api.audit.actions import OPERATOR
    from tests.support.control_plane import Caller

    caller = Caller(shop.account_id, create_key(OPERATOR, shop.account_id, "key").key.access_key_id)
    document = caller.request("GET", "/v1/definitions?prefix=orders-").json()
    assert [one["name"] for one in document["queues"]] == ["orders-dead"]
    document["queues"].append({"name": "new.fifo", "attributes": {"ContentBasedDeduplication": "true"}})
    compared = caller.request("POST", "/v1/definitions/comparison", document).json()
    assert [(one["name"], one["kind"]) for one in compared["changes"]] == [
        ("orders-dead", "none"), ("new.fifo", "create"), ("all-queues", "none"),
    ]  # fmt: skip
    ask = {"definitions": document, "digest": compared["digest"]}
    answer = caller.request("POST", "/v1/definitions/import", ask).json()
    assert answer == {"outcomes": [{"what": "queue", "name": "new.fifo", "kind": "create", "problem": ""}], "left": 0}
    again = caller.request("POST", "/v1/definitions/import", ask)
    assert (again.status_code, again.json()["code"]) == (412, "precondition-failed")
    assert caller.request("POST", "/v1/definitions/import", {**ask, "more": 1}).status_code == 400
    assert caller.request("POST", "/v1/definitions/comparison", []).status_code == 400
