"""States of an account, and who moves it from one to the next.

    active  -> suspended   by an operator          suspended -> active     by an operator
    closing -> suspended   by an operator
    active  -> closing     by an owner             closing   -> active     by an owner, within the grace period
                                                   closing   -> closed     when the grace period is over

Only an active account's keys open anything (`Account.active`). An owner cannot leave the state that an operator set.
"""

from __future__ import annotations

import enum
from datetime import timedelta

import structlog
from django.db import transaction

from api import clock
from api.accounts.actions import set_account_active
from api.accounts.selectors import locked_account
from api.audit.actions import LIFECYCLE, record
from api.encryption.shredding import shred_account
from api.outage import DATABASE_AWAY
from api.people import limits
from api.people.actions.console_links import ensure_life
from api.people.actions.enrolment import check_printable
from api.people.actions.members import locked_membership, require
from api.people.errors import PeopleError, not_found
from api.people.models import AccountLife, AccountState, Person
from api.people.origin import RequestOrigin
from api.people.roles import Act
from frontend.authn.principal import Principal

_log = structlog.get_logger(__name__)


class StateChange(enum.StrEnum):
    SUSPEND = "account.suspend"
    RESUME = "account.resume"
    CLOSE = "account.close"
    REOPEN = "account.reopen"
    FINISH = "account.finish_closing"


STATE_CHANGES: dict[tuple[AccountState, StateChange], AccountState] = {
    (AccountState.ACTIVE, StateChange.SUSPEND): AccountState.SUSPENDED,
    (AccountState.CLOSING, StateChange.SUSPEND): AccountState.SUSPENDED,
    (AccountState.SUSPENDED, StateChange.RESUME): AccountState.ACTIVE,
    (AccountState.ACTIVE, StateChange.CLOSE): AccountState.CLOSING,
    (AccountState.CLOSING, StateChange.REOPEN): AccountState.ACTIVE,
    (AccountState.CLOSING, StateChange.FINISH): AccountState.CLOSED,
}


@transaction.atomic
def rename_account(actor: Principal, account_id: str, title: str) -> AccountLife:
    """What people call it. Raises PeopleError."""
    title = title.strip()
    if not title:
        raise PeopleError("invalid-request", "The title is empty.")
    check_printable(title, "The title", limits.ACCOUNT_TITLE_CHARACTERS_MAX)
    life = _locked_with_life(account_id)
    if life.title != title:
        before, life.title = life.title, title
        life.save(update_fields=["title"])
        record(actor, account_id, "account.rename", f"account:{account_id}", title=title, before=before)
    return life


@transaction.atomic
def suspend_account(operator: Principal, account_id: str, reason: str) -> AccountLife:
    """Raises PeopleError."""
    check_printable(reason, "reason", limits.STATE_REASON_CHARACTERS_MAX)
    life = _move(operator, _locked_with_life(account_id), StateChange.SUSPEND, reason)
    record(operator, account_id, StateChange.SUSPEND, f"account:{account_id}", reason=reason)
    return life


@transaction.atomic
def resume_account(operator: Principal, account_id: str) -> AccountLife:
    """Raises PeopleError."""
    life = _move(operator, _locked_with_life(account_id), StateChange.RESUME)
    record(operator, account_id, StateChange.RESUME, f"account:{account_id}")
    return life


@transaction.atomic
def close_by_operator(operator: Principal, account_id: str, reason: str) -> AccountLife:
    """As `close_account`, for accounts without people too. Raises PeopleError."""
    check_printable(reason, "reason", limits.STATE_REASON_CHARACTERS_MAX)
    life = _move(operator, _locked_with_life(account_id), StateChange.CLOSE, reason)
    record(
        operator, account_id, StateChange.CLOSE, f"account:{account_id}", reason=reason, closes_at=str(life.closes_at)
    )
    return life


@transaction.atomic
def reopen_by_operator(operator: Principal, account_id: str) -> AccountLife:
    """Raises PeopleError."""
    life = _move(operator, _locked_with_life(account_id), StateChange.REOPEN)
    record(operator, account_id, StateChange.REOPEN, f"account:{account_id}")
    return life


@transaction.atomic
def close_account(origin: RequestOrigin, person: Person, account_id: str) -> AccountLife:
    """Its keys open nothing from now on; what it holds goes when the grace period is over. Raises PeopleError."""
    require(locked_membership(person, account_id), Act.CLOSE_ACCOUNT, origin)
    life = _move(origin.member(account_id, person.pk), _locked(account_id), StateChange.CLOSE)
    origin.note(person, account_id, StateChange.CLOSE, f"account:{account_id}", closes_at=str(life.closes_at))
    return life


@transaction.atomic
def reopen_account(origin: RequestOrigin, person: Person, account_id: str) -> AccountLife:
    """Raises PeopleError."""
    require(locked_membership(person, account_id), Act.CLOSE_ACCOUNT, origin)
    life = _move(origin.member(account_id, person.pk), _locked(account_id), StateChange.REOPEN)
    origin.note(person, account_id, StateChange.REOPEN, f"account:{account_id}")
    return life


def finish_closing() -> int:
    """Closes accounts whose grace period is over, and ends their keys: nothing they stored can be opened any more.
    Returns how many. Safe to run twice, and beside itself. One that fails holds up no other one."""
    due = AccountLife.objects.filter(state=AccountState.CLOSING, closes_at__lte=clock.now()).order_by("closes_at")
    closed = 0
    for account_id in list(due.values_list("account_id", flat=True)[: limits.CLOSED_AT_ONCE_MAX]):
        try:
            closed += _finish(account_id)
        except DATABASE_AWAY:
            raise
        except Exception:
            _log.exception("account_not_closed", account_id=account_id)
    return closed


@transaction.atomic
def _finish(account_id: str) -> bool:
    life = _locked(account_id)
    if life.state != AccountState.CLOSING or life.closes_at is None or life.closes_at > clock.now():
        return False
    _move(LIFECYCLE, life, StateChange.FINISH)
    shred_account(LIFECYCLE, account_id)
    record(LIFECYCLE, account_id, StateChange.FINISH, f"account:{account_id}")
    return True


def _locked(account_id: str) -> AccountLife:
    """The account's row first, as everywhere. Raises PeopleError."""
    locked_account(account_id, not_found)
    life = AccountLife.objects.select_for_update().filter(pk=account_id).first()
    if life is None:
        raise not_found()
    return life


def _locked_with_life(account_id: str) -> AccountLife:
    """Accounts that were made by the command line have no life yet: it begins now. Raises PeopleError."""
    ensure_life(locked_account(account_id, not_found), clock.now())
    return _locked(account_id)


def _possible(state: str) -> str:
    """What may be asked for instead."""
    moves = [move for (at, move) in STATE_CHANGES if at == state and move is not StateChange.FINISH]
    return f": it can be told to {' or '.join(move.removeprefix('account.') for move in moves)}" if moves else ""


def _move(actor: Principal, life: AccountLife, move: StateChange, reason: str = "") -> AccountLife:
    state = STATE_CHANGES.get((AccountState(life.state), move))
    if state is None:
        raise PeopleError("state-not-possible", f"The account is {life.state}{_possible(life.state)}.")
    was_active = life.state == AccountState.ACTIVE
    now = clock.now()
    grace = timedelta(days=limits.CLOSING_GRACE_DAYS)
    life.state, life.state_since, life.reason = state, now, reason
    life.closes_at = now + grace if state == AccountState.CLOSING else None
    life.save()
    if was_active != (state == AccountState.ACTIVE):
        set_account_active(actor, life.account_id, state == AccountState.ACTIVE)
    return life
