"""Encryption keys of an account: created, rotated, disabled, deleted after a waiting period; who uses them."""

from __future__ import annotations

from django.http import Http404, HttpRequest, HttpResponse
from django.shortcuts import render

from api.audit.selectors import AuditQuery, entries_of
from api.encryption import actions, limits, selectors
from api.encryption.actions import EncryptionKeyProblem, KeyChange
from api.encryption.models import EncryptionKey
from api.encryption.serializers import EncryptionKeySerializer
from api.people.roles import Act
from api.queues.selectors import queues_under
from console.error_notices import ErrorNotice, notice_of
from console.pages import operation_page, require_recent_sign_in, told
from console.views.audit_log import actor_names
from console.visits import AccountVisit

# Hours of use, queues and entries of the audit trail that a page shows.
USES_SHOWN = 48
QUEUES_SHOWN_MAX = 200
ENTRIES_SHOWN = 20
_OPERATIONS = {
    "update": "encryption_keys.update",
    "rotate": "encryption_keys.rotate",
    "enable": "encryption_keys.enable",
    "disable": "encryption_keys.disable",
    "delete": "encryption_keys.schedule_deletion",
    "keep": "encryption_keys.cancel_deletion",
}
_DONE = {
    "update": ("The key is changed.", "good"),
    "rotate": ("A new version seals from now on. Older ones still open what they sealed.", "good"),
    "enable": ("The queues of the key take and give messages again.", "good"),
    "disable": ("The queues of the key neither take nor give messages.", "warn"),
    "delete": ("The deletion is scheduled. Its queues neither take nor give messages.", "warn"),
    "keep": ("The deletion is cancelled. The key is disabled: enable it to use it again.", "good"),
}


@operation_page("encryption_keys.list", "GET", "POST")
def encryption_keys(request: HttpRequest, visit: AccountVisit) -> HttpResponse:
    refusal = None
    if request.method == "POST":
        visit.require("encryption_keys.create")
        try:
            name, description = (request.POST.get(field, "").strip() for field in ("name", "description"))
            made = actions.create_encryption_key(visit.actor, visit.account_id, name, description)
            text = f"The key {made.name} is created. Choose it for a queue."
            return told(encryption_key_url(visit, str(made.pk)), text)
        except EncryptionKeyProblem as error:
            refusal = notice_of(error)
    keys = selectors.keys_of(visit.account_id, "", limits.KEYS_PER_ACCOUNT_MAX)
    shown = {
        "keys": keys,
        "readable": visit.allowed_items("encryption_keys.get", [str(key.pk) for key in keys]),
        "creates": visit.may_change_with("encryption_keys.create"),
        "refusal": refusal,
        "form": request.POST,
    }
    return render(request, "console/encryption/index.html", shown, status=refusal.status if refusal else 200)


@operation_page("encryption_keys.get", "GET", "POST")
def one_encryption_key(request: HttpRequest, visit: AccountVisit, encryption_key: str) -> HttpResponse:
    key = selectors.encryption_key_of(visit.account_id, encryption_key)
    if key is None:
        raise Http404
    if request.method == "GET":
        return _page(request, visit, key)
    what = request.POST.get("what", "")
    if what not in _OPERATIONS:
        raise Http404
    visit.require(_OPERATIONS[what], encryption_key)
    if what == "delete":
        require_recent_sign_in(visit)
        if request.POST.get("typed", "").strip() != key.name:
            step = "Type the name exactly as it is shown."
            return _page(request, visit, key, ErrorNotice(400, "What you typed is not the name of the key.", step))
    try:
        _change(request, visit, encryption_key, what)
    except EncryptionKeyProblem as error:
        return _page(request, visit, key, notice_of(error))
    return told(encryption_key_url(visit, encryption_key), *_DONE[what])


def encryption_key_url(visit: AccountVisit, key_id: str) -> str:
    return f"/console/a/{visit.account_id}/encryption-keys/{key_id}"


def _change(request: HttpRequest, visit: AccountVisit, key_id: str, what: str) -> None:
    """Raises EncryptionKeyProblem."""
    who = (visit.actor, visit.account_id, key_id)
    if what == "update":
        accounts = request.POST.get("shared_accounts", "").replace(",", " ").split()
        change = KeyChange(request.POST.get("description", "").strip(), accounts)
        actions.update_encryption_key(*who, change)
    elif what == "rotate":
        actions.rotate_encryption_key(*who)
    elif what == "enable":
        actions.enable_encryption_key(*who)
    elif what == "disable":
        actions.disable_encryption_key(*who)
    elif what == "keep":
        actions.cancel_deletion(*who)
    else:
        days = request.POST.get("days", "")
        actions.schedule_deletion(*who, int(days) if days.isascii() and days.isdigit() and len(days) < 4 else 0)


def _page(
    request: HttpRequest, visit: AccountVisit, key: EncryptionKey, refusal: ErrorNotice | None = None
) -> HttpResponse:
    key_id = str(key.pk)
    queues = queues_under(visit.account_id, key_id, QUEUES_SHOWN_MAX + 1) if visit.reads_queues else []
    seen = [queue for queue in queues if visit.rights.may_on_queue(queue.name, Act.READ_QUEUES.value)]
    entries = []
    if visit.reads_audit:
        entries = entries_of(visit.account_id, None, ENTRIES_SHOWN, AuditQuery(subject=f"encryption_key:{key_id}"))
    uses = selectors.uses_of(key)[:USES_SHOWN] if visit.allows("encryption_keys.uses", key_id) else []
    shown = {
        "key": key,
        "arn": EncryptionKeySerializer(key).data["arn"],
        "versions": key.versions.count(),
        "queues": seen[:QUEUES_SHOWN_MAX],
        "more_queues": len(seen) > QUEUES_SHOWN_MAX,
        "uses": uses,
        "most_used": max((one.sealed + one.opened for one in uses), default=0),
        "entries": entries,
        "actors": actor_names(visit.account_id, entries),
        "days": (limits.DELETION_DAYS_MIN, limits.DELETION_DAYS_MAX, limits.DELETION_DAYS_DEFAULT),
        "refusal": refusal,
        **{f"may_{what}": visit.may_change_with(operation, key_id) for what, operation in _OPERATIONS.items()},
    }
    return render(request, "console/encryption/key.html", shown, status=refusal.status if refusal else 200)
