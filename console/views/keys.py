"""Keys of an account: created, shown once, rotated, restricted by policies, revoked."""

from __future__ import annotations

from datetime import timedelta
from functools import partial

from django.http import Http404, HttpRequest, HttpResponse
from django.shortcuts import render

from api import clock
from api.accounts import actions, selectors
from api.accounts.actions import AccountError, NewKey
from api.accounts.models import AccessKey
from api.iam import limits
from api.iam import selectors as iam_selectors
from api.iam.actions import keys as key_rights
from api.iam.actions import policies
from api.iam.actions.keys import KeySpec
from api.iam.documents import stored_text
from api.iam.errors import IamError
from api.iam.holders import keys_with_policies
from api.idempotency.forms import DoneAlready
from api.limits import KEYS_PER_ACCOUNT_MAX
from api.people.roles import Act
from api.quotas.errors import QuotaProblem
from api.quotas.selectors import key_quotas
from api.quotas.single import set_key_quotas
from console.error_notices import ErrorNotice, notice_of
from console.once import once
from console.pages import account_page, operation_page, told
from console.policy_editor import Editor, editor, editor_given, policy_given
from console.views.own_quotas import CHANGED, quotas_given, rate_fields
from console.views.policies import attachable_names
from console.visits import AccountVisit
from frontend.authz.request_context import key_caller

