"""An invoice as PDF, set by Typst from `invoice.typ`, and a note from `note.typ`; both have their page from `page.typ`.
Fonts are Typst's own: every host sets the same page.

The template gets the content as one JSON text, so no name of a customer is ever read as markup.
"""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Iterable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Literal

from api.billing.limits import PDF_QUEUES_MAX
from api.billing.pricing.money import format_minor, nanos_per_minor, split_exactly

TEMPLATE = Path(__file__).with_name("invoice.typ")
NOTE_TEMPLATE = Path(__file__).with_name("note.typ")


def invoice_pdf(content: dict[str, Any]) -> bytes:
    """The same bytes for the same content."""
    return _pdf(TEMPLATE, page_content(content), content["made_at"])


def invoice_pages(content: dict[str, Any], ppi: float) -> list[bytes]:
    """As PNG, a page each."""
    return _pages(TEMPLATE, page_content(content), content["made_at"], ppi)


def note_pdf(content: dict[str, Any]) -> bytes:
    """The same bytes for the same content."""
    return _pdf(NOTE_TEMPLATE, content, content["issued_at"])


def note_pages(content: dict[str, Any], ppi: float) -> list[bytes]:
    """As PNG, a page each."""
    return _pages(NOTE_TEMPLATE, content, content["issued_at"], ppi)


def _pdf(template: Path, content: dict[str, Any], made_at: str) -> bytes:
    document = _set(template, content, made_at, "pdf")
    assert isinstance(document, bytes)
    return document


def _pages(template: Path, content: dict[str, Any], made_at: str, ppi: float) -> list[bytes]:
    pages = _set(template, content, made_at, "png", ppi)
    return [pages] if isinstance(pages, bytes) else pages


def _set(
    template: Path, content: dict[str, Any], made_at: str, form: Literal["pdf", "png"], ppi: float | None = None
) -> Any:
    import typst  # its library takes 34 MB: only a process that sets a document loads it

    text = json.dumps(content)
    made = datetime.fromisoformat(made_at).astimezone(UTC).replace(microsecond=0)
    compiler = typst.Compiler(template, root=template.parent, ignore_system_fonts=True, sys_inputs={"content": text})
    return compiler.compile(format=form, ppi=ppi, timestamp=made)


def page_content(content: dict[str, Any]) -> dict[str, Any]:
    """What the template is given: of the queues their sums alone. All lines of an account with 200,000 of them would
    take a gigabyte in Typst, for a page that lists PDF_QUEUES_MAX."""
    shown = {name: value for name, value in content.items() if name != "queues"}
    return {**shown, "sums": _sums(content), "queue_sums": queue_sums(content["queues"], content["currency"])}


def _sums(content: dict[str, Any]) -> list[dict[str, str]]:
    """What the total is made of, where it is more than usage and fees."""
    parts = (("Usage and fees", content["charges_minor"]), ("Credits", -content["credits_minor"]),
             ("Tax", content["tax_minor"]))  # fmt: skip
    if parts[1][1] == parts[2][1] == 0:
        return []
    return [{"text": text, "amount": format_minor(amount, content["currency"])} for text, amount in parts]


def queue_sums(lines: Iterable[dict[str, Any]], currency: str) -> dict[str, Any]:
    """What each queue costs over all meters, the dearest first; the rest of a long list as one sum. In minor units,
    which sum to the usage lines."""
    sums: dict[tuple[str, str], int] = defaultdict(int)
    for line in lines:
        sums[line["queue"], line["queue_uuid"]] += line["amount_nanos"]
    found = sorted(sums.items(), key=lambda one: (-one[1], one[0]))
    nanos = [amount for _, amount in found]
    amounts = split_exactly(sum(nanos) // nanos_per_minor(currency), nanos)
    rest = amounts[PDF_QUEUES_MAX:]
    return {
        "shown": [
            {"queue": name or queue_uuid, "amount": format_minor(amount, currency)}
            for ((name, queue_uuid), _), amount in zip(found[:PDF_QUEUES_MAX], amounts, strict=False)
        ],
        "others": len(rest),
        "others_amount": format_minor(sum(rest), currency),
    }
