"""Background work as operators see it: rounds, what failed in them, queues that wait for storage."""

from __future__ import annotations

from collections import Counter

from django.http import HttpRequest, HttpResponse
from django.shortcuts import render

from api.billing.errors import BillingError
from api.billing.retrying import retry_work
from api.billing.work_notes import work_failures, work_rounds
from api.queues.lifecycle import retry_queue
from api.queues.selectors import backlog_of_lifecycle
from console.error_notices import notice_of
from console.pages import operator_page, told
from console.visits import Visit

_HERE = "/console/operators/background"
IN_WORDS = {
    "drafts": ("Drafts of the month", "recalculated after usage was settled, every minute"),
    "invoices": ("Closing of months", "issued once a month is settled, every 5 minutes"),
    "differences": ("Usage after invoices", "compared with what was billed, every 5 minutes"),
    "budgets": ("Budgets", "stops of past months, and mails that wait, every minute"),
    "mails": ("Mails of budgets", "with the budgets"),
    "meter": ("The live meter", "reads what is not settled yet, every half minute"),
    "usage": ("Settling by Spark", "counts the hours that are over, every 5 minutes"),
}
# Work without a round of its own.
_ROUND_OF = {"mails": "budgets"}


@operator_page("GET")
def work(request: HttpRequest, visit: Visit) -> HttpResponse:
    return render(request, "console/operators/work.html", _shown())


@operator_page("POST")
def retry(request: HttpRequest, visit: Visit, failure_id: int) -> HttpResponse:
    try:
        retry_work(visit.actor, failure_id)
    except BillingError as error:
        refusal = notice_of(error)
        return render(request, "console/operators/work.html", _shown() | {"refusal": refusal}, status=refusal.status)
    return told(_HERE, "It is done.")


@operator_page("POST")
def retry_queue_now(request: HttpRequest, visit: Visit, account_id: str, name: str) -> HttpResponse:
    if retry_queue(visit.actor, account_id, name):
        return told(_HERE, f"The queue {name} is tried again within seconds.")
    return told(_HERE, f"The queue {name} has nothing left to be done, or is being worked on now.", "warn")


def _shown() -> dict[str, object]:
    rounds, failures = work_rounds(), work_failures()
    failed = Counter(_ROUND_OF.get(row.work, row.work) for row in failures)
    return {
        "rounds": [(row, *IN_WORDS.get(row.work, (row.work, "")), failed[row.work]) for row in rounds],
        "troubled": any(row.trouble for row in rounds),
        "failures": [(row, IN_WORDS.get(row.work, (row.work, ""))[0]) for row in failures],
        "queues": backlog_of_lifecycle(),
    }
