"""Mails of budgets."""

from __future__ import annotations

from django.core.mail import EmailMessage

from api.billing.models import BudgetEvent, BudgetEventKind
from api.billing.pricing.money import format_minor
from api.settings.environment import environment

_SUBJECTS = {
    BudgetEventKind.ALERT: "Budget {name}: {percent} % are reached",
    BudgetEventKind.STOP: "Budget {name} is used up: sending is stopped",
    BudgetEventKind.RESUME: "Budget {name}: sending goes on",
}


def send_budget_mail(event: BudgetEvent) -> None:
    kind = BudgetEventKind(event.kind)
    subject = _SUBJECTS[kind].format(name=event.budget_name, percent=event.percent)
    lines = [f"Account {event.account_id}, {event.period_start:%B %Y}.", ""]
    if kind is BudgetEventKind.RESUME:
        lines.append("A new month began, or the budget was changed: messages are accepted again.")
    else:
        spent, limit = (format_minor(amount, event.currency) for amount in (event.spent_minor, event.limit_minor))
        lines.append(f"Spent so far: {event.currency} {spent} of {event.currency} {limit}, before credits and tax.")
    if kind is BudgetEventKind.STOP:
        lines += ["", "Sends are refused until the month ends or the budget is changed. Messages can be received."]
    text = "\n".join(lines) + f"\n\n-- \nPenstock, {environment().endpoint}\n"
    EmailMessage(subject, text, to=event.mail_to).send()
