"""`report usage|invoice|invoices|quarantine|months`: what is settled of a month, and up to which hour.

With `--now` the open windows are closed and read first, hours that are over are settled, and what is open is shown as
provisional. An invoice, or a note that corrects it, is also written as a file, PDF or CSV.
"""

from __future__ import annotations

import argparse
import base64
from pathlib import Path
from typing import Any
from uuid import UUID

from deploy import limits, management, output, usage_now
from deploy.errors import EXIT_USAGE, CommandError
from deploy.installation import Installation
from deploy.java import look_for_spark

# Columns of the table; the JSON has all kinds.
_SHOWN = (
    ("sent", "messages_sent"),
    ("delivered", "messages_delivered"),
    ("deleted", "messages_deleted"),
    ("sent units", "sent_units"),
    ("delivered units", "delivered_units"),
    ("requests", "requests"),
)

# Requests that are of no queue (docs/billing.md) stand under this id.
_NO_QUEUE = str(UUID(int=0))
OF_NO_QUEUE = "requests of no queue"
WITHOUT_TAG = "without the tag"
# Invoices that failed, the latest first; the JSON has all.
FAILED_SHOWN = 20


def run(options: argparse.Namespace) -> int:
    if options.verb == "months":
        return run_months(options)
    if options.verb != "quarantine" and not options.account:
        raise CommandError(f"report {options.verb} needs --account NAME", EXIT_USAGE)
    installation = Installation(options.data_dir)
    state = installation.load_state()
    if options.verb == "invoices":
        arguments = ["billing_report", "invoices", f"--account={options.account}"]
        return show_documents(
            management.run_manage_json(installation, state, arguments, limits.REPORT_DEADLINE_S), options
        )
    arguments = ["billing_report", options.verb, "--period", options.period]
    if options.account:
        arguments.append(f"--account={options.account}")
    reached: dict[str, Any] = {}
    if getattr(options, "now", False):
        reached = usage_now.bring_up_to_now(installation, state)
        arguments += ["--now", f"--asked={reached['asked']}"]
    if getattr(options, "by", None):
        arguments += [f"--by={options.by}", *([f"--tag={options.tag}"] if options.tag else [])]
    if getattr(options, "note", None):
        arguments.append(f"--note={options.note}")
    document = next((kind for kind in ("pdf", "csv") if getattr(options, kind, None)), None)
    if document:
        arguments.append(f"--file={document}")
    report = management.run_manage_json(installation, state, arguments, limits.REPORT_DEADLINE_S)
    report |= {"not_settled": reached["not_settled"]} if reached.get("not_settled") else {}
    if document:
        return write_document(report, getattr(options, document))
    if options.json:
        output.data_json(report)
        return 0
    if report.get("note"):
        show_note(report["note"])
        return 0
    show = show_parts if "parts" in report else show_usage
    {"usage": show, "invoice": show_invoice, "quarantine": show_quarantine}[options.verb](report)
    show_settled(report)
    return 0


def write_document(report: dict[str, Any], place: str) -> int:
    """As it is sent to the customer: in the file, and nothing else on stdout."""
    if report["invoice"] is None:
        raise CommandError(no_invoice(report))
    content = base64.b64decode(report["file"])
    try:
        Path(place).write_bytes(content)
    except OSError as error:
        raise CommandError(f"{place} cannot be written: {error.strerror}") from None
    number = (report.get("note") or report["invoice"])["number"]
    output.say(f"{place}: {number or 'a draft'}, {output.counted(len(content), 'byte')}")
    if "now" in report and not number:
        output.say("a document has settled usage alone: what is not settled is in the report without --pdf and --csv")
    show_settled(report)
    return 0


