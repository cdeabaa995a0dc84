"""The audit log of an account: searched, paged, downloaded. The whole search is in the address."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any
from urllib.parse import urlencode

from django.http import Http404, HttpRequest, HttpResponse, HttpResponseBase
from django.shortcuts import render

from api.accounts.selectors import keys_of
from api.audit.asked import ASKED, WrongQuery, query_of
from api.audit.exporting import FORMS, export_entries
from api.audit.models import AuditEntry
from api.audit.selectors import AuditQuery, entries_of
from api.limits import AUDIT_EXPORT_ENTRIES_MAX
from api.people.roles import Act
from api.people.selectors import member_addresses, member_at, members_of, operator_addresses
from console.error_notices import ErrorNotice
from console.pages import account_page, operation_page, show
from console.visits import AccountVisit
from frontend.authn.principal import PERSON_PREFIX

PAGE_ENTRIES = 50
ACTORS_OFFERED_MAX = 200
_FILTER_CHARS_MAX = 200
_LABELS = {"since": "From", "until": "Until", "outcome": "Outcome"}


@account_page(Act.READ_AUDIT, "GET")
def audit(request: HttpRequest, visit: AccountVisit) -> HttpResponse:
    given = _given(request)
    refusal, found = None, []
    try:
        found = entries_of(visit.account_id, _before(request), PAGE_ENTRIES + 1, _query(visit, given))
    except WrongQuery as error:
        refusal = _notice(error)
    entries = found[:PAGE_ENTRIES]
    for entry in entries:
        entry.details = {name: _in_words(value) for name, value in entry.details.items()}
    kept = {name: value for name, value in given.items() if value}
    shown = {
        "asked": given,
        "is_filtered": bool(kept),
        "entries": entries,
        "actors": actor_names(visit.account_id, entries),
        "of_actor": {entry.actor: urlencode({**kept, "actor": entry.actor}) for entry in entries},
        "more": urlencode({**kept, "before": entries[-1].pk}) if len(found) > PAGE_ENTRIES else "",
        "is_first": "before" not in request.GET,
        "newest": urlencode(kept),
        "downloads": _downloads(visit, kept),
        "exported_max": AUDIT_EXPORT_ENTRIES_MAX,
        "offered": _offered(visit),
        "refusal": refusal,
    }
    return render(request, "console/access/audit.html", shown, status=refusal.status if refusal else 200)


@operation_page("audit.export", "GET")
def download(request: HttpRequest, visit: AccountVisit) -> HttpResponseBase:
    """What the page shows, all pages of it, as far as a file goes."""
    form = request.GET.get("form", "")
    if form not in FORMS:
        raise Http404
    try:
        return export_entries(request, visit.actor, visit.account_id, _query(visit, _given(request)), form)
    except WrongQuery as error:
        return show(request, _notice(error))


def actor_names(account_id: str, entries: Iterable[AuditEntry]) -> dict[str, str]:
    """Of actors, of those as whom they act, and of subjects that are people the address, where they are members or
    operators; of all others what the trail says."""
    actors = {name for entry in entries for name in (entry.actor, entry.subject, entry.details.get("acting_as", ""))}
    people = [actor.removeprefix(PERSON_PREFIX) for actor in actors if actor.startswith(PERSON_PREFIX)]
    operators = {person: f"operator {email}" for person, email in operator_addresses(people).items()}
    addresses = {**operators, **member_addresses(account_id, people)}
    return {actor: addresses.get(actor.removeprefix(PERSON_PREFIX), actor) for actor in actors}


def _given(request: HttpRequest) -> dict[str, str]:
    return {name: request.GET.get(name, "").replace("\0", "").strip()[:_FILTER_CHARS_MAX] for name in ASKED}


def _query(visit: AccountVisit, given: dict[str, str]) -> AuditQuery:
    """Persons are asked for by their addresses. Raises WrongQuery."""
    asked = query_of(given)
    if "@" not in asked.actor or not visit.reads_members:
        return asked
    member = member_at(visit.account_id, asked.actor)
    return asked if member is None else asked._replace(actor=f"{PERSON_PREFIX}{member.person_id}")


def _before(request: HttpRequest) -> int | None:
    before = request.GET.get("before", "")
    return int(before) if before.isascii() and before.isdigit() and len(before) < 19 else None


def _downloads(visit: AccountVisit, kept: dict[str, str]) -> list[tuple[str, str]]:
    """(name, address) of each form, for those who may export."""
    if not visit.allows("audit.export"):
        return []
    base = f"/console/a/{visit.account_id}/audit/download"
    named = (("CSV", "csv"), ("JSON lines", "jsonl"))
    return [(name, f"{base}?{urlencode({**kept, 'form': form})}") for name, form in named]


def _offered(visit: AccountVisit) -> list[tuple[str, str]]:
    """(what the filter takes, what it is) of those who act in the account, as far as the member may see them."""
    found: list[tuple[str, str]] = []
    if visit.reads_members:
        found += [(member.person.email, "member") for member in members_of(visit.account_id, None, ACTORS_OFFERED_MAX)]
    if visit.reads_keys:
        found += [(key.access_key_id, f"key {key.name}") for key in keys_of(visit.account_id, "", ACTORS_OFFERED_MAX)]
    return found


def _notice(error: WrongQuery) -> ErrorNotice:
    return ErrorNotice(400, f"{_LABELS.get(error.name, error.name)} {error}.")


def _in_words(value: Any) -> str:
    """A detail of an entry, which is a value of JSON."""
    if isinstance(value, dict):
        return "; ".join(f"{name}: {_in_words(inner)}" for name, inner in value.items()) or "none"
    if isinstance(value, list):
        return ", ".join(map(_in_words, value)) or "none"
    if isinstance(value, bool):
        return "yes" if value else "no"
    return "none" if value is None else str(value)
