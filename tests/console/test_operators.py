"""Pages of operators, and that they are for nobody else."""

from __future__ import annotations

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