LIVES_DAYS = (1, 7, 30, 90, 365)
# In hours: how long the old key of a rotation goes on.
GRACES_H = (0, 1, 24, 72, limits.ROTATION_GRACE_S_MAX // 3_600)
# What a new key may do, where it is none of the named policies.
EVERYTHING, NOTHING = "", "-"
_OPERATIONS = {
    "attach": "keys.attach_policy",
    "detach": "keys.detach_policy",
    "put": "keys.put_policy",
    "remove": "keys.delete_policy",
    "tag": "keys.update",
    "free": "keys.update",
    "restrict": "keys.update",
    "quotas": "keys.put_quotas",
    "off": "keys.update",
    "on": "keys.update",
}
_DONE = {
    "attach": "The policy counts from now on. The key may do what its policies allow, and nothing else.",
    "detach": "The policy no longer counts.",
    "put": "The policy is in force.",
    "remove": "The policy of the key is gone.",
    "tag": "The tags are changed.",
    "free": "The key may do everything in the account.",
    "restrict": "The key may do nothing until it gets a policy.",
    "quotas": CHANGED,
    "off": "The key opens nothing until it is switched on again.",
    "on": "The key is valid again, with what it may do.",
}


@account_page(Act.READ_KEYS, "GET")
def keys(request: HttpRequest, visit: AccountVisit) -> HttpResponse:
    return _list(request, visit)


@account_page(Act.MANAGE_KEYS, "POST")
def new_key(request: HttpRequest, visit: AccountVisit) -> HttpResponse:
    """The secrets are in this answer and nowhere else: no redirect, and a repetition creates no other key."""
    days, may = request.POST.get("days", ""), request.POST.get("may", "").replace("\0", "")
    expires_at = clock.now() + timedelta(days=int(days)) if days in map(str, LIVES_DAYS) else None
    spec = KeySpec(request.POST.get("name", "").strip(), expires_at, None if may == EVERYTHING else "")
    named = [] if may in (EVERYTHING, NOTHING) else [may]
    try:
        make = partial(policies.make_key_with, visit.actor, visit.account_id, spec, named)
        made = once(request, visit, make, _id_of)
    except DoneAlready as done:
        return _told_again(visit, done.made)
    except (AccountError, IamError) as error:
        return _list(request, visit, refusal=notice_of(error))
    return _list(request, visit, made)


@operation_page("keys.get", "GET", "POST")
def one_key(request: HttpRequest, visit: AccountVisit, access_key_id: str) -> HttpResponse:
    key = _key_or_404(visit, access_key_id)
    if request.method == "GET":
        return _page(request, visit, key)
    what = request.POST.get("what", "")
    if what not in _OPERATIONS:
        raise Http404
    visit.require(_OPERATIONS[what], access_key_id)
    fields = {name: str(value) for name, value in request.POST.items()}
    try:
        _change(visit, access_key_id, what, fields)
    except (IamError, QuotaProblem, ValueError) as error:
        refusal = notice_of(error) if isinstance(error, IamError | QuotaProblem) else ErrorNotice(400, str(error))
        given = editor_given(visit.account_id, {**fields, "do": fields.get("as", "")}) if what == "put" else None
        return _page(request, visit, key, refusal, given)
    return told(key_url(visit, access_key_id), _DONE[what])


@operation_page("keys.rotate", "POST")
def rotate(request: HttpRequest, visit: AccountVisit, access_key_id: str) -> HttpResponse:
    """The new secrets are in this answer and nowhere else: no redirect, and a repetition rotates nothing."""
    key = _key_or_404(visit, access_key_id)
    hours = request.POST.get("hours", "")
    grace_s = int(hours) * 3_600 if hours in map(str, GRACES_H) else limits.ROTATION_GRACE_S_DEFAULT
    try:
        make = partial(key_rights.rotate_key, visit.actor, visit.account_id, access_key_id, grace_s)
        made = once(request, visit, make, _id_of)
    except DoneAlready as done:
        return _told_again(visit, done.made)
    except (AccountError, IamError) as error:
        return _page(request, visit, key, notice_of(error))
    return _list(request, visit, made, rotated=_key_or_404(visit, access_key_id))


@operation_page("keys.delete", "POST")
def revoke(request: HttpRequest, visit: AccountVisit, access_key_id: str) -> HttpResponse:
    if not actions.delete_key(visit.actor, visit.account_id, access_key_id):
        raise Http404
    return told(f"/console/a/{visit.account_id}/keys", f"The key {access_key_id} opens nothing from now on.", "warn")


def key_url(visit: AccountVisit, access_key_id: str) -> str:
    return f"/console/a/{visit.account_id}/keys/{access_key_id}"


def _id_of(made: NewKey) -> str:
    return made.key.access_key_id


def _told_again(visit: AccountVisit, access_key_id: str) -> HttpResponse:
    text = f"The key {access_key_id} was created already, and no other one is. Its secret was shown once."
    return told(f"/console/a/{visit.account_id}/keys", f"{text} If you do not have it, revoke the key.", "warn")


def _change(visit: AccountVisit, access_key_id: str, what: str, fields: dict[str, str]) -> None:
    """Raises IamError, QuotaProblem, ValueError."""
    who = (visit.actor, visit.account_id, access_key_id)
    name = fields.get("policy_name", "").replace("\0", "")
    if what == "attach":
        policies.attach_to_key(*who, name)
    elif what == "detach":
        policies.detach_from_key(*who, name)
    elif what == "put":
        key_rights.put_key_policy(*who, stored_text(policy_given(fields)))
    elif what == "remove":
        key_rights.delete_key_policy(*who)
    elif what == "tag":
        key_rights.set_key_tags(*who, _tags(fields.get("tags", "")))
    elif what == "quotas":
        set_key_quotas(*who, quotas_given(fields))
    elif what in ("off", "on"):
        key_rights.set_key_active(*who, what == "on")
    else:
        key_rights.set_restricted(*who, what == "restrict")


def _tags(text: str) -> dict[str, str]:
    """One `key=value` a line. Raises ValueError."""
    if "\0" in text:
        raise ValueError("A tag holds no NUL.")
    pairs = [line.partition("=") for line in text.splitlines() if line.strip()]
    if any(not equals for _, equals, _ in pairs):
        raise ValueError("Tags are written key=value, one per line.")
    return {key.strip(): value.strip() for key, _, value in pairs}


def _key_or_404(visit: AccountVisit, access_key_id: str) -> AccessKey:
    key = selectors.key_of(visit.account_id, access_key_id)
    if key is None:
        raise Http404
    return key


def _list(
    request: HttpRequest,
    visit: AccountVisit,
    made: NewKey | None = None,
    refusal: ErrorNotice | None = None,
    rotated: AccessKey | None = None,
) -> HttpResponse:
    found = selectors.keys_of(visit.account_id, "", KEYS_PER_ACCOUNT_MAX)
    attached = keys_with_policies(visit.account_id, [key.access_key_id for key in found])
    shown = {
        "keys": [(key, _rights_in_words(key, attached.get(key.access_key_id, []))) for key in found],
        "readable": visit.allowed_items("keys.get", [key.access_key_id for key in found]),
        "made": made,
        "rotated": rotated,
        "lives": LIVES_DAYS,
        "policies": attachable_names(visit, []) if visit.manages_keys else [],
        "now": clock.now(),
        "refusal": refusal,
    }
    return render(request, "console/access/keys.html", shown, status=refusal.status if refusal else 200)


def _rights_in_words(key: AccessKey, attached: list[str]) -> str:
    access = getattr(key, "access", None)
    if access is None:
        return "everything"
    return ", ".join([*(["its own policy"] if access.policy else []), *attached]) or "nothing"


def _page(
    request: HttpRequest,
    visit: AccountVisit,
    key: AccessKey,
    refusal: ErrorNotice | None = None,
    given: Editor | None = None,
) -> HttpResponse:
    key_id = key.access_key_id
    access = iam_selectors.access_of_key(visit.account_id, key_id)
    sees = visit.allows("keys.get_policy", key_id)
    attached = iam_selectors.attached_to_key(visit.account_id, key_id) if sees else []
    own = access.policy if access is not None and sees else ""
    sees_quotas = visit.allows("keys.get_quotas", key_id)
    own_quotas = key_quotas(visit.account_id, key_id) if sees_quotas else None
    shown = {
        "key": key,
        "now": clock.now(),
        "restricted": access is not None,
        "sees": sees,
        "own": own,
        "tags": access.tags if access is not None and sees else {},
        "tag_lines": "\n".join(f"{name}={value}" for name, value in (access.tags if access else {}).items()),
        "attached": attached,
        "attachable": attachable_names(visit, attached),
        "arn": key_caller(visit.account_id, key_id).arn,
        "editor": given or editor(visit.account_id, own, shown=request.GET.get("as", "json")),
        "editor_url": f"/console/a/{visit.account_id}/policy-editor",
        "graces": [(hours, hours * 3_600) for hours in GRACES_H],
        "attaches": visit.may_change_with("keys.attach_policy", key_id),
        "detaches": visit.may_change_with("keys.detach_policy", key_id),
        "puts": visit.may_change_with("keys.put_policy", key_id),
        "removes": visit.may_change_with("keys.delete_policy", key_id),
        "updates": visit.may_change_with("keys.update", key_id),
        "rates": rate_fields(own_quotas, request.POST if request.POST.get("what") == "quotas" else None),
        "sets": visit.may_change_with("keys.put_quotas", key_id),
        "rotates": visit.may_change_with("keys.rotate", key_id) and _is_valid(key),
        "revokes": visit.may_change_with("keys.delete", key_id),
        "refusal": refusal,
    }
    return render(request, "console/access/key.html", shown, status=refusal.status if refusal else 200)


def _is_valid(key: AccessKey) -> bool:
    return key.active and (key.expires_at is None or key.expires_at > clock.now())
