"""The control plane under test: settings, a PostgreSQL server, and requests as a front end makes them.

`set_up()` runs when the conftest of a folder that needs Django is imported, before Django's settings are read. Folders
that do not need Django never pay for it.
"""

from __future__ import annotations

import atexit
import functools
import json
import os
import secrets
import shutil
import tempfile
import time
import uuid
from typing import Any, NamedTuple

from tests.support.postgres import name_database

SECRET_NAMES = ("master.key", "internal.key", "receipt.key", "django.key", "pepper.key")
CLUSTER_ID = "pk-test"
# What `set_up` puts into the environment, and a worker has to put there for itself.
VARIABLES = (
    "CELERY_BROKER_URL", "DATABASE_URL", "DJANGO_SETTINGS_MODULE", "PENSTOCK_CLUSTER_ID", "PENSTOCK_SECRETS_DIR",
)  # fmt: skip


def set_up() -> None:
    """Safe to call from several folders."""
    name_database()
    if "PENSTOCK_SECRETS_DIR" not in os.environ:
        directory = tempfile.mkdtemp(prefix="pksec-")
        atexit.register(shutil.rmtree, directory, ignore_errors=True)
        for name in SECRET_NAMES:
            with open(os.path.join(directory, name), "w", encoding="ascii") as file:
                file.write(secrets.token_hex(32))
        os.environ["PENSTOCK_SECRETS_DIR"] = directory
    os.environ.setdefault("PENSTOCK_CLUSTER_ID", CLUSTER_ID)
    # Not `setdefault`: importing the front end names its own, which know of no model.
    os.environ["DJANGO_SETTINGS_MODULE"] = "api.settings.project"
    # Nothing listens there: a hint that a test did not ask for fails at once, and is not missed.
    os.environ.setdefault("CELERY_BROKER_URL", "redis://127.0.0.1:1/0")
    import django

    django.setup()
    _look_for_static_files_once()


@functools.cache
def _look_for_static_files_once() -> None:
    """Each of Django's test clients makes its own middleware, which looks at every static file: two fifths of what its
    first request costs, and most have one."""
    from whitenoise.middleware import WhiteNoiseMiddleware

    look, found = WhiteNoiseMiddleware.add_files_from_finders, {}

    def look_once(self: WhiteNoiseMiddleware) -> None:
        if not found:
            look(self)
            found.update(self.files)
        self.files.update(found)

    WhiteNoiseMiddleware.add_files_from_finders = look_once


def stop_threads() -> None:
    """Before the test database is dropped: what still holds a connection to it ends."""
    from django.db import connection

    from api.queues.readiness import announcements

    announcements.stop()
    # Threads of asgiref keep their connections for themselves.
    with connection.cursor() as cursor:
        cursor.execute(
            "SELECT pg_terminate_backend(pid) FROM pg_stat_activity"
            " WHERE datname = current_database() AND pid <> pg_backend_pid()"
        )


class Caller(NamedTuple):
    """An account with a key, and the requests a front end would send for it."""

    account_id: str
    access_key_id: str
    source_ip: str = ""
    user_agent: str | None = None

    def headers(self, method: str, target: str, body: bytes = b"", age_ms: int = 0) -> dict[str, str]:
        from api.secrets import internal_key
        from frontend.authn.principal import PERSON_PREFIX, Principal, PrincipalKind
        from frontend.authn.vouching import vouch

        is_person = self.access_key_id.startswith(PERSON_PREFIX)
        who = Principal(
            self.account_id,
            self.access_key_id,
            source_ip=self.source_ip,
            user_agent=self.user_agent,
            kind=PrincipalKind.PERSON if is_person else PrincipalKind.KEY,
            request_id="req-1",
        )
        return dict(vouch(internal_key(), method, target.encode(), body, who, int(time.time() * 1000) - age_ms))

    def request(self, method: str, target: str, content: Any = None, **headers: str) -> Any:
        """Django's answer."""
        from django.test import Client

        body = b"" if content is None else json.dumps(content).encode()
        given = {**self.headers(method, target, body), **headers}
        return Client().generic(method, target, body, content_type="application/json", headers=given)

    def sqs(self, action: str, **params: Any) -> Any:
        asked = {"account_id": self.account_id, "name": self.access_key_id, "params": params}
        return self.request("POST", f"/internal/sqs/{action}", asked)


def new_caller(name: str = "tests") -> Caller:
    """Needs the database."""
    from api.accounts.actions import create_key, get_or_create_account
    from api.audit.actions import OPERATOR

    account = get_or_create_account(OPERATOR, name)
    return Caller(account.id, create_key(OPERATOR, account.id, "key").key.access_key_id)


def copy_queue(name: str, names: list[str]) -> list[Any]:
    """Rows like that of a queue, which storage knows nothing of."""
    from api.queues.models import Queue

    rows = [Queue.objects.get(name=name) for _ in names]
    for row, new_name in zip(rows, names, strict=True):
        row.pk, row.uuid, row.name = None, uuid.uuid4(), new_name
    return Queue.objects.bulk_create(rows)
