"""Billing in a whole installation: usage is settled by the application's own role, drafted by the schedule, billed, and
read through the front end with a key."""

from __future__ import annotations

import copy
import json
import os
import uuid
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from tests.support.installation import RunningInstallation, wait_until

pytestmark = pytest.mark.slow

HEADER = "account_id,hour,queue_uuid,partition_id,origin,messages_sent,sent_units"
DRAFT_S_MAX = 60.0
# A report of the front end and a look of the meter, one after the other, on a busy machine.
METER_S_MAX = 150.0


SETTLE = """
import json, sys, uuid
from datetime import datetime
from api.billing.management.commands.settle_usage import read_rows
from api.billing.pricing.periods import Interval
from api.billing.settling import settle
hours = Interval(datetime.fromisoformat("{start}"), datetime.fromisoformat("{end}"))
print(json.dumps(settle(uuid.uuid4(), hours, read_rows(sys.stdin))._asdict()))
"""


def settle(installation: RunningInstallation, hour: datetime, *rows: str) -> Any:
    """The hour before `hour`, with rows of `hour` itself, which the command refuses: the account has no hour that is
    over."""
    program = SETTLE.format(start=(hour - timedelta(hours=1)).isoformat(), end=hour.isoformat())
    return installation.manage("shell", "-v", "0", "-c", program, text="\n".join([HEADER, *rows, ""]))


def report(installation: RunningInstallation, *arguments: str) -> Any:
    period = f"{datetime.now(UTC):%Y-%m}"
    return json.loads(installation.command("report", *arguments, "--period", period, "--json").stdout)


def test_usage_becomes_a_draft_a_pdf_and_an_alert(installation: RunningInstallation) -> None:
    # An account of its own: sending is stopped. It is made in this hour; the one before can be settled whole.
    own = copy.copy(installation)
    own.key = json.loads(installation.command("keys", "create", "--account", "billed", "--json").stdout)
    hour = datetime.now(UTC).replace(minute=0, second=0, microsecond=0)
    account, rest, queue = own.key["account_id"], own.rest(), uuid.uuid4()
    budget = {"limit_minor": 100, "alert_percents": [50], "effect": "stop", "mail_to": ["ann@example.com"]}
    assert rest.put("/v1/billing/budgets/cap", json=budget).status_code == 201
    good = f"{account},{hour.isoformat()},{queue},3,client,7,6000000"
    done = settle(installation, hour, good, f"{account},{hour.isoformat()},{queue},4,client,-1,0")
    assert (done["merged"], done["quarantined"]) == (1, 1), done
    assert settle(installation, hour, good)["merged"] == 0

    usage = report(installation, "usage", "--account", "billed", "--now")
    assert usage["totals"]["messages_sent"] == 7 and usage["now"]["complete"] is True
    assert datetime.fromisoformat(usage["settled_up_to"]) == hour
    assert usage["quarantined"] == [{"reason": "negative_counter", "records": 1}]
    assert report(installation, "quarantine")["records"][0]["account_id"] == account

    # The schedule's rounds draft the month and see that the budget is used up.
    def stopped() -> bool:
        return bool(rest.get("/v1/billing/budgets").json()["sending_stopped"])

    wait_until(stopped, DRAFT_S_MAX, 0.2)
    (invoice,) = rest.get("/v1/billing/invoices").json()["invoices"]
    assert (invoice["state"], invoice["total_minor"]) == ("draft", 200)
    pdf = rest.get(f"/v1/billing/invoices/{invoice['id']}.pdf")
    assert (pdf.status_code, pdf.content[:5]) == (200, b"%PDF-")
    assert rest.get(f"/v1/billing/invoices/{invoice['id']}.csv").text.startswith("row,invoice,")
    assert report(installation, "invoice", "--account", "billed")["invoice"]["total"] == "2.00"
    (plan,) = json.loads(installation.command("billing", "plans", "--account", account, "--json").stdout)
    assert plan["code"] == "standard"
    written = installation.data / "billed.pdf"
    period = ("--period", f"{hour:%Y-%m}")
    installation.command("report", "invoice", "--account", account, *period, "--pdf", str(written))
    assert written.read_bytes()[:5] == b"%PDF-"
    kinds = [event["kind"] for event in rest.get("/v1/billing/budget-events").json()["events"]]
    assert kinds == ["stop", "alert"]

    mails = installation.data / "mail"
    wait_until(lambda: mails.is_dir() and "ann@example.com" in _texts(mails), DRAFT_S_MAX, 0.2)
    assert rest.delete("/v1/billing/budgets/cap").status_code == 204
    left = {"sending_stopped": False, "lifted": None, "in_force": [], "budgets": []}
    assert rest.get("/v1/billing/budgets").json() == left


def test_live_meter_follows_and_counts_requests(installation: RunningInstallation) -> None:
    own = copy.copy(installation)
    own.key = json.loads(installation.command("keys", "create", "--account", "metered", "--json").stdout)
    rest = own.rest()
    assert rest.post("/v1/queues", json={"name": "orders"}).status_code == 201
    for _ in range(3):
        rest.post("/v1/queues/orders/messages", json={"body": "x" * 100}).raise_for_status()
    assert rest.post("/v1/queues/orders/messages/receive", json={"max_messages": 10}).json()["messages"]
    while rest.post("/v1/queues/orders/messages/receive", json={}).json()["messages"]:
        pass

    def counted() -> bool:
        meter = rest.get("/v1/billing/meter").json()
        found = meter["provisional"]
        assert found["messages_sent"] <= 3 and found["sent_bytes"] <= 300
        return bool(meter["is_live"] and found["messages_sent"] == 3 and found["empty_receives"] == 1)

    wait_until(counted, METER_S_MAX, 1.0)
    assert rest.get("/v1/billing/meter").json()["provisional"]["requests"] >= 5


def _texts(folder: Any) -> str:
    return "".join((folder / name).read_text() for name in os.listdir(folder))
