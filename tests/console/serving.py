"""Pages that are served here, without storage and front ends: for flows that read and write rows alone."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, NamedTuple

from django.core import mail
from django.test.testcases import LiveServerThread

from tests.console.browsing import HOST, TOKEN
from tests.console.pictures import open_link


class ServedPages(NamedTuple):
    """What `Window` asks of an installation: where it is. The links sign in once."""

    key: dict[str, str]
    account_id: str
    owner_link: str
    operator_link: str

    def at(self, path: str) -> str:
        return f"{self.key['endpoint']}/console/{path}"

    def of_account(self, path: str = "") -> str:
        return self.at(f"a/{self.account_id}/{path}")

    def enter(self, page: Any, link: str) -> None:
        open_link(page, self.at(f"link#{link}"))


@contextmanager
def server() -> Iterator[str]:
    """Its address. Django's own test server would take the paths of the console's assets for its static files."""
    thread = LiveServerThread(HOST, lambda media: media.application)
    thread.start()
    thread.is_ready.wait()
    if thread.error is not None:
        raise thread.error
    yield f"http://{HOST}:{thread.port}"
    thread.terminate()


def serve_account(url: str, name: str) -> ServedPages:
    """With an owner who has no password yet, and an operator."""
    from api.people.actions.console_links import make_operator_link, make_owner_link

    link = make_owner_link(name)
    return ServedPages({"endpoint": url}, link.account_id, link.token, make_operator_link())


def mailed_path(email: str) -> str:
    """Where the link of the last mail to an address leads, with its token behind the `#`."""
    text = next(str(one.body) for one in reversed(mail.outbox) if one.to == [email])
    found = re.search(rf"/console/([a-z-]+#{TOKEN})", text)
    assert found is not None, text
    return found[1]
