"""A key is switched off and on, and gets another name."""

from __future__ import annotations

import pytest
from django.core.management import CommandError, call_command

from api.accounts.models import AccessKey
from api.audit.models import AuditEntry
from tests.support.control_plane import Caller
from tests.support.iam import caller as caller
from tests.support.iam import document, record_of, restricted, run


def test_key_is_switched_off_and_on_again_with_what_it_may_do(caller: Caller) -> None:
    key = restricted(caller, document("sqs:*"))
    path = f"/v1/keys/{key.access_key_id}"
    off = caller.request("PATCH", path, {"active": False}).json()
    assert off["active"] is False and record_of(key.access_key_id).active is False
    assert caller.request("POST", f"{path}/rotation").status_code == 400, "a key that is off cannot be rotated"
    on = caller.request("PATCH", path, {"active": True}).json()
    assert on["active"] is True and on["restricted"] is True and record_of(key.access_key_id).active is True
    changes = AuditEntry.objects.filter(subject=f"key:{key.access_key_id}", action__in=("key.disable", "key.enable"))
    assert list(changes.order_by("id").values_list("action", flat=True)) == ["key.disable", "key.enable"]
    assert caller.request("PATCH", path, {"active": True}).status_code == 200 and changes.count() == 2


def test_key_gets_another_name(caller: Caller) -> None:
    path = f"/v1/keys/{caller.access_key_id}"
    answer = caller.request("PATCH", path, {"name": "payroll"})
    assert answer.json()["name"] == "payroll" and record_of(caller.access_key_id).name == "payroll"
    assert AuditEntry.objects.get(action="key.rename").details["before"] == "key"
    for bad in ("", "a\nb", "x" * 65, None):
        assert caller.request("PATCH", path, {"name": bad}).status_code == 400, bad
    assert AccessKey.objects.get(pk=caller.access_key_id).name == "payroll"


def test_operator_switches_a_key_off_and_on(caller: Caller) -> None:
    for verb, state in (("disable", "inactive"), ("enable", "active")):
        assert run("operate_keys", verb, caller.access_key_id)["state"] == state
        assert run("operate_keys", "list", "tests")[0]["state"] == state
    with pytest.raises(CommandError, match="no key"):
        call_command("operate_keys", "disable", "AKPS")
