"""`manage.py operate_keys list ACCOUNT | disable|enable|revoke KEY | rotate KEY [--grace S]`: keys of any account.

Answers are JSON on stdout. Secrets of a rotated key are shown this once.
"""

from __future__ import annotations

import json
from datetime import datetime
from typing import Any

from django.core.management.base import BaseCommand, CommandError, CommandParser
from django.core.serializers.json import DjangoJSONEncoder

from api import clock
from api.accounts import selectors
from api.accounts.actions import AccountError, delete_key
from api.accounts.models import AccessKey
from api.accounts.selectors import account_named
from api.accounts.serializers import KeySerializer
from api.audit.actions import OPERATOR
from api.iam import limits
from api.iam.actions.keys import rotate_key, set_key_active
from api.iam.errors import IamError
from api.limits import KEYS_PER_ACCOUNT_MAX
from api.settings.environment import environment


class Command(BaseCommand):
    help = "List the keys of an account; switch off, revoke or rotate a key."

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("verb", choices=["list", "disable", "enable", "revoke", "rotate"])
        parser.add_argument("what", help="name or id of the account; id of the key")
        parser.add_argument("--grace", type=int, default=limits.ROTATION_GRACE_S_DEFAULT, help="seconds")

    def handle(self, *args: Any, **options: Any) -> None:
        try:
            do = {"list": _list, "disable": _switch, "enable": _switch, "revoke": _revoke, "rotate": _rotate}
            answer = do[options["verb"]](options)
        except (AccountError, IamError) as error:
            raise CommandError(str(error)) from None
        self.stdout.write(json.dumps(answer, cls=DjangoJSONEncoder))


def _list(options: dict[str, Any]) -> Any:
    keys = selectors.keys_of(account_named(options["what"]).id, "", KEYS_PER_ACCOUNT_MAX)
    now = clock.now()
    return [{**KeySerializer(key).data, "state": _state(key, now)} for key in keys]


def _state(key: AccessKey, now: datetime) -> str:
    if key.expires_at is not None and key.expires_at <= now:
        return "expired"
    return "active" if key.active else "inactive"


def _switch(options: dict[str, Any]) -> Any:
    key = _key(options["what"])
    key = set_key_active(OPERATOR, key.account_id, key.access_key_id, options["verb"] == "enable")
    return {"access_key_id": key.access_key_id, "state": _state(key, clock.now())}


def _revoke(options: dict[str, Any]) -> Any:
    key = _key(options["what"])
    delete_key(OPERATOR, key.account_id, key.access_key_id)
    return {"access_key_id": key.access_key_id}


def _rotate(options: dict[str, Any]) -> Any:
    if not 0 <= options["grace"] <= limits.ROTATION_GRACE_S_MAX:
        raise CommandError(f"--grace must be between 0 and {limits.ROTATION_GRACE_S_MAX}")
    key = _key(options["what"])
    new = rotate_key(OPERATOR, key.account_id, key.access_key_id, options["grace"])
    return {
        "account_id": key.account_id,
        "access_key_id": new.key.access_key_id,
        "secret_access_key": new.secret_access_key,
        "bearer_token": new.bearer_token,
        "region": environment().region,
    }


def _key(access_key_id: str) -> AccessKey:
    key = AccessKey.objects.filter(access_key_id=access_key_id).first()
    if key is None:
        raise CommandError(f"there is no key {access_key_id!r}; see ./penstock keys list --account NAME")
    return key
