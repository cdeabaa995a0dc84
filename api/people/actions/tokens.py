"""Tokens of people: made, found by what was given, used up."""

from __future__ import annotations

from datetime import datetime, timedelta

from django.db.models import F

from api.people import limits
from api.people.models import Person, PersonToken
from api.people.tokens import TokenKind, hash_token, mint_token, same_hash

_LIFE_S = {
    TokenKind.SIGN_UP: limits.SIGN_UP_TOKEN_S,
    TokenKind.PASSWORD_RESET: limits.PASSWORD_RESET_TOKEN_S,
    TokenKind.CHALLENGE: limits.CHALLENGE_TOKEN_S,
    TokenKind.CONSOLE_LINK: limits.CONSOLE_LINK_TOKEN_S,
}


def make_token(person: Person, kind: TokenKind, now: datetime, password: str = "") -> str:
    """With the person locked. The expired ones go, and the oldest ones where there are too many."""
    theirs = PersonToken.objects.filter(person=person, kind=kind)
    theirs.filter(expires_at__lte=now).delete()
    kept = theirs.order_by("-created_at", "-id").values_list("id", flat=True)[: limits.TOKENS_PER_PERSON_MAX - 1]
    theirs.exclude(id__in=list(kept)).delete()
    token = mint_token(kind)
    expires_at = now + timedelta(seconds=_LIFE_S[kind])
    token_hash = hash_token(kind, token)
    PersonToken.objects.create(
        kind=kind, person=person, token_hash=token_hash, password=password, created_at=now, expires_at=expires_at
    )
    return token


def find_token(kind: TokenKind, token: str, now: datetime) -> PersonToken | None:
    token_hash = hash_token(kind, token)
    if token_hash is None:
        return None
    rows = PersonToken.objects.filter(kind=kind, token_hash=token_hash, expires_at__gt=now)
    found = rows.select_related("person").first()
    return found if found is not None and same_hash(token_hash, found.token_hash) else None


def use_up(token: PersonToken) -> bool:
    """In the transaction of its use. False: another request was first."""
    return bool(PersonToken.objects.filter(pk=token.pk).delete()[0])


def note_wrong_attempt(token: PersonToken) -> None:
    """What came with the token was wrong. After TOKEN_ATTEMPTS_MAX times the token is gone."""
    rows = PersonToken.objects.filter(pk=token.pk)
    rows.update(attempts=F("attempts") + 1)
    rows.filter(attempts__gte=limits.TOKEN_ATTEMPTS_MAX).delete()
