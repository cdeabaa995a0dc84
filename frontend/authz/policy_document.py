"""A policy document, read strictly: every member is understood, or the document is refused. Pure.

Identity policies (what a user, role or key may do; no principal) and resource policies (who may do what with a queue;
a principal in each statement) have one grammar. What a document says is compiled by `compiled_policy.py`.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from enum import Enum
from typing import Any, NamedTuple, TypeVar

from frontend.authz import policy_limits as limits
from frontend.authz.condition_operators import ConditionOperator, OperatorUse, parse_operator
from frontend.authz.context_keys import KeyType, find_key
from frontend.authz.policy_error import PolicyError, PolicyProblem
from frontend.authz.policy_json import ROOT, JsonNumber, JsonObject, check_text, member_path, parse_json
from frontend.authz.policy_principal import Principals, parse_principals

VERSION_WITH_VARIABLES = "2012-10-17"
VERSION_ABSENT = "2008-10-17"
VERSIONS = (VERSION_WITH_VARIABLES, VERSION_ABSENT)
_IDENTITY_LAST_CHARACTER = "\u00ff"
_IDENTITY_SID = re.compile(r"[A-Za-z0-9]*", re.ASCII)
_RESOURCE_SID = re.compile(r"[ -~]*", re.ASCII)
_Read = TypeVar("_Read")


class PolicyKind(Enum):
    IDENTITY = "identity policy"
    RESOURCE = "resource policy"


class Effect(Enum):
    ALLOW = "Allow"
    DENY = "Deny"


class Text(NamedTuple):
    """A string of the document and where it stands."""

    path: str
    value: str


class ConditionEntry(NamedTuple):
    path: str
    operator: str
    use: OperatorUse
    key: str
    values: tuple[Text, ...]


class Statement(NamedTuple):
    """`not_actions` says that `actions` are those of NotAction; the same for resources and principals."""

    path: str
    ordinal: int  # from 0
    sid: str | None
    effect: Effect
    actions: tuple[Text, ...]
    not_actions: bool
    resources: tuple[Text, ...]
    not_resources: bool
    principals: Principals | None
    not_principals: bool
    conditions: tuple[ConditionEntry, ...]


class PolicyDocument(NamedTuple):
    kind: PolicyKind
    version: str
    policy_id: str | None
    statements: tuple[Statement, ...]

    @property
    def has_variables(self) -> bool:
        return self.version == VERSION_WITH_VARIABLES


class Errors(list[PolicyError]):
    """Goes on behind an error, so that a review hears of all."""

    def attempt(self, read: Callable[..., _Read], *arguments: Any) -> _Read | None:
        try:
            return read(*arguments)
        except PolicyError as error:
            self.append(error)
            return None


def parse_document(text: str, kind: PolicyKind) -> PolicyDocument:
    """Raises PolicyError, the first of those there are."""
    errors = Errors()
    document = read_document(text, kind, errors)
    if errors:
        raise errors[0]
    assert document is not None
    return document


def read_document(text: str, kind: PolicyKind, errors: Errors) -> PolicyDocument | None:
    """What could be read; None where nothing could. It is whole only where `errors` stays empty."""
    members = errors.attempt(_top_level, text, kind)
    if members is None:
        return None
    _check_members(ROOT, members, ("Version", "Id", "Statement"), errors)
    version = errors.attempt(_version, members) or VERSION_ABSENT
    policy_id = errors.attempt(_policy_id, members, kind)
    statements = []
    for index, given in enumerate(errors.attempt(_statement_list, members, kind) or ()):
        path = f"{ROOT}.Statement[{index}]" if isinstance(members["Statement"], list) else f"{ROOT}.Statement"
        statement = _statement(path, index, given, kind, errors)
        if statement is not None:
            statements.append(statement)
    document = PolicyDocument(kind, version, policy_id, tuple(statements))
    errors.attempt(_check_sids, document)
    errors.attempt(_check_patterns, document)
    if kind is PolicyKind.RESOURCE:
        errors.attempt(_check_counts, document)
    return document


def _top_level(text: str, kind: PolicyKind) -> JsonObject:
    members = parse_json(text)
    if kind is PolicyKind.RESOURCE:
        size, size_max, what = len(text.encode()), limits.QUEUE_POLICY_BYTES_MAX, "bytes"
    else:
        size, size_max = len("".join(text.split())), limits.IDENTITY_POLICY_CHARACTERS_MAX
        what = "characters without white space"
    if size > size_max:
        raise PolicyError(ROOT, f"has {size} {what}; at most {size_max} are allowed", PolicyProblem.TOO_LARGE)
    if not isinstance(members, JsonObject):
        raise PolicyError(ROOT, "must be an object")
    return members


def _version(members: JsonObject) -> str:
    version = members.get("Version", VERSION_ABSENT)
    if not isinstance(version, str) or version not in VERSIONS:
        raise PolicyError(f"{ROOT}.Version", f"must be {' or '.join(VERSIONS)}")
    return version


def _policy_id(members: JsonObject, kind: PolicyKind) -> str | None:
    if "Id" not in members:
        return None
    path, policy_id = f"{ROOT}.Id", members["Id"]
    if kind is PolicyKind.IDENTITY:
        raise PolicyError(path, "an identity policy has no Id")
    if not isinstance(policy_id, str) or len(policy_id) > limits.ID_CHARACTERS_MAX:
        raise PolicyError(path, f"must be a string of at most {limits.ID_CHARACTERS_MAX} characters")
    check_text(path, policy_id)
    return policy_id


def _statement_list(members: JsonObject, kind: PolicyKind) -> list[Any]:
    path = f"{ROOT}.Statement"
    if "Statement" not in members:
        raise PolicyError(path, "is missing")
    given = members["Statement"]
    statements = given if isinstance(given, list) else [given]
    if not statements:
        raise PolicyError(path, "must have at least one statement")
    count_max = limits.QUEUE_POLICY_STATEMENTS_MAX
    if kind is PolicyKind.IDENTITY:
        count_max = limits.IDENTITY_POLICY_STATEMENTS_MAX
    if len(statements) > count_max:
        said = f"{len(statements)} statements were found in the submitted policy, max allowed is {count_max}"
        raise PolicyError(path, said, PolicyProblem.TOO_MANY)
    return statements


# --- a statement ---

_STATEMENT_MEMBERS = (
    "Sid", "Effect", "Principal", "NotPrincipal", "Action", "NotAction", "Resource", "NotResource", "Condition",
)  # fmt: skip


def _statement(path: str, index: int, given: Any, kind: PolicyKind, errors: Errors) -> Statement | None:
    if not isinstance(given, JsonObject):
        errors.append(PolicyError(path, "must be an object"))
        return None
    before = len(errors)
    _check_members(path, given, _STATEMENT_MEMBERS, errors)
    sid = errors.attempt(_sid, path, given, kind)
    effect = errors.attempt(_effect, path, given)
    actions = errors.attempt(_one_of_pair, path, given, "Action", _texts)
    resources = errors.attempt(_one_of_pair, path, given, "Resource", _texts)
    principals: tuple[Principals | None, bool] | None = (None, False)
    if kind is PolicyKind.RESOURCE:
        principals = errors.attempt(_one_of_pair, path, given, "Principal", parse_principals)
    else:
        errors.attempt(_check_no_principal, path, given)
    if principals is not None and principals[1] and effect is Effect.ALLOW:
        said = "is for Deny only: with Allow it would let in everyone else, name the principals instead"
        errors.append(PolicyError(f"{path}.NotPrincipal", said))
    conditions = _conditions(f"{path}.Condition", given, errors)
    for text in _all_texts(actions, resources, conditions):
        errors.attempt(_check_characters, text, kind)
    if len(errors) > before or effect is None or actions is None or resources is None or principals is None:
        return None
    return Statement(path, index, sid, effect, *actions, *resources, *principals, tuple(conditions))


def _sid(path: str, given: JsonObject, kind: PolicyKind) -> str | None:
    if "Sid" not in given:
        return None
    path, sid = f"{path}.Sid", given["Sid"]
    allowed, words = _RESOURCE_SID, "printable ASCII characters"
    if kind is PolicyKind.IDENTITY:
        allowed, words = _IDENTITY_SID, "letters A-Z, a-z and digits"
    if not isinstance(sid, str) or len(sid) > limits.SID_CHARACTERS_MAX or allowed.fullmatch(sid) is None:
        raise PolicyError(path, f"must be at most {limits.SID_CHARACTERS_MAX} {words}")
    return sid or None


def _effect(path: str, given: JsonObject) -> Effect:
    effect = given.get("Effect")
    if not isinstance(effect, str) or effect not in (Effect.ALLOW.value, Effect.DENY.value):
        raise PolicyError(f"{path}.Effect", "must be Allow or Deny, in this spelling")
    return Effect(effect)


def _one_of_pair(path: str, given: JsonObject, name: str, read: Callable[[str, Any], _Read]) -> tuple[_Read, bool]:
    """The member or its Not form, of which a statement has one; and whether it is the Not form."""
    inverse = f"Not{name}"
    if name in given and inverse in given:
        raise PolicyError(f"{path}.{inverse}", f"must not stand beside {name}")
    if name not in given and inverse not in given:
        raise PolicyError(f"{path}.{name}", f"is missing; a statement has {name} or {inverse}")
    is_inverse = inverse in given
    found = inverse if is_inverse else name
    return read(f"{path}.{found}", given[found]), is_inverse


def _check_no_principal(path: str, given: JsonObject) -> None:
    for name in ("Principal", "NotPrincipal"):
        if name in given:
            raise PolicyError(f"{path}.{name}", "an identity policy names no principal: it is of the one who holds it")


def _texts(path: str, given: Any) -> tuple[Text, ...]:
    return tuple(_listed(path, given, _text))


def _text(path: str, given: Any) -> Text:
    if not isinstance(given, str) or not given:
        raise PolicyError(path, "must be a string that is not empty")
    return Text(path, given)


def _listed(path: str, given: Any, read: Callable[[str, Any], _Read]) -> list[_Read]:
    """A list with one entry may stand without its list. An empty one says nothing, and is refused."""
    if not isinstance(given, list):
        return [read(path, given)]
    if not given:
        raise PolicyError(path, "must not be empty")
    return [read(f"{path}[{index}]", one) for index, one in enumerate(given)]


# --- conditions ---


def _conditions(path: str, statement: JsonObject, errors: Errors) -> list[ConditionEntry]:
    given = statement.get("Condition", JsonObject())
    if not isinstance(given, JsonObject):
        errors.append(PolicyError(path, "must be an object of operators"))
        return []
    _check_repeated(path, given, errors, ignore_case=True)
    entries = []
    for name, keys in given.items():
        at = member_path(path, name)
        use = errors.attempt(parse_operator, at, name)
        if not isinstance(keys, JsonObject) or not keys:
            errors.append(PolicyError(at, "must be an object of condition keys, with one at least"))
            continue
        _check_repeated(at, keys, errors, ignore_case=True)
        for key, values in keys.items():
            key_path = member_path(at, key)
            errors.attempt(_check_key, key_path, key)
            read = errors.attempt(_listed, key_path, values, _condition_value)
            if use is not None and read is not None:
                entries.append(ConditionEntry(key_path, name, use, key, tuple(read)))
    return entries


def _check_key(path: str, key: str) -> None:
    check_text(path, key)
    prefix, colon, name = key.partition(":")
    if not colon or not prefix or not name or any(character.isspace() for character in key.partition("/")[0]):
        raise PolicyError(path, "a condition key is written prefix:name, like aws:SourceIp")


def _condition_value(path: str, given: Any) -> Text:
    if isinstance(given, bool):
        return Text(path, "true" if given else "false")
    if isinstance(given, JsonNumber):
        return Text(path, given.text)
    if not isinstance(given, str):
        raise PolicyError(path, "must be a string, a number, true or false")
    return Text(path, given)


# --- what holds for all of a document ---


def _check_members(path: str, given: JsonObject, known: tuple[str, ...], errors: Errors) -> None:
    _check_repeated(path, given, errors)
    for name in given:
        if name not in known:
            errors.append(PolicyError(member_path(path, name), f"no such member; there are {', '.join(known)}"))


def _check_repeated(path: str, given: JsonObject, errors: Errors, *, ignore_case: bool = False) -> None:
    if given.repeated is not None:
        errors.append(PolicyError(member_path(path, given.repeated), "stands twice"))
    elif ignore_case and len({name.lower() for name in given}) < len(given):
        errors.append(PolicyError(path, "has a name twice: upper and lower case do not differ here"))


def _check_characters(text: Text, kind: PolicyKind) -> None:
    if kind is PolicyKind.IDENTITY:
        check_text(*text, _IDENTITY_LAST_CHARACTER)
    else:
        check_text(*text)


def _all_texts(
    actions: tuple[tuple[Text, ...], bool] | None,
    resources: tuple[tuple[Text, ...], bool] | None,
    conditions: list[ConditionEntry],
) -> list[Text]:
    texts = [text for entry in conditions for text in entry.values]
    for pair in (actions, resources):
        texts += pair[0] if pair is not None else ()
    return texts


def _check_sids(document: PolicyDocument) -> None:
    seen = set()
    for statement in document.statements:
        if statement.sid is not None and statement.sid in seen:
            raise PolicyError(f"{statement.path}.Sid", "another statement has this Sid")
        seen.add(statement.sid)


def _check_counts(document: PolicyDocument) -> None:
    statements = document.statements
    for statement in statements:
        if len(statement.actions) > limits.QUEUE_POLICY_ACTIONS_PER_STATEMENT_MAX:
            raise _too_many(statement.path, "actions", len(statement.actions), "a statement")
    principals = sum(one.principals.entries_count for one in statements if one.principals is not None)
    if principals > limits.QUEUE_POLICY_PRINCIPALS_MAX:
        raise _too_many(ROOT, "principals", principals, "a queue policy")
    conditions = sum(len(one.conditions) for one in statements)
    if conditions > limits.QUEUE_POLICY_CONDITIONS_MAX:
        raise _too_many(ROOT, "conditions", conditions, "a queue policy")


def count_floating_patterns(document: PolicyDocument) -> int:
    """The patterns that cost a step for every character that they are compared with (policy_limits.py)."""
    texts = [text for one in document.statements for text in one.resources]
    texts += [text for one in document.statements for entry in one.conditions for text in entry.values]
    return sum(_is_floating(text.value) for text in texts)


def count_several_values_wildcards(document: PolicyDocument) -> int:
    """Of conditions on keys of several values: each value of a request is compared with them (policy_limits.py)."""
    return sum(
        _wildcards(entry.use.operator, text.value, document.has_variables)
        for statement in document.statements
        for entry in statement.conditions
        if (key := find_key(entry.key)) is not None and key.type is KeyType.STRINGS
        for text in entry.values
    )


def _wildcards(operator: ConditionOperator, value: str, variables: bool) -> int:
    """What it counts as. A plain text is found at once among all those of its condition."""
    if operator.family in ("Null", "Bool"):
        return 0
    count = 0 if operator.family == "String" else limits.WILDCARDS_OF_A_READ_VALUE
    if operator.family == "Arn" or "Like" in operator.name:
        count += value.count("*") + value.count("?")
        count += limits.WILDCARDS_OF_A_FLOATING_PATTERN if _is_floating(value) else 0
    return count + (value.count("${") * limits.WILDCARDS_OF_A_VARIABLE if variables else 0)


def _is_floating(value: str) -> bool:
    return "?" in "".join(value.split("*")[1:-1])


def _check_patterns(document: PolicyDocument) -> None:
    count = count_floating_patterns(document)
    if count > limits.FLOATING_PATTERNS_MAX:
        raise _too_many(ROOT, _FLOATING, count, "a policy")
    count = count_several_values_wildcards(document)
    if count > limits.SEVERAL_VALUES_WILDCARDS_MAX:
        raise _too_many(ROOT, _OF_SEVERAL_VALUES, count, "a policy")


_FLOATING = "patterns with a ? between two *"
_OF_SEVERAL_VALUES = "wildcards in conditions on keys of several values"
_COUNTS_MAX = {
    "actions": limits.QUEUE_POLICY_ACTIONS_PER_STATEMENT_MAX,
    "principals": limits.QUEUE_POLICY_PRINCIPALS_MAX,
    "conditions": limits.QUEUE_POLICY_CONDITIONS_MAX,
    _FLOATING: limits.FLOATING_PATTERNS_MAX,
    _OF_SEVERAL_VALUES: limits.SEVERAL_VALUES_WILDCARDS_MAX,
}


def _too_many(path: str, what: str, count: int, whole: str) -> PolicyError:
    said = f"{count} {what} were found, {whole} has at most {_COUNTS_MAX[what]}"
    return PolicyError(path, said, PolicyProblem.TOO_MANY)
