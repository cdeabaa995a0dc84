"""Tickets: made for a page, used up by the socket that it opens.

A ticket is good for one socket, of the queue and the session that it was made for, within TICKET_S. One that is
shown for another queue is used up, too, so that it cannot be tried at several.
"""

from __future__ import annotations

from datetime import timedelta
from typing import NamedTuple

from django.db import transaction

from api import clock
from api.audit.actions import record
from api.people.actions.sessions import lock_session
from api.people.models import PersonSession
from api.people.tokens import TokenKind, hash_token, mint_token, same_hash
from api.tails.models import TailTicket
from api.tails.selectors import TailClaim, TailEnd, end_of
from frontend.authn.principal import person

TICKET_S = 60
# Of one session; the oldest one goes when another is made.
TICKETS_PER_SESSION_MAX = 10


class TailStart(NamedTuple):
    """Who looks; `end` says why the tail may not begin."""

    end: TailEnd
    account_id: str
    person_id: str
    session_id: str


@transaction.atomic
def make_ticket(session: PersonSession, account_id: str, queue: str) -> str:
    """For a session that may read messages of the queue: the page has looked. Raises PeopleError: the session has ended
    since."""
    now = clock.now()
    lock_session(session)
    theirs = TailTicket.objects.filter(session=session)
    theirs.filter(expires_at__lte=now).delete()
    kept = theirs.order_by("-created_at", "-id").values_list("id", flat=True)[: TICKETS_PER_SESSION_MAX - 1]
    theirs.exclude(id__in=list(kept)).delete()
    token = mint_token(TokenKind.TAIL)
    TailTicket.objects.create(
        session=session, account_id=account_id, queue=queue, token_hash=hash_token(TokenKind.TAIL, token),
        created_at=now, expires_at=now + timedelta(seconds=TICKET_S),
    )  # fmt: skip
    return token


@transaction.atomic
def open_tail(token: str, queue: str, source_ip: str, is_secure: bool, request_id: str) -> TailStart | None:
    """Uses the ticket up, and notes in the audit trail who begins to look. None: it was used or has expired, it is of
    another queue, or never was one."""
    now = clock.now()
    ticket = _take(token)
    if ticket is None or ticket.expires_at <= now or ticket.queue != queue:
        return None
    claim = TailClaim(ticket.account_id, ticket.session_id, queue, source_ip, is_secure)
    end = end_of(claim, now)
    person_id = str(ticket.session.person_id)
    if end is TailEnd.NOT:
        actor = person(ticket.account_id, person_id, source_ip, is_secure, request_id=request_id)
        record(actor, ticket.account_id, "message.tail", f"queue:{queue}")
    return TailStart(end, ticket.account_id, person_id, str(ticket.session_id))


def _take(token: str) -> TailTicket | None:
    """The ticket, whose row is gone: of two who show it one gets it."""
    token_hash = hash_token(TokenKind.TAIL, token)
    if token_hash is None:
        return None
    rows = TailTicket.objects.select_related("session").select_for_update(of=("self",))
    ticket = rows.filter(token_hash=token_hash).first()
    if ticket is None or not same_hash(token_hash, ticket.token_hash):
        return None
    TailTicket.objects.filter(pk=ticket.pk).delete()
    return ticket
