"""Sessions of browsers: how they begin and end, and what a page of another site can do with them."""

from __future__ import annotations

import logging
import time

import pytest
from django.test import Client

from tests.console.browsing import PASSWORD, Browser, mailed_token, person

pytestmark = pytest.mark.django_db
COOKIE = "penstock_session"


def test_person_signs_up_confirms_and_stands_in_the_account() -> None:
    browser = person("new@example.com")
    answer = browser.get(browser.at())
    assert answer.status_code == 200 and b"Account of new@example.com" in answer.content


def test_session_cookie_is_out_of_reach_of_scripts_and_of_other_sites(ann: Browser) -> None:
    cookie = ann.client.cookies[COOKIE]
    assert (cookie["httponly"], cookie["samesite"], cookie["path"]) == (True, "Lax", "/console")


def test_wrong_password_says_what_to_do_and_gives_no_session(ann: Browser) -> None:
    stranger = Browser()
    answer = stranger.sign_in(ann.email, "wrong horse battery")
    assert answer.status_code == 401 and b"Check them and try again" in answer.content
    assert COOKIE not in stranger.client.cookies and b"wrong horse" not in answer.content


def test_sign_in_ends_the_session_that_the_browser_had_before(ann: Browser) -> None:
    planted = ann.client.cookies[COOKIE].value
    victim = person("victim@example.com")
    victim.client.cookies[COOKIE] = planted
    answer = victim.client.post(
        "/console/sign-in",
        {"email": "victim@example.com", "password": PASSWORD, **victim.token("/console/join")},
        REMOTE_ADDR=victim.source,
    )
    assert answer.status_code == 302 and victim.client.cookies[COOKIE].value != planted
    attacker = Client()
    attacker.cookies[COOKIE] = planted
    assert attacker.get("/console/me").status_code == 302


def test_sign_out_ends_the_session_at_the_server(ann: Browser) -> None:
    token = ann.client.cookies[COOKIE].value
    assert ann.post("/console/sign-out").status_code == 302
    again = Client()
    again.cookies[COOKIE] = token
    assert again.get("/console/me")["Location"].startswith("/console/sign-in")


def test_form_without_its_token_changes_nothing(ann: Browser) -> None:
    answer = ann.client.post("/console/sign-out", REMOTE_ADDR=ann.source)
    assert answer.status_code == 403 and b"load the page again" in answer.content
    assert ann.get("/console/me").status_code == 200


@pytest.mark.parametrize("page", ["/console/sign-in", "/console/sign-up", "/console/reset", "/console/join"])
def test_head_of_a_page_with_a_form_is_its_get_and_submits_nothing(ann: Browser, page: str) -> None:
    """Django wants no token of a HEAD."""
    from api.people.origin import SOURCE_HEADER, SOURCE_MAC_HEADER, source_mac
    from api.secrets import internal_key

    source = f"203.0.113.9 {time.time_ns() // 1_000_000}"
    vouched = {SOURCE_HEADER: source, SOURCE_MAC_HEADER: source_mac(internal_key(), "HEAD", page.encode(), source)}
    for browser in (ann, Browser()):
        shown = browser.get(page)
        answer = browser.client.head(page, headers=vouched)
        assert answer.status_code == shown.status_code in (200, 302) and answer.content == b""
        assert answer.get("Location") == shown.get("Location")


def test_form_of_another_origin_changes_nothing_even_with_the_token(ann: Browser) -> None:
    assert ann.post("/console/sign-out", origin="http://evil.example").status_code == 403
    assert ann.get("/console/me").status_code == 200


@pytest.mark.parametrize(
    "target",
    ["https://evil.example/", "//evil.example/console", "/console//evil.example\\@", "javascript:alert(1)", "/other"],
)
def test_sign_in_leads_to_no_other_site(ann: Browser, target: str) -> None:
    ann.post("/console/sign-out")
    form = {"email": ann.email, "password": PASSWORD, "next": target}
    location = ann.post("/console/sign-in", form, "/console/sign-in")["Location"]
    assert location == "/console/"


def test_sign_in_goes_back_to_the_page_that_was_asked_for(ann: Browser) -> None:
    ann.post("/console/sign-out")
    asked = ann.get(ann.at("queues?q=a"))["Location"]
    assert asked.startswith("/console/sign-in?next=%2Fconsole%2Fa%2F")
    form = {"email": ann.email, "password": PASSWORD, "next": ann.at("queues?q=a")}
    assert ann.post("/console/sign-in", form, "/console/sign-in")["Location"] == ann.at("queues?q=a")


