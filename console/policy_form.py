"""A policy document as a form and back. Pure.

The form holds statements, each a set of lines: one action, resource, principal or value a line. Whether a document is
a policy is for the evaluator's parser to say; what the form cannot hold stays with the text.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

from frontend.authz import PolicyError, PolicyKind, compile_policy

VERSION = "2012-10-17"
# Fields of one form; documents have fewer (frontend/authz/policy_limits.py).
STATEMENTS_MAX = 100
CONDITIONS_MAX = 20
_EVERYONE = "*"
PRINCIPAL_KINDS = ("AWS", "Service", "Federated", "CanonicalUser")


class NotForForm(Exception):
    """The text is a policy, or none, that the form cannot hold; the text of the error says why."""


class ConditionForm(NamedTuple):
    operator: str = ""
    key: str = ""
    values: str = ""


class StatementForm(NamedTuple):
    """The members with a choice of name, as `Action` or `NotAction`, have it beside their lines."""

    sid: str = ""
    effect: str = "Allow"
    action_member: str = "Action"
    actions: str = ""
    resource_member: str = "Resource"
    resources: str = _EVERYONE
    principal_member: str = "Principal"
    principals: str = ""
    conditions: tuple[ConditionForm, ...] = ()


class PolicyForm(NamedTuple):
    version: str = VERSION
    policy_id: str = ""
    statements: tuple[StatementForm, ...] = (StatementForm(),)


def form_of(text: str, kind: PolicyKind) -> PolicyForm:
    """Raises NotForForm."""
    if not text.strip():
        return PolicyForm()
    try:
        compile_policy(text, kind, "form")
    except PolicyError as error:
        raise NotForForm(f"{error.path}: {error.text}. Correct it in the JSON first.") from None
    document = json.loads(text, parse_int=str, parse_float=str)
    given = _listed(document["Statement"])
    if len(given) > STATEMENTS_MAX:
        raise NotForForm(f"The form holds at most {STATEMENTS_MAX} statements.")
    return PolicyForm(document.get("Version", ""), _optional(document, "Id"), tuple(map(_statement_form, given)))


def text_of(form: PolicyForm, kind: PolicyKind) -> str:
    """Indented JSON. Nothing is checked: what is missing in the form is missing in the text."""
    document: dict[str, Any] = {}
    if form.version:
        document["Version"] = form.version
    if form.policy_id:
        document["Id"] = form.policy_id
    document["Statement"] = [_statement_json(one, kind) for one in form.statements]
    return json.dumps(document, indent=2, ensure_ascii=False)


def read_form(fields: Mapping[str, str]) -> PolicyForm:
    """From the fields of a page, as `policy_fields.html` names them."""
    count = _count(fields.get("statements", ""), STATEMENTS_MAX)
    statements = tuple(_read_statement(fields, f"s{number}_") for number in range(count))
    return PolicyForm(fields.get("version", VERSION), fields.get("policy_id", "").strip(), statements)


def changed(form: PolicyForm, asked: str) -> PolicyForm:
    """After a press of one of the form's buttons: `add-statement`, `remove-statement:0`, `add-condition:0`,
    `remove-condition:0:1`. Anything else changes nothing."""
    what, _, rest = asked.partition(":")
    places = [int(one) for one in rest.split(":") if one.isascii() and one.isdigit() and len(one) < 4]
    statements = list(form.statements)
    if what == "add-statement" and len(statements) < STATEMENTS_MAX:
        statements.append(StatementForm())
    elif places and places[0] < len(statements):
        place, one = places[0], statements[places[0]]
        conditions = list(one.conditions)
        if what == "remove-statement":
            del statements[place]
        elif what == "add-condition" and len(conditions) < CONDITIONS_MAX:
            statements[place] = one._replace(conditions=(*conditions, ConditionForm()))
        elif what == "remove-condition" and len(places) > 1 and places[1] < len(conditions):
            del conditions[places[1]]
            statements[place] = one._replace(conditions=tuple(conditions))
    return form._replace(statements=tuple(statements))


# --- text -> form ---


def _statement_form(given: Mapping[str, Any]) -> StatementForm:
    action, resource, principal = (_named(given, name) for name in ("Action", "Resource", "Principal"))
    conditions = [
        ConditionForm(_line(operator), _line(key), _lines(_listed(values)))
        for operator, keys in given.get("Condition", {}).items()
        for key, values in keys.items()
    ]
    if len(conditions) > CONDITIONS_MAX:
        raise NotForForm(f"The form holds at most {CONDITIONS_MAX} conditions of a statement.")
    return StatementForm(
        _optional(given, "Sid"),
        given["Effect"],
        action,
        _lines(_listed(given[action])),
        resource,
        _lines(_listed(given[resource])) if resource in given else "",
        principal,
        _principal_lines(given.get(principal)),
        tuple(conditions),
    )


def _optional(given: Mapping[str, Any], name: str) -> str:
    return _line(given[name]) if given.get(name) else ""


def _named(given: Mapping[str, Any], name: str) -> str:
    return f"Not{name}" if f"Not{name}" in given else name


def _principal_lines(given: Any) -> str:
    if given is None:
        return ""
    if given == _EVERYONE:
        return _EVERYONE
    return _lines(f"{kind} {one}" for kind, listed in given.items() for one in map(_line, _listed(listed)))


def _lines(values: Iterable[Any]) -> str:
    return "\n".join(map(_line, values))


def _line(value: Any) -> str:
    """Raises NotForForm for what would not come back from a line as it is."""
    text = json.dumps(value) if not isinstance(value, str) else value
    if not text or text != text.strip() or len(text.splitlines()) != 1:
        raise NotForForm("A value is empty, or has blanks at its ends or several lines: edit it as JSON.")
    return text


def _listed(value: Any) -> list[Any]:
    return value if isinstance(value, list) else [value]


# --- form -> text ---


def _statement_json(form: StatementForm, kind: PolicyKind) -> dict[str, Any]:
    made: dict[str, Any] = {}
    if form.sid:
        made["Sid"] = form.sid
    made["Effect"] = form.effect
    if kind is PolicyKind.RESOURCE and form.principals.strip():
        made[form.principal_member] = _principals_json(form.principals)
    made[form.action_member] = _short(form.actions)
    if form.resources.strip():
        made[form.resource_member] = _short(form.resources)
    conditions: dict[str, dict[str, list[str]]] = {}
    for one in form.conditions:
        conditions.setdefault(one.operator, {}).setdefault(one.key, []).extend(_split(one.values))
    if conditions:
        made["Condition"] = {
            operator: {key: _one_or_all(values) for key, values in keys.items()}
            for operator, keys in conditions.items()
        }
    return made


def _principals_json(lines: str) -> Any:
    if lines.strip() == _EVERYONE:
        return _EVERYONE
    found: dict[str, list[str]] = {}
    for line in _split(lines):
        kind, _, name = line.partition(" ")
        if kind not in PRINCIPAL_KINDS:
            kind, name = "AWS", line
        found.setdefault(kind, []).append(name.strip())
    return {kind: _one_or_all(names) for kind, names in found.items()}


def _short(lines: str) -> str | list[str]:
    return _one_or_all(_split(lines))


def _one_or_all(values: list[str]) -> str | list[str]:
    return values[0] if len(values) == 1 else values


def _split(lines: str) -> list[str]:
    return [line.strip() for line in lines.splitlines() if line.strip()]


# --- fields ---


def _read_statement(fields: Mapping[str, str], prefix: str) -> StatementForm:
    def text(name: str) -> str:
        return fields.get(prefix + name, "").strip()

    count = _count(fields.get(f"{prefix}conditions", ""), CONDITIONS_MAX)
    conditions = tuple(
        ConditionForm(*(text(f"c{number}_{part}") for part in ConditionForm._fields)) for number in range(count)
    )
    return StatementForm(
        text("sid"),
        text("effect"),
        _choice(text("action_member"), "Action"),
        text("actions"),
        _choice(text("resource_member"), "Resource"),
        text("resources"),
        _choice(text("principal_member"), "Principal"),
        text("principals"),
        conditions,
    )


def _choice(given: str, name: str) -> str:
    return f"Not{name}" if given == f"Not{name}" else name


def _count(text: str, most: int) -> int:
    return min(int(text), most) if text.isascii() and text.isdigit() and len(text) < 4 else 0
