"""An invoice as CSV: its lines, each queue's share, notes and payments, and what is due; one header. A note as CSV.

Rows of notes, payments and sums have amounts with the sign that they have in the sum that is due: `line` rows sum to
`total`, `total` and `note` rows less `payment` rows to `due`. Text that a spreadsheet computes is marked.
"""

from __future__ import annotations

import csv
import io
import json
from typing import Any

from api.billing.pricing.money import format_minor
from api.spreadsheets import plain

COLUMNS = (
    "row", "invoice", "account", "period", "position", "kind", "text", "plan", "queue", "queue_uuid", "tags", "meter",
    "quantity", "unit_price_nanos", "per", "currency", "amount_minor", "amount_nanos", "amount",
)  # fmt: skip


def invoice_csv(content: dict[str, Any]) -> str:
    out = io.StringIO()
    rows = csv.DictWriter(out, COLUMNS, restval="")
    rows.writeheader()
    common = {name: content[name] for name in ("period", "currency")}
    common |= {"account": content["account_id"], "invoice": content["number"] or "draft"}
    for line in content["lines"]:
        rows.writerow(
            {
                **common, "row": "line", **{name: line[name] for name in ("position", "kind", "plan")},
                "text": plain(line["text"]), "meter": line["meter"] or "", "quantity": line["quantity"],
                "unit_price_nanos": line["price_nanos"], "per": line["per"], "amount_minor": line["amount_minor"],
                "amount": line["amount"],
            }
        )  # fmt: skip
    for share in content["queues"]:
        rows.writerow(
            {
                **common, "row": "queue", "text": share["meter_name"], "queue": plain(share["queue"]),
                "queue_uuid": share["queue_uuid"], "tags": json.dumps(share["tags"], sort_keys=True),
                "meter": share["meter"], "quantity": share["quantity"], "amount_nanos": share["amount_nanos"],
                "amount": share["amount"],
            }
        )  # fmt: skip
    for note in content["notes"]:
        rows.writerow(
            {**common, "row": "note", "kind": note["kind"], "text": plain(f"{note['number']} {note['reason']}"),
             "amount_minor": note["owed_minor"], "amount": note["owed"]}
        )  # fmt: skip
    for payment in content["payments"]:
        rows.writerow(
            {**common, "row": "payment", "text": plain(f"{payment['received_on']} {payment['reference']}"),
             "amount_minor": payment["amount_minor"], "amount": payment["amount"]}
        )  # fmt: skip
    for name in ("total", "due"):
        rows.writerow({**common, "row": name, "amount_minor": content[f"{name}_minor"], "amount": content[name]})
    return out.getvalue()


NOTE_COLUMNS = (
    "row", "note", "kind", "corrects_invoice", "account", "period", "text", "meter", "quantity", "currency",
    "amount_minor", "amount",
)  # fmt: skip


def note_csv(content: dict[str, Any]) -> str:
    """A note: `line` rows sum to `total`, with the sign that they have in the sum that is due; `difference` rows say by
    how much the billed quantities were wrong."""
    out = io.StringIO()
    rows = csv.DictWriter(out, NOTE_COLUMNS, restval="")
    rows.writeheader()
    common = {name: content[name] for name in ("period", "currency", "kind")}
    common |= {"account": content["account_id"], "note": content["number"]}
    common |= {"corrects_invoice": content["invoice_number"]}
    sign = -1 if content["kind"] == "credit" else 1
    for line in content["lines"]:
        amount_minor = sign * line["amount_minor"]
        amount = format_minor(amount_minor, content["currency"])
        rows.writerow({**common, "row": "line", "text": line["text"], "amount_minor": amount_minor, "amount": amount})
    for one in content["differences"]:
        told = {"text": one["meter_name"], "meter": one["meter"], "quantity": one["quantity"]}
        rows.writerow({**common, "row": "difference", **told})
    total = {"amount_minor": content["owed_minor"], "amount": content["owed"], "text": plain(content["reason"])}
    rows.writerow({**common, "row": "total", **total})
    return out.getvalue()
