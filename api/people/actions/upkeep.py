"""What time undoes: expired tokens, sessions and invitations, sources that are used no longer, and sign-ups that were
never confirmed."""

from __future__ import annotations

from datetime import timedelta

from django.db import transaction
from django.db.models import Q

from api import clock
from api.people import limits
from api.people.models import FamiliarSource, Invitation, PasskeyChallenge, Person, PersonSession, PersonToken


@transaction.atomic
def forget_expired() -> int:
    """How many rows went. Nothing depends on when this runs: expired rows count for nothing."""
    now = clock.now()
    idle = Q(last_seen_at__lte=now - timedelta(seconds=limits.SESSION_IDLE_S_MAX))
    aged = Q(created_at__lte=now - timedelta(seconds=limits.SESSION_AGE_S_MAX))
    gone = PersonSession.objects.filter(idle | aged).delete()[0]
    gone += PersonToken.objects.filter(expires_at__lte=now).delete()[0]
    gone += PasskeyChallenge.objects.filter(expires_at__lte=now).delete()[0]
    gone += Invitation.objects.filter(expires_at__lte=now).delete()[0]
    strange = now - timedelta(days=limits.FAMILIAR_SOURCE_DAYS)
    gone += FamiliarSource.objects.filter(last_used_at__lte=strange).delete()[0]
    old = now - timedelta(days=limits.UNCONFIRMED_DAYS_MAX)
    unconfirmed = Person.objects.filter(email_confirmed_at__isnull=True, created_at__lte=old)
    return gone + unconfirmed.exclude(tokens__expires_at__gt=now).delete()[0]
