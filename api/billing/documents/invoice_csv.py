"""An invoice as CSV: its lines, then each queue's share; one header. Text that a spreadsheet computes is marked."""

from __future__ import annotations

import csv
import io
import json
from typing import Any

from api.spreadsheets import plain

COLUMNS = (
    "row", "invoice", "period", "position", "kind", "text", "plan", "queue", "queue_uuid", "tags", "meter", "quantity",
    "unit_price_nanos", "per", "currency", "amount_minor", "amount_nanos", "amount",
)  # fmt: skip


def invoice_csv(content: dict[str, Any]) -> str:
    out = io.StringIO()
    rows = csv.DictWriter(out, COLUMNS, restval="")
    rows.writeheader()
    common = {name: content[name] for name in ("period", "currency")}
    common["invoice"] = content["number"] or "draft"
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
    return out.getvalue()
