"""The document of an account's definitions. Pure.

    {"format": "penstock.definitions/1", "account_id": "...",
     "queues":   [{"name", "attributes": {SQS name: text}, "tags": {key: value}, "quotas": {name: number}}],
     "policies": [{"name", "policy": {...}}],
     "next_after": the name from which on the account has more queues, where it has}

It is read strictly: what it does not know is refused. ARNs of the account that it was exported from become those of the
account that reads it. Messages, keys and people are no part of it, nor are schedules: their bodies are messages.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Annotated, Any, Final, Literal

import msgspec

FORMAT: Final = "penstock.definitions/1"
QUEUES_MAX = 500
POLICIES_MAX = 500

Text = Annotated[str, msgspec.Meta(max_length=200_000)]
Name = Annotated[str, msgspec.Meta(min_length=1, max_length=128)]


class QueueDefinition(msgspec.Struct, forbid_unknown_fields=True, frozen=True):
    """`attributes` are those that differ from the defaults, `quotas` those of the queue itself. A document without them
    says nothing of quotas: they stay."""

    name: Name
    attributes: dict[Name, Text] = {}
    tags: dict[Text, Text] = {}
    quotas: dict[Name, int] | msgspec.UnsetType = msgspec.UNSET


class PolicyDefinition(msgspec.Struct, forbid_unknown_fields=True, frozen=True):
    name: Name
    policy: dict[str, Any]


class Definitions(msgspec.Struct, forbid_unknown_fields=True, frozen=True):
    format: Literal["penstock.definitions/1"]
    account_id: Annotated[str, msgspec.Meta(pattern=r"^[0-9]{12}$")]
    queues: Annotated[list[QueueDefinition], msgspec.Meta(max_length=QUEUES_MAX)] = []
    policies: Annotated[list[PolicyDefinition], msgspec.Meta(max_length=POLICIES_MAX)] = []
    next_after: Name | msgspec.UnsetType = msgspec.UNSET


class DefinitionsProblem(Exception):
    """Why a document is none, or is not applied; the text is for the caller."""

    def __init__(self, text: str, code: str = "invalid-definitions") -> None:
        super().__init__(text)
        self.code = code


def read_definitions(content: object, account_id: str) -> Definitions:
    """From what a strict JSON parser gave, as definitions of this account. Raises DefinitionsProblem."""
    try:
        found = msgspec.convert(content, Definitions)
        if found.account_id != account_id:
            found = msgspec.convert(_moved(content, found.account_id, account_id), Definitions)
    except msgspec.ValidationError as error:
        raise DefinitionsProblem(f"The document is not one of {FORMAT}: {error}.") from None
    _require_once("queue", [one.name for one in found.queues])
    _require_once("policy", [one.name for one in found.policies])
    return msgspec.structs.replace(found, account_id=account_id)


def write_definitions(definitions: Definitions) -> bytes:
    """With indents, for people who keep it beside their code."""
    return msgspec.json.format(msgspec.json.encode(definitions), indent=2) + b"\n"


def _require_once(kind: str, names: Sequence[str]) -> None:
    seen: set[str] = set()
    for name in names:
        if name in seen:
            raise DefinitionsProblem(f"The document has the {kind} {name!r} twice.")
        seen.add(name)


def _moved(content: Any, old: str, new: str) -> Any:
    """Resources (`arn:aws:sqs:region:ACCOUNT:...`) of the old account as those of the new one, also inside of texts
    that are JSON. Account ids elsewhere stay: they name others."""
    pattern = re.compile(rf'(arn:aws:(?:sqs|penstock):[^:\s"]*:){old}(?=:)')

    def walk(value: Any) -> Any:
        if isinstance(value, str):
            return pattern.sub(rf"\g<1>{new}", value)
        if isinstance(value, dict):
            return {key: walk(one) for key, one in value.items()}
        return [walk(one) for one in value] if isinstance(value, list) else value

    return walk(content)