def show_documents(report: dict[str, Any], options: argparse.Namespace) -> int:
    """Notes stand below the invoice that they correct, with the sign that they have in the sum that is due."""
    if options.json:
        output.data_json(report)
        return 0
    rows = [
        [one["document"].replace("_", " "), one["number"] or "draft", one["period"], one["corrects"] or "-",
         f"{one['currency']} {one['total']}", one["due"] if one["state"] == "issued" else "-"]
        for one in report["documents"]
    ]  # fmt: skip
    output.table(["document", "number", "month", "corrects", "total", "due"], rows, "no invoice yet")
    return 0


def show_note(note: dict[str, Any]) -> None:
    output.data(f"{note['number']}, {note['kind']} note, corrects {note['invoice_number']}: {note['reason']}")
    rows = [[one["text"], "", one["amount"]] for one in note["lines"]]
    rows.append(["credited" if note["kind"] == "credit" else "owed in addition", "", note["total"]])
    rows += [[one["meter_name"], f"{one['quantity_text']} {one['unit']}", ""] for one in note["differences"]]
    output.table(["item", "quantity", note["currency"]], rows)


def run_months(options: argparse.Namespace) -> int:
    installation = Installation(options.data_dir)
    arguments = ["billing_report", "months"]
    report = management.run_manage_json(installation, installation.load_state(), arguments, limits.REPORT_DEADLINE_S)
    if options.json:
        output.data_json(report)
        return 0
    show_months(report)
    show_settled(report)
    if any("usage" in reason for one in report["months"] for reason in one["reasons"]):
        show_why_nothing_settles(report["last_round"], report["not_settled"])
    return 0


def show_why_nothing_settles(last_round: str | None, not_settled: str) -> None:
    """A month that waits for usage waits for ever where Spark cannot run. `last_round`: when the worker's last one
    ended, `not_settled`: why that settled nothing. What this shell has counts only before the first one."""
    if not_settled:
        output.say(f"usage is not settled, and no invoice issued: {not_settled}")
    if last_round:
        return
    try:
        missing = look_for_spark().missing
    except CommandError as error:
        missing = [str(error)]
    if missing:
        output.say(f"usage is not settled, and no invoice issued: {'; '.join(missing)}")


def show_months(report: dict[str, Any]) -> None:
    output.table(["month", "open because"], [[one["period"], "; ".join(one["reasons"])] for one in report["months"]])
    for one in report["differences"]:
        says = f"usage that came later makes a difference of {one['currency']} {one['total']}, which a note corrects"
        corrects = f"./penstock billing correct --account {one['account']} --period {one['period']} --reason TEXT"
        output.say(f"{one['invoice']}, {one['account']}, {one['period']}: {says}: {corrects}")
    for one in report["failed"][:FAILED_SHOWN]:
        output.say(f"{one['account_id']}, {one['period'] or '-'}: the invoice failed at {one['at']}: {one['error']}")


def show_usage(report: dict[str, Any]) -> None:
    rows = [[name_of(queue), *(f"{queue['quantities'][kind]:,}" for _, kind in _SHOWN)] for queue in report["queues"]]
    rows.append(["all", *(f"{report['totals'][kind]:,}" for _, kind in _SHOWN)])
    provisional = report.get("provisional")
    for queue in provisional["queues"] if provisional else []:
        rows.append([f"{name_of(queue)} (provisional)", *(f"{queue['quantities'][kind]:,}" for _, kind in _SHOWN)])
    if provisional:
        sums = (report["totals"][kind] + provisional["totals"][kind] for _, kind in _SHOWN)
        rows.append(["all, with provisional", *(f"{quantity:,}" for quantity in sums)])
    output.table(["queue", *(heading for heading, _ in _SHOWN)], rows)


def show_parts(report: dict[str, Any]) -> None:
    """The same whether `--now` was given: what is settled and what was read since, together."""
    parts = report["parts"]
    output.say("what is not settled yet is in it, as far as the live meter has read it")
    if report["by"] == "key":
        rows = [[one["part"], one["name"], f"{one['requests']:,}", f"{one['empty_receives']:,}"] for one in parts]
        none = "no request was counted; front ends tell of theirs every half minute"
        output.table(["access key id", "name", "requests", "empty receives"], rows, none)
        return
    currency = next((one["currency"] for one in parts), "cost")
    rows = [
        [one["part"] or WITHOUT_TAG, *(f"{one['quantities'][kind]:,}" for _, kind in _SHOWN), one["amount"]]
        for one in parts
    ]
    output.table(["part", *(heading for heading, _ in _SHOWN), currency], rows, "nothing was used")


