"""Named policies of an account: created, edited as form or JSON, given to holders on their pages."""

from __future__ import annotations

from typing import NamedTuple

from django.http import Http404, HttpRequest, HttpResponse
from django.shortcuts import render

from api.iam import limits, selectors
from api.iam.actions import policies as actions
from api.iam.documents import stored_text
from api.iam.errors import IamError
from api.iam.holders import holder_counts, holders_of
from api.iam.models import Policy
from api.people.roles import Act
from console.error_notices import notice_of
from console.pages import account_page, operation_page, require_recent_sign_in, told
from console.policy_editor import LINT, Editor, editor, editor_given, policy_given
from console.policy_starts import STARTS, start_of
from console.visits import AccountVisit
from frontend.authz import PolicyKind, load_policy

PAGE_POLICIES = 100


class PolicyRow(NamedTuple):
    name: str
    holders: int
    understood: bool
    created_at: object
    modified_at: object


@operation_page("policies.list", "GET")
def policies(request: HttpRequest, visit: AccountVisit) -> HttpResponse:
    after = request.GET.get("after", "").replace("\0", "")[: limits.POLICY_NAME_CHARACTERS_MAX]
    found = selectors.policies_of(visit.account_id, after, PAGE_POLICIES + 1)
    counts = holder_counts(visit.account_id)
    rows = [_row(policy, counts.get(policy.name, 0)) for policy in found[:PAGE_POLICIES]]
    shown = {
        "policies": rows,
        "more": rows[-1].name if len(found) > PAGE_POLICIES else "",
        "creates": visit.may_change_with("policies.create"),
    }
    return render(request, "console/access/policies.html", shown)


@operation_page("policies.create", "GET", "POST")
def new_policy(request: HttpRequest, visit: AccountVisit) -> HttpResponse:
    start = start_of(request.GET.get("start", ""))
    if request.method == "GET":
        return _form(request, visit, None, editor(visit.account_id, start.policy, shown="form"), start=start.key)
    fields = _fields(request)
    name = fields.get("name", "").strip()
    try:
        actions.create_policy(visit.actor, visit.account_id, name, stored_text(policy_given(fields)))
    except IamError as error:
        return _form(request, visit, None, _as_given(visit, fields), error, name=name)
    return told(policies_url(visit, name), f"The policy {name} is created. Attach it to a key, a person or a group.")


@operation_page("policies.get", "GET", "POST")
def one_policy(request: HttpRequest, visit: AccountVisit, policy: str) -> HttpResponse:
    found = _policy_or_404(visit, policy)
    if request.method == "GET":
        return _form(request, visit, found, editor(visit.account_id, found.text, shown=request.GET.get("as", "json")))
    fields = _fields(request)
    if fields.get("what") == "delete":
        visit.require("policies.delete", policy)
        actions.delete_policy(visit.actor, visit.account_id, policy)
        return told(policies_url(visit), f"The policy {policy} is deleted.", "warn")
    visit.require("policies.update", policy)
    require_recent_sign_in(visit)
    try:
        actions.update_policy(visit.actor, visit.account_id, policy, stored_text(policy_given(fields)))
    except IamError as error:
        return _form(request, visit, found, _as_given(visit, fields), error)
    return told(policies_url(visit, policy), "The policy is changed, for all that have it.")


@account_page(Act.READ_ACCOUNT, "POST")
def policy_editor(request: HttpRequest, visit: AccountVisit) -> HttpResponse:
    """The editor after a press of one of its buttons, or what is to be said of the policy as it stands."""
    return editor_part(request, visit, f"/console/a/{visit.account_id}/policy-editor")


def editor_part(request: HttpRequest, visit: AccountVisit, url: str, queue: str = "") -> HttpResponse:
    """Nothing is stored, and nothing looked up."""
    fields = _fields(request)
    is_lint = fields.get("do") == LINT
    template = "console/access/policy/lint.html" if is_lint else "console/access/policy/editor.html"
    return render(request, template, {"editor": editor_given(visit.account_id, fields, queue), "editor_url": url})


def policies_url(visit: AccountVisit, name: str = "") -> str:
    return f"/console/a/{visit.account_id}/policies" + (f"/{name}" if name else "")


def attachable_names(visit: AccountVisit, attached: list[str]) -> list[str]:
    """Names of policies that a holder of these could be given; all that may be listed."""
    if not visit.reads_policies:
        return []
    found = selectors.policies_of(visit.account_id, "", limits.POLICIES_PER_ACCOUNT_MAX)
    return [policy.name for policy in found if policy.name not in attached]


def _row(policy: Policy, holders: int) -> PolicyRow:
    understood = load_policy(policy.text, PolicyKind.IDENTITY, policy.name).unreadable is None
    return PolicyRow(policy.name, holders, understood, policy.created_at, policy.modified_at)


def _form(
    request: HttpRequest,
    visit: AccountVisit,
    policy: Policy | None,
    shown: Editor,
    error: IamError | None = None,
    **more: object,
) -> HttpResponse:
    context = {
        "policy": policy,
        "editor": shown,
        "editor_url": f"/console/a/{visit.account_id}/policy-editor",
        "changes": policy is None or visit.may_change_with("policies.update", policy.name),
        "deletes": policy is not None and visit.may_change_with("policies.delete", policy.name),
        **({} if policy is None else _holders_shown(visit, policy)),
        "starts": STARTS,
        "refusal": notice_of(error) if error else None,
        **more,
    }
    return render(request, "console/access/policy.html", context, status=error.status if error else 200)


def _holders_shown(visit: AccountVisit, policy: Policy) -> dict[str, object]:
    """Who has the policy, as far as the visitor may see keys, members and groups."""
    found = holders_of(policy)
    seen = found._replace(
        keys=found.keys if visit.reads_keys else [],
        members=found.members if visit.reads_members else [],
        groups=found.groups if visit.reads_groups else [],
    )
    return {"holders": seen, "is_attached": any(found), "has_unseen": seen != found}


def _as_given(visit: AccountVisit, fields: dict[str, str]) -> Editor:
    """As it was sent, with what was typed."""
    return editor_given(visit.account_id, {**fields, "do": fields.get("as", "")})


def _policy_or_404(visit: AccountVisit, name: str) -> Policy:
    found = selectors.policy_of(visit.account_id, name)
    if found is None:
        raise Http404
    return found


def _fields(request: HttpRequest) -> dict[str, str]:
    return {key: str(value) for key, value in request.POST.items()}
