"""Pages of operators, and that they are for nobody else."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from tests.console.browsing import Browser

PATHS = ("operators/", "operators/now", "operators/accounts", "operators/accounts/{account}")


@pytest.fixture
def operator(db: None) -> Browser:
    from api.people.actions.console_links import make_operator_link

    browser = Browser()
    browser.open_link(make_operator_link())
    return browser


@pytest.mark.django_db
def test_pages_of_operators_are_not_there_for_owners(ann: Browser) -> None:
    for path in PATHS:
        assert ann.get(f"/console/{path.format(account=ann.account_id)}").status_code == 404, path
    path = f"/console/operators/accounts/{ann.account_id}"
    assert ann.post(path, {"what": "suspend", "reason": "x"}).status_code == 404
    assert ann.get(ann.at()).status_code == 200


def test_operator_is_no_member(ann: Browser, operator: Browser) -> None:
    assert operator.get("/console/")["Location"] == "/console/operators/"
    assert operator.get(ann.at("queues")).status_code == 404


def test_accounts_are_searched(ann: Browser, operator: Browser) -> None:
    for text in (ann.account_id[:6], "account of ann", "ann@exam"):
        assert ann.account_id.encode() in operator.get(f"/console/operators/accounts?q={text}").content, text
    assert b"No account matches" in operator.get("/console/operators/accounts?q=zzzz").content


def test_account_is_suspended_with_a_reason_and_resumed(ann: Browser, operator: Browser) -> None:
    from api.accounts.models import Account

    path = f"/console/operators/accounts/{ann.account_id}"
    assert operator.post(path, {"what": "suspend", "reason": " "}).status_code == 400
    assert operator.post(path, {"what": "suspend", "reason": "unpaid"}).status_code == 302
    assert not Account.objects.get(pk=ann.account_id).active
    assert b"unpaid" in ann.get(ann.at("settings")).content
    assert operator.post(path, {"what": "resume"}).status_code == 302
    assert Account.objects.get(pk=ann.account_id).active


def test_account_that_was_made_with_a_key_can_be_suspended(operator: Browser) -> None:
    from api.accounts.actions import get_or_create_account
    from api.audit.actions import OPERATOR

    account = get_or_create_account(OPERATOR, "machines")
    path = f"/console/operators/accounts/{account.pk}"
    assert operator.post(path, {"what": "suspend", "reason": "abuse"}).status_code == 302
    account.refresh_from_db()
    assert not account.active


def test_cluster_is_shown_as_the_nodes_tell(operator: Browser, monkeypatch: pytest.MonkeyPatch) -> None:
    from console.cluster import view_of
    from console.views import operators

    async def look() -> Any:
        return view_of({1: _info(1, leader=1, epoch=5), 2: _info(2, leader=2, epoch=4)}, [3])

    monkeypatch.setattr(operators, "look_at_cluster", look)
    text = operator.get("/console/operators/now").content.decode()
    assert "Node 3 does not answer" in text and "orders/0" in text and "The clock of node 2 is off" in text

    async def nothing() -> None:
        return None

    monkeypatch.setattr(operators, "look_at_cluster", nothing)
    assert "No storage node answers" in operator.get("/console/operators/now").content.decode()


def test_leader_of_a_partition_is_who_the_newest_epoch_says() -> None:
    from console.cluster import view_of

    view = view_of({1: _info(1, leader=1, epoch=5), 2: _info(2, leader=1, epoch=4)}, [])
    assert [(row.leader, row.epoch) for row in view.recent] == [(1, 5)]
    assert [(node.node_id, node.leads, node.replicas) for node in view.nodes] == [(1, 1, 1), (2, 0, 1)]


def _info(node_id: int, leader: int, epoch: int) -> Any:
    row = SimpleNamespace(
        partition=7, tag="orders/0", leader=leader, epoch=epoch, replicas=[1, 2], leader_since_ms=1, leader_reason="r"
    )
    nodes = [
        SimpleNamespace(
            node_id=one, zone="a", alive=True, why="", since_ms=1, disk_free_bytes=2**30, clock_offset_ms=9,
            clock_off=one == 2,
        )
        for one in (1, 2)
    ]  # fmt: skip
    return SimpleNamespace(nodes=nodes, partitions=[row], manager=node_id)
