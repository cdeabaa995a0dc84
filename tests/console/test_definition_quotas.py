"""Quotas of single queues in the document of definitions: exported, compared, imported, by who may."""

from __future__ import annotations

from typing import Any

import pytest

from tests.console.browsing import Browser, deny, person
from tests.console.test_definitions import Joins, applied, exported, outcomes, shop, shown

__all__ = ["shop"]

pytestmark = pytest.mark.django_db


def give(account_id: str, name: str, **quotas: int) -> None:
    from api.audit.actions import OPERATOR
    from api.quotas.single import set_queue_quotas

    set_queue_quotas(OPERATOR, account_id, name, quotas)


def given(account_id: str, name: str) -> dict[str, int]:
    from api.quotas.models import QueueQuotas

    row = QueueQuotas.objects.filter(account_id=account_id, queue__name=name).first()
    return {} if row is None else row.given


def orders(document: dict[str, Any]) -> dict[str, Any]:
    found: dict[str, Any] = next(one for one in document["queues"] if one["name"] == "orders")
    return found


def test_document_has_the_quotas_of_a_queue_and_makes_them_elsewhere(shop: Browser) -> None:
    give(shop.account_id, "orders", messages_per_s=50, requests_per_s=20)
    document = exported(shop)
    assert orders(document)["quotas"] == {"messages_per_s": 50, "requests_per_s": 20}
    assert shown(shop, document).context["changes"] == []
    bob = person("bob@example.com")
    change = next(one for one in shown(bob, document).context["changes"] if one.name == "orders")
    assert ("quota:messages_per_s", "", "50") in change.differences and given(bob.account_id, "orders") == {}
    assert outcomes(applied(bob, document))[0] == ("orders", "create", "")
    assert given(bob.account_id, "orders") == {"messages_per_s": 50, "requests_per_s": 20}
    assert given(bob.account_id, "orders-dead") == {}


def test_quotas_are_compared_then_replaced_as_a_whole_and_audited(shop: Browser) -> None:
    from api.audit.models import AuditEntry

    give(shop.account_id, "orders", messages_per_s=50, requests_per_s=20)
    document = exported(shop)
    orders(document)["quotas"] = {"messages_per_s": 60, "bytes_per_s": 4_096}
    (change,) = shown(shop, document).context["changes"]
    assert change.differences == (
        ("quota:bytes_per_s", "", "4096"), ("quota:messages_per_s", "50", "60"), ("quota:requests_per_s", "20", ""),
    )  # fmt: skip
    assert given(shop.account_id, "orders")["messages_per_s"] == 50, "looking changes nothing"
    assert outcomes(applied(shop, document)) == [("orders", "update", "")]
    assert given(shop.account_id, "orders") == {"messages_per_s": 60, "bytes_per_s": 4_096}
    entry = AuditEntry.objects.filter(account_id=shop.account_id, action="queue.set_quotas").order_by("-pk")[0]
    assert entry.subject == "queue:orders" and entry.details["quotas"]["requests_per_s"] == [20, None]
    orders(document)["quotas"] = {}
    assert outcomes(applied(shop, document)) == [("orders", "update", "")] and given(shop.account_id, "orders") == {}


def test_document_that_says_nothing_of_quotas_leaves_them(shop: Browser) -> None:
    give(shop.account_id, "orders", messages_per_s=50)
    document = exported(shop)
    del orders(document)["quotas"]
    assert shown(shop, document).context["changes"] == []
    orders(document)["attributes"]["DelaySeconds"] = "5"
    assert outcomes(applied(shop, document)) == [("orders", "update", "")]
    assert given(shop.account_id, "orders") == {"messages_per_s": 50}


def test_quotas_that_have_changed_since_they_were_shown_are_not_replaced(shop: Browser) -> None:
    document = exported(shop)
    orders(document)["quotas"] = {"messages_per_s": 60}
    digest = shown(shop, document).context["digest"]
    give(shop.account_id, "orders", messages_per_s=50)
    answer = applied(shop, document, digest)
    assert answer.status_code == 400 and b"has changed since" in answer.content
    assert given(shop.account_id, "orders") == {"messages_per_s": 50}


@pytest.mark.parametrize(
    ("quotas", "says"),
    [
        ({"queues": 5}, "no such quota"),
        ({"messages_per_s": 0}, "between 1 and 1000000"),
        ({"messages_per_s": 1_000_001}, "between 1 and 1000000"),
        ({"bytes_per_s": 1_023}, "between 1024"),
        ({"messages_per_s": 10**30}, "between 1 and 1000000"),
    ],
)
@pytest.mark.parametrize("name", ["orders", "new"])
def test_quota_that_is_none_is_refused(shop: Browser, quotas: dict[str, Any], says: str, name: str) -> None:
    document = exported(shop) | {"queues": [{"name": name, "quotas": quotas}]}
    change = next(one for one in shown(shop, document).context["changes"] if one.name == name)
    assert str(change.kind) == "refused" and says in change.problem
    assert applied(shop, document).status_code == 400


@pytest.mark.parametrize(
    "quotas", [{"messages_per_s": "5"}, {"messages_per_s": True}, {"messages_per_s": None}, [], 5, None]
)
def test_quotas_of_a_wrong_type_are_refused(shop: Browser, quotas: Any) -> None:
    document = exported(shop)
    orders(document)["quotas"] = quotas
    answer = shown(shop, document)
    assert answer.status_code == 400 and b"quotas" in answer.content and b"not one of" in answer.content


def test_quotas_that_cannot_be_read_are_left_out_and_not_confirmed(shop: Browser, join: Joins) -> None:
    give(shop.account_id, "orders", messages_per_s=50)
    document = exported(shop)
    guest = join(shop, "developer")
    deny(guest, "penstock:GetQueueQuotas", "orders")
    seen = exported(guest)
    assert "quotas" not in orders(seen) and seen["queues"][1]["quotas"] == {}
    assert [one for one in shown(guest, seen).context["changes"] if one.what == "queue"] == []
    right = shown(guest, document).context["changes"]
    orders(document)["quotas"] = {"messages_per_s": 51}
    assert shown(guest, document).context["changes"] == right
    assert "getqueuequotas" in right[0].problem


@pytest.mark.parametrize("name", ["orders", "new"])
def test_quotas_are_set_by_who_may_set_them_alone(shop: Browser, join: Joins, name: str) -> None:
    guest = join(shop, "developer")
    deny(guest, "penstock:PutQueueQuotas", name)
    document = exported(shop) | {"queues": [{"name": name, "quotas": {"messages_per_s": 50}}], "policies": []}
    (change,) = shown(guest, document).context["changes"]
    assert str(change.kind) == "refused" and "putqueuequotas" in change.problem
    applied(guest, document)
    assert given(shop.account_id, name) == {}
