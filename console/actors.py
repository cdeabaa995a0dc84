"""Names of those who stand in the audit trail."""

from __future__ import annotations

from collections.abc import Iterable

from api.audit.models import AuditEntry
from api.people.selectors import member_addresses, operator_addresses
from frontend.authn.principal import PERSON_PREFIX


def actor_names(account_id: str, entries: Iterable[AuditEntry]) -> dict[str, str]:
    """Of actors, of those as whom they act, and of subjects that are people the address, where they are members or
    operators; of all others what the trail says."""
    actors = {name for entry in entries for name in (entry.actor, entry.subject, entry.details.get("acting_as", ""))}
    people = [actor.removeprefix(PERSON_PREFIX) for actor in actors if actor.startswith(PERSON_PREFIX)]
    operators = {person: f"operator {email}" for person, email in operator_addresses(people).items()}
    addresses = {**operators, **member_addresses(account_id, people)}
    return {actor: addresses.get(actor.removeprefix(PERSON_PREFIX), actor) for actor in actors}