def name_of(queue: dict[str, Any]) -> str:
    """A queue that is gone for good has no name any more."""
    return queue["queue"] or (OF_NO_QUEUE if queue["queue_uuid"] == _NO_QUEUE else queue["queue_uuid"])


def show_invoice(report: dict[str, Any]) -> None:
    invoice = report["invoice"]
    if invoice is None:
        output.data(no_invoice(report))
        return
    output.data(f"{invoice['number'] or 'draft'}, {report['account']}, {report['period']}")
    rows = [*line_rows(invoice["lines"]), ["total", "", invoice["total"]]]
    if invoice["number"]:
        digits = invoice["minor_digits"]
        rows += [[name, "", amount_text(invoice[f"{name}_minor"], digits)] for name in ("paid", "due")]
    provisional = report.get("provisional")
    if provisional and invoice["state"] == "draft":
        rows.append(["not settled yet (usage, provisional)", "", provisional["provisional"]["text"]])
        rows.append(["total, with provisional", "", provisional["total"]["text"]])
        rows += [["", "", ""], ["with what is not settled:", "", ""], *line_rows(provisional["lines"])]
    output.table(["item", "quantity", invoice["currency"]], rows)
    for note in invoice["notes"]:
        output.data(f"{note['number']}: {note['kind']} note, {invoice['currency']} {note['total']}: {note['reason']}")
    if not report.get("recomputed", {"equal": True})["equal"]:
        corrects = f"./penstock billing correct --account {report['account']} --period {report['period']} --reason TEXT"
        output.say(f"The settled usage says another total now; a note corrects it: {corrects}")


def no_invoice(report: dict[str, Any]) -> str:
    return f"{report['account']} was not open in {report['period']}, or the month has not begun."


def amount_text(amount_minor: int, digits: int) -> str:
    """`-1234` is `-12.34` where the currency has two digits."""
    whole, fraction = divmod(abs(amount_minor), 10**digits)
    sign = "-" if amount_minor < 0 else ""
    return f"{sign}{whole}" + (f".{fraction:0{digits}}" if digits else "")


def line_rows(lines: list[dict[str, Any]]) -> list[list[str]]:
    return [[line["text"], f"{line['quantity_text']} {line['unit']}".strip(), line["amount"]] for line in lines]


def show_quarantine(report: dict[str, Any]) -> None:
    rows = [
        [one["reason"], one["account_id"] or "-", one["hour"] or "-", one["detail"] or short(one["record"])]
        for one in report["records"]
    ]
    output.table(["reason", "account", "hour", "record"], rows)


def short(record: dict[str, Any]) -> str:
    """Its members that say something, without what stands in columns of their own."""
    return ", ".join(
        f"{name} {value}" for name, value in record.items() if value and name not in ("account_id", "hour")
    )


def show_settled(report: dict[str, Any]) -> None:
    """What the figures do not hold, on stderr."""
    if report["settled_up_to"]:
        output.say(f"settled up to {report['settled_up_to']}")
    else:
        offered = "now" not in report and ("queues" in report or "invoice" in report)
        output.say("nothing is settled yet" + (": --now shows what is not settled as provisional" if offered else ""))
    for count in report.get("quarantined", []):
        again = f"./penstock report quarantine --period {report['period']} --account {report['account_id']}"
        output.say(f"not billed: {output.counted(count['records'], 'record')}, {count['reason']} ({again})")
    if report.get("not_settled"):
        output.say(f"not settled now: {report['not_settled']}")
    now = report.get("now")
    if now and not now["complete"]:
        output.say(f"missing from {now['missing_from']} on: {now['reason']}")
