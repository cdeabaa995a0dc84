"""Where mails go: a private folder, or a server named by a URL."""

from __future__ import annotations

import stat
from pathlib import Path

import pytest
from django.core import mail
from django.test import override_settings

from api.people import mails
from api.settings.mail import mail_settings, parse_mail_url


@pytest.mark.parametrize(
    ("url", "expected"),
    [
        ("smtp://mail.example.com", ("mail.example.com", 587, "", "", "starttls")),
        ("smtp://u%40x:p%2Fw@mail.example.com:2525?security=none", ("mail.example.com", 2525, "u@x", "p/w", "none")),
        ("smtp://mail.example.com/?security=tls", ("mail.example.com", 465, "", "", "tls")),
    ],
)
def test_url_of_a_server_is_read(url: str, expected: tuple[object, ...]) -> None:
    assert tuple(parse_mail_url(url)) == expected


@pytest.mark.parametrize(
    "url",
    [
        "http://u:topsecret@x",
        "smtp://",
        "smtp://u:topsecret@x/path",
        "smtp://u:topsecret@x?security=maybe",
        "smtp://u:topsecret@x?security=",
        "smtp://u:topsecret@x?tls=1",
        "smtp://u:topsecret@x:port",
    ],
)
def test_url_that_is_none_is_refused_without_being_quoted(url: str) -> None:
    with pytest.raises(ValueError) as caught:
        parse_mail_url(url)
    assert "topsecret" not in str(caught.value)


def test_server_is_used_with_its_security() -> None:
    found = mail_settings("smtp://u:p@x?security=tls", "", "/s/secrets")
    assert (found["EMAIL_USE_SSL"], found["EMAIL_USE_TLS"], found["EMAIL_PORT"]) == (True, False, 465)
    found = mail_settings("smtp://u:p@x", "", "/s/secrets")
    assert (found["EMAIL_USE_SSL"], found["EMAIL_USE_TLS"], found["EMAIL_HOST_PASSWORD"]) == (False, True, "p")


def test_folder_is_beside_the_secrets_unless_it_is_named() -> None:
    assert mail_settings("", "", "/data/secrets/")["EMAIL_FILE_PATH"] == "/data/mail"
    assert mail_settings("", "/elsewhere", "/data/secrets")["EMAIL_FILE_PATH"] == "/elsewhere"


def test_mail_is_a_file_of_a_folder_that_only_this_user_reads(tmp_path: Path) -> None:
    found = mail_settings("", str(tmp_path / "mail"), "/data/secrets")
    with override_settings(**found):
        mails.send_sign_up_token("ann@example.com", "pstc_" + "x" * 43)
        assert not hasattr(mail, "outbox") or not mail.outbox
    folder = tmp_path / "mail"
    assert stat.S_IMODE(folder.stat().st_mode) == 0o700
    (file,) = folder.iterdir()
    text = file.read_text()
    assert "To: ann@example.com" in text and "pstc_" + "x" * 43 in text
    assert "From: Penstock <penstock@localhost>" in text


def test_url_of_the_server_may_stand_in_a_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from api.settings.environment import SettingsError, environment

    file = tmp_path / "url"
    file.write_text("smtp://u:topsecret@mail.example.com\n")
    monkeypatch.setenv("PENSTOCK_MAIL_URL_FILE", str(file))
    read = environment.__wrapped__
    assert read().mail_url == "smtp://u:topsecret@mail.example.com"
    file.write_text("smtp://u:topsecret@x?security=maybe")
    with pytest.raises(SettingsError) as caught:
        read()
    assert "PENSTOCK_MAIL_URL" in str(caught.value) and "topsecret" not in str(caught.value)
