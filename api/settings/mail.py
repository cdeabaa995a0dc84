"""Reads `smtp://user:password@host:port?security=starttls|tls|none`; without a URL mails are files of a folder."""

from __future__ import annotations

import os
from typing import NamedTuple
from urllib.parse import parse_qsl, unquote, urlsplit

MAIL_URL = "PENSTOCK_MAIL_URL"
_PORTS = {"starttls": 587, "tls": 465, "none": 25}
SMTP_TIMEOUT_S = 10


class MailServer(NamedTuple):
    host: str
    port: int
    user: str
    password: str
    security: str


def parse_mail_url(url: str) -> MailServer:
    """Raises ValueError; its text never quotes the URL, which may hold a password."""
    parts = urlsplit(url)
    options = dict(parse_qsl(parts.query, keep_blank_values=True))
    security = options.pop("security", "starttls")
    if parts.scheme != "smtp" or not parts.hostname or parts.path not in ("", "/"):
        raise ValueError("must be of the form smtp://user:password@host:port")
    if security not in _PORTS or options:
        raise ValueError("security must be starttls, tls or none, and nothing else may be asked for")
    user, password = unquote(parts.username or ""), unquote(parts.password or "")
    return MailServer(parts.hostname, parts.port or _PORTS[security], user, password, security)


def mail_settings(url: str, folder: str, secrets_dir: str) -> dict[str, object]:
    """Django's settings. The default folder is `mail` beside the secrets directory."""
    if not url:
        place = folder or os.path.join(os.path.dirname(os.path.abspath(secrets_dir)), "mail")
        return {"EMAIL_BACKEND": "api.people.mails.PrivateFolderBackend", "EMAIL_FILE_PATH": place}
    server = parse_mail_url(url)
    return {
        "EMAIL_BACKEND": "django.core.mail.backends.smtp.EmailBackend",
        "EMAIL_HOST": server.host,
        "EMAIL_PORT": server.port,
        "EMAIL_HOST_USER": server.user,
        "EMAIL_HOST_PASSWORD": server.password,
        "EMAIL_USE_TLS": server.security == "starttls",
        "EMAIL_USE_SSL": server.security == "tls",
        "EMAIL_TIMEOUT": SMTP_TIMEOUT_S,
    }
