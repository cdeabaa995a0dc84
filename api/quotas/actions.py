"""Every write to quotas: one call = one transaction = row + audit + version + announcement.

Lock order: account, then its quotas. The record of an account carries its quotas, so that a change of them is a new
version of the account, and reaches the front ends as any change of it does.
"""

from __future__ import annotations

from collections.abc import Mapping
from uuid import UUID

from django.db import transaction

from api import clock, limits
from api.accounts.models import Account
from api.accounts.selectors import locked_account
from api.audit.actions import record
from api.changes import announce, next_version
from api.queues.models import Queue
from api.queues.redrive import LIVE, announce_queue
from api.quotas.errors import QuotaProblem, no_such_account
from api.quotas.models import QueueSending, QuotaHolder, QuotaRequest, RequestState
from frontend.authn.principal import Principal
from frontend.limits.quotas import INSTALLATION, QuotaError, check_quota, quotas_of
from frontend.metadata.records import RecordKind

# Whose trail has what was done with the installation's own quotas.
NO_ACCOUNT = ""


@transaction.atomic
def set_quotas(operator: Principal, holder: str, change: Mapping[str, int | None]) -> QuotaHolder:
    """None: the default again. `holder`: an account id, or INSTALLATION. Raises QuotaProblem."""
    for name, value in change.items():
        if value is not None or name not in quotas_of(holder):
            _check(holder, name, value)
    row = _locked(holder)
    before = dict(row.given)
    row.given = {**before, **{name: value for name, value in change.items() if value is not None}}
    for name, value in change.items():
        if value is None:
            row.given.pop(name, None)
    if row.given != before:
        told = {name: [before.get(name), row.given.get(name)] for name in change}
        _save(operator, row, "quota.set", quotas=told)
    return row


@transaction.atomic
def stop_sending(actor: Principal, account_id: str, reason: str) -> QuotaHolder:
    """From now on the account's sends are refused, with this reason. Receiving goes on. Raises QuotaProblem."""
    if not 1 <= len(reason) <= limits.STOP_REASON_CHARACTERS_MAX or not reason.isprintable():
        raise _invalid(f"A reason has 1 to {limits.STOP_REASON_CHARACTERS_MAX} printable characters.")
    return _set_stopped(actor, account_id, reason)


@transaction.atomic
def resume_sending(actor: Principal, account_id: str) -> QuotaHolder:
    """Raises QuotaProblem."""
    return _set_stopped(actor, account_id, "")


@transaction.atomic
def hold_sends(actor: Principal, account_id: str, sends_per_s: int, held_reason: str = "") -> QuotaHolder:
    """From now on the account, and who sends to its queues, may send so many messages a second, for this reason; 0: as
    the quotas say. Raises QuotaProblem."""
    row = _locked(account_id)
    if (row.sends_per_s, row.held_reason) != (sends_per_s, held_reason):
        row.sends_per_s, row.held_reason = sends_per_s, held_reason
        _save(actor, row, "sending.throttle" if sends_per_s else "sending.unthrottle", sends_per_s=sends_per_s)
    return row


@transaction.atomic
def hold_queue(
    actor: Principal, account_id: str, queue_uuid: UUID, reason: str = "", sends_per_s: int = 0, held_reason: str = ""
) -> None:
    """From now on nothing may be sent to the queue (`reason`), or so many messages a second (`held_reason`), whoever
    sends; neither: as the quotas say. Nothing happens where there is no such queue. Raises QuotaProblem."""
    locked_account(account_id, no_such_account)
    queue = Queue.objects.select_for_update().filter(account_id=account_id, uuid=queue_uuid).first()
    if queue is None:
        return
    rows = QueueSending.objects.filter(queue=queue, account_id=account_id)
    before = rows.values_list("sending_stopped", "sends_per_s", "held_reason").first() or ("", 0, "")
    if before == (reason, sends_per_s, held_reason):
        return
    if reason or sends_per_s:
        values = {"sending_stopped": reason, "sends_per_s": sends_per_s, "held_reason": held_reason}
        QueueSending.objects.update_or_create(queue=queue, account_id=account_id, defaults=values)
    else:
        rows.delete()
    queue.version = next_version()
    queue.save(update_fields=["version"])
    verb = "stop" if reason else "throttle" if sends_per_s else "resume"
    record(actor, account_id, f"queue.{verb}_sending", f"queue:{queue.name}", reason=reason, sends_per_s=sends_per_s)
    if queue.state in LIVE:
        announce_queue(queue)


