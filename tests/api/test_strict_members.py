"""Members of request bodies take the JSON type that is asked for, and nothing that could be read as it."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from drf_spectacular.generators import SchemaGenerator
from rest_framework import serializers

from api.limits import ERRORS_TOLD_MAX, UNKNOWN_MEMBERS_TOLD_MAX
from api.people.strict import StrictSerializer
from api.queues.serializers import QueueSettingsSerializer
from frontend.limits import JSON_VALUES_MAX
from tests.support.control_plane import Caller
from tests.support.iam import caller as caller

# What a number cannot match is left as DRF has it.
LOOSE = (
    serializers.CharField, serializers.BooleanField, serializers.IntegerField, serializers.FloatField,
    serializers.ChoiceField, serializers.DecimalField,
)  # fmt: skip


def request_serializers() -> list[type[serializers.Serializer]]:
    SchemaGenerator().get_schema(request=None, public=True)  # all views are imported then
    found = {*below(StrictSerializer), QueueSettingsSerializer, *below(QueueSettingsSerializer)}
    return sorted(found, key=lambda kind: (kind.__module__, kind.__name__))


def below(kind: type[serializers.Serializer]) -> Iterator[type[serializers.Serializer]]:
    for one in kind.__subclasses__():
        yield one
        yield from below(one)


def loose_fields(field: Any, name: str) -> Iterator[str]:
    if isinstance(field, serializers.ListField | serializers.DictField):
        yield from loose_fields(field.child, f"{name}[]")
    elif type(field) in LOOSE and not field.read_only:
        yield f"{name}: {type(field).__name__}"


def test_request_members_are_strict() -> None:
    kinds = request_serializers()
    assert len(kinds) > 30
    found = [
        f"{kind.__module__}.{kind.__name__}.{loose}"
        for kind in kinds
        for name, field in kind().fields.items()
        for loose in loose_fields(field, name)
    ]
    assert not found, "Strict...Field of api/people/strict.py, instead of DRF's own"


@pytest.mark.django_db(transaction=True)
@pytest.mark.parametrize(
    ("method", "path", "body", "member"),
    [
        ("PATCH", "/v1/account", {"deletion_protection": "true"}, "/deletion_protection"),
        ("PATCH", "/v1/account", {"deletion_grace_days": "3"}, "/deletion_grace_days"),
        ("PUT", "/v1/billing/budgets/month", {"limit_minor": "500"}, "/limit_minor"),
        ("PUT", "/v1/billing/budgets/month", {"limit_minor": 500, "alert_percents": ["80"]}, "/alert_percents/0"),
        ("POST", "/v1/queues", {"name": 7}, "/name"),
        ("PATCH", "/v1/queues/orders", {"visibility_timeout_seconds": "30"}, "/visibility_timeout_seconds"),
        ("PATCH", "/v1/queues/orders", {"paused": 1}, "/paused"),
        ("POST", "/v1/keys", {"name": 12}, "/name"),
    ],
)
def test_member_of_another_type_is_refused_by_name(
    caller: Caller, method: str, path: str, body: dict[str, object], member: str
) -> None:
    answer = caller.request(method, path, body)
    assert answer.status_code == 400
    assert [one["pointer"] for one in answer.json()["errors"]] == [member]


def test_body_with_much_that_is_wrong_gets_a_short_answer(caller: Caller) -> None:
    """What is wrong with each of so many members would be many times the body."""
    asked = {"actions": [1] * 20_000, "resources": ["x"]}
    unknown = {f"m{number}": 0 for number in range(20_000)}
    for content, told_max in ((asked, ERRORS_TOLD_MAX), (unknown, UNKNOWN_MEMBERS_TOLD_MAX)):
        answer = caller.request("POST", "/v1/policies/simulate", content)
        assert answer.status_code == 400 and len(answer.json()["errors"]) == told_max
        assert len(answer.content) < 20_000


def test_body_of_more_values_than_are_taken_is_refused_unread(caller: Caller) -> None:
    asked = {"actions": [1] * JSON_VALUES_MAX, "resources": ["x"]}
    answer = caller.request("POST", "/v1/policies/simulate", asked)
    assert answer.status_code == 400 and "values" in answer.json()["detail"] and "errors" not in answer.json()
