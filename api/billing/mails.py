"""Mails of budgets."""

from __future__ import annotations

from django.core.mail import EmailMessage

from api.billing.limits import THROTTLED_SENDS_PER_S
from api.billing.models import BudgetEvent, BudgetEventKind
from api.billing.pricing.money import format_minor
from api.queues.models import Queue
from api.settings.environment import environment

_SUBJECTS = {
    BudgetEventKind.ALERT: "Budget {name}: {percent} % are reached",
    BudgetEventKind.THROTTLE: "Budget {name} is used up: sending is throttled",
    BudgetEventKind.STOP: "Budget {name} is used up: sending is stopped",
    BudgetEventKind.RESUME: "Budget {name}: sending goes on",
    BudgetEventKind.LIFT: "Budget {name}: the operator lifted the stop",
}


def send_budget_mail(event: BudgetEvent) -> None:
    kind = BudgetEventKind(event.kind)
    subject = _SUBJECTS[kind].format(name=event.budget_name, percent=event.percent)
    lines = [f"Account {event.account_id}, {event.period_start:%B %Y}.", ""]
    queue_uuid = None if event.budget is None else event.budget.queue_uuid
    if queue_uuid is not None:
        queue = Queue.objects.filter(account_id=event.account_id, uuid=queue_uuid).first()
        lines.insert(1, f"Of the queue {queue_uuid if queue is None else queue.name} alone.")
    if kind is BudgetEventKind.RESUME:
        lines.append("A new month began, or the budget was changed: messages are accepted again as before.")
    elif kind is BudgetEventKind.LIFT:
        lines.append("Messages are accepted again until the month ends or the budget is changed.")
    else:
        spent, limit = (format_minor(amount, event.currency) for amount in (event.spent_minor, event.limit_minor))
        lines.append(f"Spent so far: {event.currency} {spent} of {event.currency} {limit}, before credits and tax.")
    if kind is BudgetEventKind.STOP:
        lines += ["", "Sends are refused until the month ends or the budget is changed. Messages can be received."]
    if kind is BudgetEventKind.THROTTLE:
        text = (
            f"Sends are held to {THROTTLED_SENDS_PER_S} message a second until the month ends or the budget is changed."
        )
        lines += ["", text]
    text = "\n".join(lines) + f"\n\n-- \nPenstock, {environment().endpoint}\n"
    EmailMessage(subject, text, to=event.mail_to).send()