@transaction.atomic
def request_quota(actor: Principal, account_id: str, name: object, value: object, reason: str) -> QuotaRequest:
    """Asks the operator for another value. One open request for each quota. Raises QuotaProblem."""
    _check(account_id, name, value)
    assert isinstance(name, str) and isinstance(value, int)
    if len(reason) > limits.QUOTA_REASON_CHARACTERS_MAX or not reason.isprintable():
        raise _invalid(f"A reason has at most {limits.QUOTA_REASON_CHARACTERS_MAX} printable characters.")
    locked_account(account_id, no_such_account)
    if QuotaRequest.objects.filter(account_id=account_id, name=name, state=RequestState.OPEN).exists():
        raise QuotaProblem(
            409, "quota-request-open", f"There is an open request for {name} already: the operator answers it first."
        )
    asked = QuotaRequest.objects.create(
        account_id=account_id, name=name, value=value, reason=reason, created_at=clock.now()
    )
    record(actor, account_id, "quota.request", f"quota:{name}", value=value, reason=reason)
    return asked


@transaction.atomic
def decide_request(operator: Principal, request_id: int, is_approved: bool, answer: str = "") -> QuotaRequest:
    """Approved: the account has the value from now on. Raises QuotaProblem."""
    if len(answer) > limits.QUOTA_REASON_CHARACTERS_MAX or not answer.isprintable():
        raise _invalid(f"An answer has at most {limits.QUOTA_REASON_CHARACTERS_MAX} printable characters.")
    found = QuotaRequest.objects.filter(pk=request_id).first()
    if found is None:
        raise QuotaProblem(404, "not-found", "There is no request with this id.")
    locked_account(found.account_id, no_such_account)
    asked = QuotaRequest.objects.select_for_update().get(pk=request_id, account_id=found.account_id)
    if asked.state != RequestState.OPEN:
        raise QuotaProblem(409, "quota-request-decided", f"The request was {asked.state} before.")
    asked.state = RequestState.APPROVED if is_approved else RequestState.REFUSED
    asked.answer, asked.decided_at = answer, clock.now()
    asked.save(update_fields=["state", "answer", "decided_at"])
    subject = f"quota:{asked.name}"
    record(operator, asked.account_id, f"quota.request.{asked.state}", subject, value=asked.value, answer=answer)
    if is_approved:
        set_quotas(operator, asked.account_id, {asked.name: asked.value})
    return asked


# --- rows ---


def _set_stopped(actor: Principal, account_id: str, reason: str) -> QuotaHolder:
    row = _locked(account_id)
    if row.sending_stopped != reason:
        row.sending_stopped = reason
        _save(actor, row, "sending.stop" if reason else "sending.resume", reason=reason)
    return row


def _locked(holder: str) -> QuotaHolder:
    """Raises QuotaProblem."""
    if holder != INSTALLATION:
        locked_account(holder, no_such_account)
    row, _ = QuotaHolder.objects.select_for_update().get_or_create(holder=holder, defaults={"changed_at": clock.now()})
    return row


def _save(actor: Principal, row: QuotaHolder, action: str, **details: object) -> None:
    row.changed_at = clock.now()
    row.version = next_version()
    row.save()
    if row.holder == INSTALLATION:
        record(actor, NO_ACCOUNT, action, INSTALLATION, **details)
    else:
        Account.objects.filter(pk=row.holder).update(version=row.version)
        record(actor, row.holder, action, f"account:{row.holder}", **details)
    announce(RecordKind.ACCOUNT, row.holder, row.version)


def _check(holder: str, name: object, value: object) -> None:
    try:
        check_quota(holder, name, value)
    except QuotaError as error:
        raise _invalid(str(error)) from None


def _invalid(detail: str) -> QuotaProblem:
    return QuotaProblem(400, "invalid-request", detail)
