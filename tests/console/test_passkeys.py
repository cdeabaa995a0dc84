"""Pages that ask for passkeys, with a security key of software in the place of a browser's."""

from __future__ import annotations

import re
from datetime import timedelta
from typing import Any

import pytest

from tests.console.browsing import Browser, person
from tests.support.authenticator import SoftwareAuthenticator

pytestmark = pytest.mark.django_db
ORIGIN = "http://localhost:9324"


def options(browser: Browser, path: str, page: str = "/console/me") -> dict[str, Any]:
    answer = browser.post(f"{path}/options", page=page)
    assert answer.status_code == 200, answer.content
    found: dict[str, Any] = answer.json()["options"]
    return found


def add(browser: Browser, name: str = "My phone") -> tuple[SoftwareAuthenticator, Any]:
    key = SoftwareAuthenticator(ORIGIN)
    credential = key.create(options(browser, "/console/me/passkeys"))
    return key, browser.post("/console/me/passkeys", {"name": name, "credential": credential})


def signed(browser: Browser, key: SoftwareAuthenticator, path: str, page: str, **more: str) -> Any:
    return browser.post(path, {"credential": key.get(options(browser, path, page)), **more}, page)


def test_passkey_is_added_with_recovery_codes_and_removed_by_its_button(ann: Browser) -> None:
    _, shown = add(ann, "<b>Phone</b>")
    assert b"Recovery codes" in shown.content and b"&lt;b&gt;Phone" in shown.content
    assert add(ann, "Key ring")[1].status_code == 302
    text = ann.get("/console/me").content.decode()
    for path in re.findall(r'action="(/console/me/passkeys/[0-9a-f-]+/remove)"', text):
        assert ann.post(path).status_code == 302
    assert b"A password alone opens your accounts" in ann.get("/console/me").content


def test_passkey_signs_in_without_a_password_and_goes_where_it_was_asked_to(ann: Browser) -> None:
    key, _ = add(ann)
    guest = Browser()
    page = guest.get("/console/sign-in").content
    assert b"Sign in with a passkey" in page and ORIGIN.encode() in page
    answer = signed(guest, key, "/console/sign-in/passkey", "/console/sign-in", next="/console/me")
    assert answer["Location"] == "/console/me"
    cookie = guest.client.cookies["penstock_session"]
    assert (cookie["httponly"], cookie["path"]) == (True, "/console")
    assert ann.email.encode() in guest.get("/console/me").content
    assert guest.client.cookies["penstock_passkey"].value == "", "it is of no use any more"


def test_answer_from_another_browser_than_the_one_that_was_asked_signs_nobody_in(ann: Browser) -> None:
    key, _ = add(ann)
    victim, attacker = Browser(), Browser()
    credential = key.get(options(attacker, "/console/sign-in/passkey", "/console/sign-in"))
    answer = victim.post("/console/sign-in/passkey", {"credential": credential}, "/console/sign-in")
    assert answer.status_code == 401 and b"The passkey was not accepted" in answer.content
    assert "penstock_session" not in victim.client.cookies


def test_passkey_is_the_second_step_and_a_recovery_code_stands_in(ann: Browser) -> None:
    key, shown = add(ann)
    recovery = shown.content.decode().partition("<pre><code>")[2].split()[0]
    guest = Browser()
    assert guest.sign_in(ann.email)["Location"].startswith("/console/code")
    page = guest.get("/console/code").content
    assert b"Use a passkey" in page and b"Recovery code" in page and b"Code of your authenticator" not in page
    refused = guest.post("/console/code/passkey", {"credential": "{}"}, "/console/code")
    assert refused.status_code == 401 and b"Use a passkey" in refused.content
    assert guest.get("/console/me").status_code == 302
    assert signed(guest, key, "/console/code/passkey", "/console/code").status_code == 302
    assert guest.get("/console/me").status_code == 200
    other = Browser()
    other.sign_in(ann.email)
    assert other.post("/console/code", {"code": recovery}, "/console/code").status_code == 302


def test_settings_change_after_a_recent_sign_in_for_which_a_passkey_is_enough(ann: Browser) -> None:
    from api import clock
    from api.people.models import PersonSession

    key, _ = add(ann)
    PersonSession.objects.update(authenticated_at=clock.now() - timedelta(hours=1))
    told = ann.post("/console/me/passkeys/options")
    assert told.status_code == 403 and told.json()["go"] == "/console/again?next=%2Fconsole%2Fme"
    path = re.search(r'action="(/console/me/passkeys/[0-9a-f-]+/remove)"', ann.get("/console/me").content.decode())
    assert path is not None and ann.post(path[1])["Location"].startswith("/console/again")
    assert ann.post("/console/me/passkeys", {"name": "x", "credential": "{}"})["Location"].startswith("/console/again")
    assert signed(ann, key, "/console/again/passkey", "/console/again", next="/console/me").status_code == 302
    assert ann.post(path[1])["Location"] == "/console/me"


def test_passkey_of_another_person_is_not_found(ann: Browser) -> None:
    add(ann)
    path = re.search(r'action="(/console/me/passkeys/[0-9a-f-]+/remove)"', ann.get("/console/me").content.decode())
    assert path is not None
    assert person("eve@example.com").post(path[1]).status_code == 404


@pytest.mark.parametrize("path", ["sign-in/passkey", "code/passkey", "again/passkey", "me/passkeys"])
@pytest.mark.parametrize("tail", ["", "/options"])
def test_page_of_another_site_starts_nothing(ann: Browser, path: str, tail: str) -> None:
    answer = ann.client.post(f"/console/{path}{tail}", REMOTE_ADDR=ann.source)
    assert answer.status_code == 403 and b"load the page again" in answer.content


def test_pages_of_an_address_without_passkeys_say_so_and_ask_for_none(
    ann: Browser, monkeypatch: pytest.MonkeyPatch
) -> None:
    from console import context

    changed = context.environment().model_copy(update={"endpoint": "http://10.0.0.5:9324"})
    monkeypatch.setattr(context, "environment", lambda: changed)
    assert b"visited by https and by a name" in ann.get("/console/me").content
    assert b"data-passkey" not in ann.get("/console/me").content + Browser().get("/console/sign-in").content
