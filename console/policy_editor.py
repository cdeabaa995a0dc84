"""The editor of a policy on a page: as a form or as JSON, with what is to be said of it."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import NamedTuple

from api.iam.documents import LintRemark, lint_policy
from api.settings.environment import environment
from console.policy_form import NotForForm, PolicyForm, changed, form_of, read_form, text_of
from frontend.authz import GRANTABLE_NAMES, PolicyKind
from frontend.authz.actions import ACTION_NAMES, SQS, Target, resource_arn

JSON, FORM = "json", "form"
LINT = "lint"
# Offered where a condition is written; every operator of docs/policies.md may be.
OPERATORS = (
    "IpAddress", "NotIpAddress", "StringEquals", "StringNotEquals", "StringLike", "StringNotLike", "Bool",
    "ArnLike", "DateGreaterThan", "DateLessThan", "NumericLessThan", "Null", "ForAnyValue:StringEquals",
)  # fmt: skip
CONDITION_KEYS = (
    "aws:SourceIp", "aws:SecureTransport", "aws:CurrentTime", "aws:PrincipalArn", "aws:PrincipalAccount",
    "aws:PrincipalTag/team", "aws:ResourceTag/team", "aws:RequestTag/team", "aws:TagKeys", "aws:UserAgent",
    "aws:username", "aws:SourceArn",
)  # fmt: skip


class Editor(NamedTuple):
    """`shown` is JSON or FORM. `queue` is the name of the queue whose policy it is, "" of an identity policy. `note`
    says why the form cannot be shown."""

    shown: str
    text: str
    form: PolicyForm
    queue: str
    remarks: list[LintRemark]
    note: str = ""

    @property
    def kind(self) -> PolicyKind:
        return PolicyKind.RESOURCE if self.queue else PolicyKind.IDENTITY

    @property
    def is_refused(self) -> bool:
        return any(one.refused for one in self.remarks)

    @property
    def actions(self) -> list[tuple[str, list[str]]]:
        """What can stand in the list of actions, by service."""
        names = [f"{SQS}:{name}" for name in GRANTABLE_NAMES if name != "*"] if self.queue else ACTION_NAMES
        found: dict[str, list[str]] = {}
        for name in sorted(names):
            found.setdefault(name.partition(":")[0], []).append(name)
        return list(found.items())

    @property
    def operators(self) -> tuple[str, ...]:
        return OPERATORS

    @property
    def condition_keys(self) -> tuple[str, ...]:
        return CONDITION_KEYS


def editor(account_id: str, text: str, queue: str = "", shown: str = JSON) -> Editor:
    """Of a text as it is stored, or as a person wrote it."""
    kind = PolicyKind.RESOURCE if queue else PolicyKind.IDENTITY
    written = indented(text)
    note, form = "", PolicyForm()
    if shown == FORM:
        try:
            form = form_of(written, kind)
        except NotForForm as error:
            shown, note = JSON, str(error)
    return Editor(shown, written, form, queue, _remarks(account_id, written, queue), note)


def editor_given(account_id: str, fields: Mapping[str, str], queue: str = "") -> Editor:
    """Of the fields of the page: `do` says which button was pressed, JSON and FORM among them."""
    asked, was = fields.get("do", ""), fields.get("as", JSON)
    if asked == LINT and was != FORM:
        text = fields.get("policy", "")  # it stays in its field as it was typed: so do its lines
        return Editor(JSON, text, PolicyForm(), queue, _remarks(account_id, text, queue))
    if was != FORM:
        return editor(account_id, fields.get("policy", ""), queue, asked if asked in (JSON, FORM) else JSON)
    form = changed(read_form(fields), asked)
    kind = PolicyKind.RESOURCE if queue else PolicyKind.IDENTITY
    text = text_of(form, kind)
    return Editor(JSON if asked == JSON else FORM, text, form, queue, _remarks(account_id, text, queue))


def policy_given(fields: Mapping[str, str], queue: str = "") -> str:
    """The text that the fields of the page say."""
    if fields.get("as", JSON) != FORM:
        return fields.get("policy", "").strip()
    return text_of(read_form(fields), PolicyKind.RESOURCE if queue else PolicyKind.IDENTITY)


def indented(policy: str) -> str:
    """One line becomes many. What a person wrote in several lines, and what is no JSON or no text, stays as it is."""
    if "\n" in policy.strip():
        return policy
    try:
        many = json.dumps(json.loads(policy), indent=2, ensure_ascii=False) if policy else ""
        many.encode()  # "\ud800" is JSON, and no text that a page can hold
    except (ValueError, RecursionError):
        return policy
    return many


def _remarks(account_id: str, text: str, queue: str) -> list[LintRemark]:
    if not text.strip():
        return []
    if not queue:
        return lint_policy(text, PolicyKind.IDENTITY)
    return lint_policy(text, PolicyKind.RESOURCE, resource_arn(Target.QUEUE, environment().region, account_id, queue))
