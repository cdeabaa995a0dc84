"""Quotas on pages: use against limit, requests for more, and the operator's answers."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from tests.console.browsing import Browser, person, queue_row

pytestmark = pytest.mark.django_db
Joins = Callable[[Browser, str], Browser]
REQUESTS = "/console/operators/quota-requests"


@pytest.fixture
def operator(db: None) -> Browser:
    from api.people.actions.console_links import make_operator_link

    browser = Browser()
    browser.open_link(make_operator_link())
    return browser


def ask(browser: Browser, name: str = "queues", value: str = "200000", reason: str = "more shops") -> int:
    form = {"name": name, "value": value, "reason": reason}
    return int(browser.post(browser.at("quotas"), form, browser.at("quotas")).status_code)


def test_request_goes_to_the_operator_and_its_answer_comes_back(ann: Browser, operator: Browser) -> None:
    from api.quotas.models import QuotaRequest
    from api.quotas.selectors import quota_value

    assert ask(ann) == 302
    text = operator.get(REQUESTS).content.decode()
    assert "more shops" in text and "200,000" in text and "100,000" in text
    made = QuotaRequest.objects.get(account_id=ann.account_id)
    form = {"request": str(made.pk), "what": "approve", "answer": "good luck"}
    assert operator.post(REQUESTS, form, REQUESTS).status_code == 302
    assert quota_value(ann.account_id, "queues") == 200_000
    text = ann.get(ann.at("quotas")).content.decode()
    assert "Approved" in text and "good luck" in text and "200,000" in text
    assert operator.post(REQUESTS, form, REQUESTS).status_code == 409, "it is decided once"


def test_request_that_is_refused_changes_nothing(ann: Browser, operator: Browser) -> None:
    from api.quotas.models import QuotaRequest
    from api.quotas.selectors import quota_value

    assert ask(ann) == 302 and ask(ann) == 409, "one open request for each quota"
    made = QuotaRequest.objects.get(account_id=ann.account_id)
    form = {"request": str(made.pk), "what": "refuse", "answer": "too many"}
    assert operator.post(REQUESTS, form, REQUESTS).status_code == 302
    assert quota_value(ann.account_id, "queues") == 100_000
    assert "too many" in ann.get(ann.at("quotas")).content.decode()


@pytest.mark.parametrize(("name", "value"), [("queues", "0"), ("queues", "x"), ("none", "5"), ("queues", "9" * 30)])
def test_value_that_no_quota_can_have_is_refused_with_its_bounds(ann: Browser, name: str, value: str) -> None:
    assert ask(ann, name, value) == 400


def test_use_near_the_limit_is_seen(ann: Browser) -> None:
    from api.audit.actions import OPERATOR
    from api.quotas.actions import set_quotas
    from api.quotas.notices import note_use

    for name in ("a", "b", "c"):
        queue_row(ann.account_id, name)
    set_quotas(OPERATOR, ann.account_id, {"queues": 3})
    note_use(OPERATOR, ann.account_id, "requests_per_s", "exceeded", 120)
    text = ann.get(ann.at("quotas")).content.decode()
    assert "100 %" in text and "Exceeded" in text


def test_operator_sets_quotas_and_stops_sending(ann: Browser, operator: Browser) -> None:
    from api.quotas.selectors import holder_of, quota_value

    page = f"/console/operators/accounts/{ann.account_id}/quotas"
    assert operator.post(page, {"what": "set", "name": "queues", "value": "7"}, page).status_code == 302
    assert quota_value(ann.account_id, "queues") == 7
    assert operator.post(page, {"what": "set", "name": "queues", "value": "-1"}, page).status_code == 400
    assert operator.post(page, {"what": "default", "name": "queues"}, page).status_code == 302
    assert quota_value(ann.account_id, "queues") == 100_000
    assert operator.post(page, {"what": "stop", "reason": "unpaid bill"}, page).status_code == 302
    assert "unpaid bill" in ann.get(ann.at("quotas")).content.decode()
    assert operator.post(page, {"what": "resume"}, page).status_code == 302
    assert "unpaid bill" not in ann.get(ann.at("quotas")).content.decode()
    whole = "/console/operators/quotas"
    assert operator.post(whole, {"what": "set", "name": "requests_per_s", "value": "9000"}, whole).status_code == 302
    holder = holder_of("installation")
    assert holder is not None and holder.given == {"requests_per_s": 9000}


def test_quotas_of_a_queue_are_set_shown_and_taken_away(ann: Browser) -> None:
    queue_row(ann.account_id, "orders")
    page = ann.at("queues/orders/quotas")
    form = {"requests_per_s": "1,500", "messages_per_s": "", "bytes_per_s": "2048"}
    assert ann.post(page, form, page).status_code == 302
    text = ann.get(page).content.decode()
    assert 'value="1500"' in text and "1,500 requests/s" in text and "200,000 messages/s" in text
    text = ann.get(ann.at("quotas")).content.decode()
    assert "Single queues and keys" in text and page in text and "1,500" in text
    assert ann.post(page, {}, page).status_code == 302
    assert "Single queues and keys" not in ann.get(ann.at("quotas")).content.decode()


def test_quotas_of_a_key_are_set_on_its_page(ann: Browser) -> None:
    from api.accounts.models import AccessKey
    from api.quotas.selectors import key_quotas

    assert ann.post(ann.at("keys/new"), {"name": "shop"}, ann.at("keys")).status_code == 200
    key = AccessKey.objects.get(account_id=ann.account_id).access_key_id
    page = ann.at(f"keys/{key}")
    assert ann.post(page, {"what": "quotas", "messages_per_s": "9"}, page).status_code == 302
    own = key_quotas(ann.account_id, key)
    assert own is not None and own.given == (None, 9, None)
    assert 'value="9"' in ann.get(page).content.decode() and page in ann.get(ann.at("quotas")).content.decode()
    refused = ann.post(page, {"what": "quotas", "messages_per_s": "0", "bytes_per_s": "2048"}, page)
    assert refused.status_code == 400 and 'value="2048"' in refused.content.decode(), "what was written stays"


@pytest.mark.parametrize("value", ["0", "x", "1.5", "-1", "9" * 30, "\0", "1e3"])
def test_rate_that_no_queue_can_have_is_refused_with_its_name(ann: Browser, value: str) -> None:
    from api.quotas.models import QueueQuotas

    queue_row(ann.account_id, "orders")
    page = ann.at("queues/orders/quotas")
    refused = ann.post(page, {"requests_per_s": value, "messages_per_s": "5"}, page)
    assert refused.status_code == 400 and "requests_per_s must be a whole number" in refused.content.decode()
    assert not QueueQuotas.objects.exists()


def test_reader_sees_quotas_of_a_queue_and_key_and_sets_none(ann: Browser, join: Joins) -> None:
    from api.accounts.models import AccessKey
    from api.quotas.models import KeyQuotas, QueueQuotas

    queue_row(ann.account_id, "orders")
    ann.post(ann.at("keys/new"), {"name": "shop"}, ann.at("keys"))
    key = AccessKey.objects.get(account_id=ann.account_id).access_key_id
    reader, developer = join(ann, "reader"), join(ann, "developer")
    assert "Save the quotas" not in reader.get(ann.at("queues/orders/quotas")).content.decode()
    assert reader.post(ann.at("queues/orders/quotas"), {"requests_per_s": "5"}).status_code == 403
    assert "Quotas of this key" in developer.get(ann.at(f"keys/{key}")).content.decode()
    for guest in (reader, developer):
        assert guest.post(ann.at(f"keys/{key}"), {"what": "quotas", "requests_per_s": "5"}).status_code == 403
    assert not QueueQuotas.objects.exists() and not KeyQuotas.objects.exists()


def test_pages_of_operators_are_not_there_for_owners(ann: Browser) -> None:
    from api.quotas.models import QuotaHolder

    for path in (REQUESTS, "/console/operators/quotas", f"/console/operators/accounts/{ann.account_id}/quotas"):
        assert ann.get(path).status_code == 404, path
        assert ann.post(path, {"what": "set", "name": "queues", "value": "7", "request": "1"}).status_code == 404, path
    assert not QuotaHolder.objects.exclude(given={}).exists()


def test_reader_sees_quotas_and_asks_for_none(ann: Browser, join: Joins) -> None:
    guest = join(ann, "reader")
    assert "Send the request" not in guest.get(guest.at("quotas")).content.decode()
    assert ask(guest) == 403
    assert join(ann, "billing").get(ann.at("quotas")).status_code == 403
    assert ann.get(person("bob@example.com").at("quotas")).status_code == 404


def test_form_of_another_site_asks_for_nothing(ann: Browser, operator: Browser) -> None:
    from api.quotas.models import QuotaHolder, QuotaRequest

    form = {"name": "queues", "value": "7", "what": "set"}
    for browser, path in (
        (ann, ann.at("quotas")),
        (operator, f"/console/operators/accounts/{ann.account_id}/quotas"),
        (operator, REQUESTS),
    ):
        assert browser.client.post(path, form, REMOTE_ADDR=browser.source).status_code == 403, path
    assert not QuotaRequest.objects.exists() and not QuotaHolder.objects.exclude(given={}).exists()