def test_second_factor_is_asked_for_and_a_recovery_code_stands_in(ann: Browser) -> None:
    from api.people.totp import code_at

    text = ann.post("/console/me/totp").content.decode()
    secret = text.partition('name="secret" value="')[2].partition('"')[0]
    import base64

    raw = base64.b32decode(secret + "=" * (-len(secret) % 8))
    code = code_at(raw, int(time.time()) // 30)
    shown = ann.post("/console/me/totp/confirm", {"code": code, "secret": secret})
    assert b"Recovery codes" in shown.content
    recovery = shown.content.decode().partition("<pre><code>")[2].split()[0]
    ann.post("/console/sign-out")
    assert ann.sign_in(ann.email)["Location"].startswith("/console/code")
    assert ann.get("/console/me").status_code == 302, "the password alone gives no session"
    wrong = ann.post("/console/code", {"code": "000000"}, "/console/code")
    assert wrong.status_code == 400 and b"The code is not right" in wrong.content and b"mail" not in wrong.content
    assert ann.post("/console/code", {"code": recovery}, "/console/code").status_code == 302
    assert ann.get("/console/me").status_code == 200


def test_new_password_by_mail_ends_all_sessions(ann: Browser) -> None:
    stranger = Browser()
    assert stranger.post("/console/reset", {"email": ann.email}, "/console/reset").status_code == 200
    form = {"token": mailed_token(ann.email), "password": "another horse battery"}
    assert stranger.post("/console/new-password", form, "/console/new-password").status_code == 302
    assert ann.get("/console/me").status_code == 302
    assert ann.sign_in(ann.email, "another horse battery").status_code == 302


def test_one_time_link_signs_in_once() -> None:
    from api.people.actions.console_links import make_owner_link

    link = make_owner_link("team")
    first, second = Browser(), Browser()
    answer = first.open_link(link.token, link.account_id)
    assert answer["Location"] == f"/console/a/{link.account_id}/"
    assert first.get(answer["Location"]).status_code == 200
    refused = second.open_link(link.token)
    assert refused.status_code == 400 and b"Ask for another mail, or make another link." in refused.content
    assert COOKIE not in second.client.cookies


def test_one_time_link_leads_to_no_other_site() -> None:
    from api.people.actions.console_links import make_owner_link

    answer = Browser().open_link(make_owner_link("team").token, "//evil.example")
    assert answer["Location"] == "/console/"


def test_one_time_link_has_its_token_where_no_log_sees_it() -> None:
    """What follows `#` is not sent; an address with the token signs nobody in and does not use it up."""
    import io
    import json
    from urllib.parse import urlsplit

    from django.core.management import call_command

    from api.accounts.actions import get_or_create_account
    from api.audit.actions import OPERATOR

    get_or_create_account(OPERATOR, "team")
    for who in ("--account=team", "--operator"):
        out = io.StringIO()
        call_command("console_link", who, "--json", stdout=out)
        url = urlsplit(json.loads(out.getvalue())["url"])
        assert url.fragment.startswith("pst") and "pst" not in url.query + url.path
        browser = Browser()
        page = browser.get(f"/console/link?token={url.fragment}")
        assert page.status_code == 200 and COOKIE not in browser.client.cookies
        assert url.fragment.encode() not in page.content
        assert browser.open_link(url.fragment).status_code == 302


def test_one_time_link_signs_in_as_the_owner_that_is_there(ann: Browser) -> None:
    from api.accounts.models import Account
    from api.people.actions.console_links import make_owner_link

    link = make_owner_link(Account.objects.get(pk=ann.account_id).name)
    browser = Browser()
    browser.open_link(link.token)
    assert ann.email.encode() in browser.get("/console/me").content


def test_scheme_is_believed_from_a_front_end_alone(ann: Browser) -> None:
    from api.people.origin import SOURCE_HEADER, SOURCE_MAC_HEADER, source_mac
    from api.secrets import internal_key

    forged = Browser().get("/console/sign-in", **{"X-Forwarded-Proto": "https"})
    assert forged.cookies["penstock_csrf"]["secure"] == ""
    source = f"203.0.113.9 {time.time_ns() // 1_000_000}"
    mac = source_mac(internal_key(), "GET", b"/console/sign-in", source)
    vouched = {SOURCE_HEADER: source, SOURCE_MAC_HEADER: mac, "X-Forwarded-Proto": "https"}
    assert Browser().get("/console/sign-in", **vouched).cookies["penstock_csrf"]["secure"] is True
    by_https = Browser().get("/console/sign-in", **vouched, host="127.0.0.1")
    assert by_https["Strict-Transport-Security"] == "max-age=15552000"
    assert "Strict-Transport-Security" not in forged
    assert "Strict-Transport-Security" not in Browser().get("/console/sign-in", **vouched, host="localhost")
    assert Browser().get("/console/sign-up", **vouched).status_code == 403, "vouched for another path"
    assert Browser().get("/console/sign-in", **{"X-Penstock-Scheme": "https"}).cookies["penstock_csrf"]["secure"] == ""


@pytest.mark.parametrize("scheme", ["http", "https"])
def test_foreign_host_is_refused_and_is_no_failure_of_ours(caplog: pytest.LogCaptureFixture, scheme: str) -> None:
    """Anybody can send one."""
    from api.people.origin import SOURCE_HEADER, SOURCE_MAC_HEADER, source_mac
    from api.secrets import internal_key

    source = f"203.0.113.9 {time.time_ns() // 1_000_000}"
    vouched = {
        SOURCE_HEADER: source,
        SOURCE_MAC_HEADER: source_mac(internal_key(), "GET", b"/console/sign-in", source),
        "X-Forwarded-Proto": scheme,
    }
    answer = Client().get("/console/sign-in", headers={"host": "evil.example", **vouched})
    assert answer.status_code == 400
    assert all(line.levelno <= logging.WARNING and not line.exc_info for line in caplog.records)


def test_unknown_token_of_a_mail_is_refused_on_the_form() -> None:
    stranger = Browser()
    for path in ("confirm", "new-password"):
        for token in ("pstc_" + 43 * "x", "pstc_wrong"):
            form = {"token": token, "password": PASSWORD, **stranger.token(f"/console/{path}")}
            answer = stranger.client.post(f"/console/{path}", form, REMOTE_ADDR=stranger.source)
            assert answer.status_code in (400, 401, 404, 410) and b'role="alert"' in answer.content, (path, token)
