"""The policy simulator: who, which action, on what, from where; the decision and the statement that made it.

Everything that is asked stands in the address, so that a link shows a colleague the same question.
"""

from __future__ import annotations

import json
from typing import Any, NamedTuple

from django.http import HttpRequest, HttpResponse
from django.shortcuts import render

from api.accounts.selectors import keys_of
from api.iam import limits, selectors
from api.iam.errors import IamError
from api.iam.simulation import simulate_requests
from api.iam.views.simulation import SimulationRequestSerializer
from api.people.roles import STATEMENTS, MemberRole
from api.people.selectors import members_of
from api.queues.selectors import queue_of, queues_of
from api.settings.environment import environment
from console.error_notices import ErrorNotice, notice_of
from console.pages import operation_page
from console.visits import AccountVisit
from frontend.authz.actions import ACTION_NAMES, SQS, Target, resource_arn
from frontend.metadata.records import OWN_POLICY

# Offered in each list; any other one can be asked about by its address.
OFFERED_MAX = 200
ROOT = "root"
_TEXT_CHARS_MAX = 512
_ROLE, _QUEUE_POLICY, _GIVEN = "role/", "queue", "policies/0"
_TAGS = ("principal_tags", "resource_tags", "request_tags")
_FIELDS = ("who", "action", "resource", "source_ip", "secure", "time", "user_agent", "referer", *_TAGS)


class Result(NamedTuple):
    """`statement` is the JSON of the one that decided, "" where there is none or it may not be seen."""

    found: dict[str, Any]
    statement: str
    policy_url: str


@operation_page("policies.simulate", "GET")
def simulator(request: HttpRequest, visit: AccountVisit) -> HttpResponse:
    asked = {name: request.GET.get(name, "").replace("\0", "").strip()[:_TEXT_CHARS_MAX] for name in _FIELDS}
    results: list[Result] = []
    refusal = None
    if asked["action"]:
        try:
            results = _simulate(visit, asked)
        except IamError as error:
            refusal = notice_of(error)
        except ValueError as error:
            refusal = ErrorNotice(400, str(error))
    account_id = visit.account_id
    shown = {
        "asked": asked,
        "results": results,
        "refusal": refusal,
        "members": members_of(account_id, None, OFFERED_MAX) if visit.reads_members else [],
        "keys": keys_of(account_id, "", OFFERED_MAX) if visit.reads_keys else [],
        "policies": selectors.policies_of(account_id, "", OFFERED_MAX) if visit.reads_policies else [],
        "actions": sorted(ACTION_NAMES),
        "queues": queues_of(account_id, "", "", OFFERED_MAX) if visit.allows("queues.list") else [],
        "has_context": any(asked[name] for name in _FIELDS[3:]),
    }
    return render(request, "console/access/simulator.html", shown, status=refusal.status if refusal else 200)


def _simulate(visit: AccountVisit, asked: dict[str, str]) -> list[Result]:
    """Raises IamError, ValueError."""
    actions = asked["action"].replace(",", " ").split()
    given: dict[str, Any] = {
        "actions": actions,
        "resources": [_resource(visit.account_id, asked["resource"], actions)],
        "request_context": _context(asked),
        **_who(visit, asked["who"]),
    }
    read = SimulationRequestSerializer(data=given)
    if not read.is_valid():
        raise ValueError("; ".join(f"{field}: {_first(error)}" for field, error in read.errors.items()))
    policy = asked["who"].removeprefix("policy:") if asked["who"].startswith("policy:") else ""
    found = simulate_requests(visit.account_id, read.validated_data)
    return [_result(visit, one, asked["who"], policy) for one in found]


def _who(visit: AccountVisit, text: str) -> dict[str, Any]:
    """Raises IamError, ValueError."""
    kind, _, name = text.partition(":")
    if text in ("", ROOT):
        return {}
    if kind == "person":
        return {"person_id": name}
    if kind == "key":
        return {"access_key_id": name}
    if kind == "policy":
        visit.require("policies.get", name)
        policy = selectors.policy_of(visit.account_id, name)
        if policy is None:
            raise IamError("not-found", "There is no policy of this name.")
        return {"policies": [json.loads(policy.text)]}
    raise ValueError("Choose who asks.")


def _resource(account_id: str, text: str, actions: list[str]) -> str:
    """An ARN as it is; a name is that of a queue; nothing is the account, or all its queues."""
    region = environment().region
    if text.startswith("arn:"):
        return text
    if text:
        return resource_arn(Target.QUEUE, region, account_id, text)
    of_queues = all(action.lower().startswith(f"{SQS}:") for action in actions)
    return resource_arn(Target.ALL_QUEUES if of_queues else Target.ACCOUNT, region, account_id)


def _context(asked: dict[str, str]) -> dict[str, Any]:
    """Raises ValueError."""
    context: dict[str, Any] = {"secure_transport": asked["secure"] != "no"}
    for name in ("source_ip", "time", "user_agent", "referer"):
        if asked[name]:
            context[name] = asked[name]
    if "time" in context:
        context["time"] += "" if context["time"].endswith("Z") else "Z"
    for name in _TAGS:
        if asked[name]:
            context[name] = _tags(asked[name])
    return context


def _tags(text: str) -> dict[str, str]:
    """`team=billing, stage=test`. Raises ValueError."""
    pairs = [part.partition("=") for part in text.split(",") if part.strip()]
    if any(not equals or not key.strip() for key, equals, _ in pairs):
        raise ValueError("Tags are written key=value, with commas between.")
    return {key.strip(): value.strip() for key, _, value in pairs}


def _first(error: object) -> str:
    while isinstance(error, dict | list) and error:
        error = next(iter(error.values() if isinstance(error, dict) else error))
    return str(error)


# --- the statement that decided ---


def _result(visit: AccountVisit, found: dict[str, Any], who: str, given_policy: str) -> Result:
    place = found["statement"]
    if place is None:
        return Result(found, "", "")
    name = given_policy if place["policy"] == _GIVEN else place["policy"]
    url, text = _where(visit, name, found["resource"], who)
    return Result(found, _statement_json(text, place["ordinal"]), url)


def _where(visit: AccountVisit, name: str, resource: str, who: str) -> tuple[str, str]:
    """The page and the text of a policy, as far as this member may see it."""
    base = f"/console/a/{visit.account_id}"
    if name.startswith(_ROLE):
        return "", json.dumps({"Statement": STATEMENTS[MemberRole(name.removeprefix(_ROLE))]})
    if name == _QUEUE_POLICY:
        queue = queue_of(visit.account_id, resource.rpartition(":")[2])
        seen = queue is not None and visit.rights.may_on_queue(queue.name, "sqs:GetQueueAttributes")
        return (f"{base}/queues/{queue.name}/access", queue.attributes["Policy"]) if queue and seen else ("", "")
    if name == OWN_POLICY:
        key_id = who.removeprefix("key:")
        access = selectors.access_of_key(visit.account_id, key_id)
        seen = visit.allows("keys.get_policy", key_id)
        return (f"{base}/keys/{key_id}", access.policy) if access is not None and seen else ("", "")
    policy = selectors.policy_of(visit.account_id, name)
    if policy is None or not visit.allows("policies.get", name):
        return "", ""
    return f"{base}/policies/{name}", policy.text


def _statement_json(text: str, ordinal: int) -> str:
    if not text:
        return ""
    listed = json.loads(text)["Statement"]
    one = listed[ordinal] if isinstance(listed, list) else listed
    return json.dumps(one, indent=2, ensure_ascii=False)


assert OFFERED_MAX <= limits.POLICIES_PER_ACCOUNT_MAX
