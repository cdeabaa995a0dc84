"""Sources from which a person has signed in of late. Attempts from there have a count of their own.

Attempts on an address are counted over all sources, so that many sources together guess no faster than one. A stranger
who knows an address can use that count up, and would keep its owner out. From a familiar source the owner's attempts do
not depend on it; what a stranger uses up behind the same source is that count and no other.
"""

from __future__ import annotations

from datetime import datetime, timedelta

from api.people import limits, rates
from api.people.models import FamiliarSource, Person
from api.people.origin import RequestOrigin
from api.people.tokens import hash_familiar_source


def charge_sign_in(origin: RequestOrigin, email: str, now: datetime) -> None:
    """Counts one attempt to sign in. From a source that is not familiar, known and unknown addresses take the same
    statements. Raises PeopleError."""
    since = now - timedelta(days=limits.FAMILIAR_SOURCE_DAYS)
    key = hash_familiar_source(email, origin.counted)
    if FamiliarSource.objects.filter(pk=key, last_used_at__gt=since).exists():
        rates.charge(rates.SIGN_IN_PER_FAMILIAR_SOURCE, f"{origin.counted} {email}")
    else:
        rates.charge(rates.SIGN_IN_PER_ADDRESS, email)


def note_source(origin: RequestOrigin, person: Person, now: datetime) -> None:
    """The person has signed in from there, or set a password with a token of a mail. With the person locked. The source
    that was not used for the longest time is forgotten where there are more than FAMILIAR_SOURCES_PER_PERSON_MAX."""
    if not origin.counted:
        return
    key = hash_familiar_source(person.email, origin.counted)
    FamiliarSource.objects.update_or_create(key=key, defaults={"person": person, "last_used_at": now})
    theirs = FamiliarSource.objects.filter(person=person)
    kept = theirs.order_by("-last_used_at", "key").values_list("pk", flat=True)
    theirs.exclude(pk__in=list(kept[: limits.FAMILIAR_SOURCES_PER_PERSON_MAX])).delete()
