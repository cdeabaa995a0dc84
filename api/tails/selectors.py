"""May a session look at the messages of a queue, as pages would let it?"""

from __future__ import annotations

import enum
import uuid
from datetime import datetime

import msgspec

from api.iam.authorisation import Targets
from api.iam.member_rights import MemberRights
from api.people.models import AccountState, PersonSession
from api.people.selectors import is_live, membership_of
from frontend.authn.principal import person
from frontend.authz.actions import ROUTE_OPERATIONS


class TailEnd(enum.StrEnum):
    """Why a tail may not go on."""

    NOT = ""
    SESSION_ENDED = "session-ended"
    NOT_A_MEMBER = "not-a-member"
    ACCOUNT_NOT_ACTIVE = "account-not-active"
    ACCESS_DENIED = "access-denied"


class TailClaim(msgspec.Struct, forbid_unknown_fields=True, frozen=True):
    """A tail that a front end has open."""

    account_id: str
    session_id: uuid.UUID
    queue: str
    source_ip: str = ""
    is_secure: bool = False


def end_of(claim: TailClaim, now: datetime) -> TailEnd:
    """By the session, the membership, the state of the account, the role and the policies as they are now."""
    session = PersonSession.objects.select_related("person").filter(pk=claim.session_id).first()
    if session is None or not is_live(session, now):
        return TailEnd.SESSION_ENDED
    membership = membership_of(session.person, claim.account_id)
    if membership is None:
        return TailEnd.NOT_A_MEMBER
    if membership.account.life.state != AccountState.ACTIVE:
        return TailEnd.ACCOUNT_NOT_ACTIVE
    who = person(claim.account_id, str(membership.person_id), claim.source_ip, claim.is_secure)
    rights = MemberRights(membership, who)
    refusal = rights.refusal(ROUTE_OPERATIONS["peek"], Targets(claim.queue))
    if refusal is not None:
        return TailEnd.ACCESS_DENIED
    return TailEnd.NOT
