"""The policy of a queue, and the permissions that are its labelled statements."""

from __future__ import annotations

import json

from django.http import HttpRequest, HttpResponse
from django.shortcuts import render

from api.iam.errors import AccessDenied
from api.people.roles import Act
from api.queues import actions
from api.queues import attributes as rules
from api.queues.attributes import QueueProblem
from api.queues.permissions import check_permission
from console.error_notices import notice_of
from console.pages import account_page, told
from console.policy_editor import editor, editor_given, policy_given
from console.views.policies import editor_part
from console.views.queue import require_change, tab_of
from console.views.queue_forms import queue_or_404, queue_url
from console.visits import AccountVisit
from frontend.authz import GRANTABLE_NAMES


@account_page(Act.READ_QUEUES, "GET", "POST")
def access(request: HttpRequest, visit: AccountVisit, name: str) -> HttpResponse:
    queue = queue_or_404(visit, name)
    fields = {key: str(value) for key, value in request.POST.items()}
    refusal = None
    if request.method == "POST":
        try:
            _change(visit, name, request, fields)
            return told(queue_url(visit, name, "/access"), "The permissions are changed.")
        except QueueProblem as error:
            refusal = notice_of(error)
    policy = queue.attributes.get("Policy", "")
    if "as" in fields or "policy" in fields:
        shown = editor_given(visit.account_id, {**fields, "do": fields.get("as", "")}, name)
    else:
        shown = editor(visit.account_id, policy, name, request.GET.get("as", "json"))
    context = {
        **tab_of(visit, queue, "access"),
        "editor": shown,
        "editor_url": queue_url(visit, name, "/policy-editor"),
        "statements": _statements(policy),
        "actions": sorted(GRANTABLE_NAMES),
        "refusal": refusal,
    }
    return render(request, "console/queues/access.html", context, status=refusal.status if refusal else 200)


@account_page(Act.READ_QUEUES, "POST")
def policy_editor(request: HttpRequest, visit: AccountVisit, name: str) -> HttpResponse:
    """The editor after a press of one of its buttons, or what is to be said of the policy as it stands."""
    queue_or_404(visit, name)
    return editor_part(request, visit, queue_url(visit, name, "/policy-editor"), name)


def _change(visit: AccountVisit, name: str, request: HttpRequest, fields: dict[str, str]) -> None:
    """Raises QueueProblem, AccessDenied."""
    who = (visit.actor, visit.account_id, name)
    if "remove" in fields:
        require_change(visit, "sqs:RemovePermission")
        actions.remove_permission(*who, fields["remove"])
    elif "label" in fields:
        require_change(visit, "sqs:AddPermission")
        accounts = fields.get("accounts", "").replace(",", " ").split()
        permission = check_permission(fields["label"].strip(), accounts, request.POST.getlist("actions"))
        actions.add_permission(*who, permission)
    else:
        require_change(visit, Act.MANAGE_QUEUES.value)
        if visit.acts_for is not None:
            raise AccessDenied("An operator who acts as a member does not change who has access")
        change = rules.check_change({"Policy": policy_given(fields, name)}, name)
        actions.set_queue_attributes(*who, change)


def _statements(policy: str) -> list[dict[str, object]]:
    try:
        found = json.loads(policy).get("Statement", []) if policy else []
    except (ValueError, AttributeError):
        return []
    listed = found if isinstance(found, list) else [found]
    return [
        {name.lower(): _one(one.get(name)) for name in ("Sid", "Effect", "Principal", "Action", "Condition")}
        for one in listed
    ]


def _one(value: object) -> str:
    return value if isinstance(value, str) else "" if value is None else json.dumps(value, ensure_ascii=False)
