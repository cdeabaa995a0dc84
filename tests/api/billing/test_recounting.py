"""A closed month counted again is compared with its invoices, to the cent, and nothing of it stays."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from api.audit.actions import OPERATOR
from api.billing.actions.invoices import BILLING, correct_invoice, issue_invoice
from api.billing.models import CreditNote, DailyUsage, FillLedger, Invoice, LateUsage, QuarantinedUsage, UsageRun
from api.billing.recounting import MonthRecount, recount_month
from api.billing.settling import UsageRow
from tests.api.billing.test_invoices import plan
from tests.api.billing.test_merged_days import lines_of
from tests.api.billing.usage import PERIOD, open_since, row, settle_month, settle_rows
from tests.support.control_plane import new_caller

pytestmark = pytest.mark.django_db
TAXES = [{"name": "VAT", "rate_ppm": 190_000}]


@pytest.fixture
def invoice(account: str) -> Invoice:
    """10.00 of usage and 1.90 of tax."""
    open_since(account)
    plan(account, taxes=TAXES)
    settle_month(usage(account))
    made = issue_invoice(BILLING, account, PERIOD)
    assert made is not None and made.total_minor == 1_190
    return made


def usage(account: str, units: int = 10_100) -> list[UsageRow]:
    return [row(account, 5, partition_id=0, sent_units=units - 100), row(account, 700, partition_id=0, sent_units=100)]


def counted(rows: Sequence[UsageRow], account_id: str | None = None) -> MonthRecount:
    return recount_month(PERIOD, [[lines_of(rows)]], account_id=account_id)


def everything() -> list[object]:
    """Rows that a merge or a correction would change."""
    models = (DailyUsage, FillLedger, Invoice, CreditNote, LateUsage, QuarantinedUsage, UsageRun)
    return [list(model.objects.order_by("pk").values()) for model in models]


def test_month_that_is_counted_to_the_same_has_no_difference(account: str, invoice: Invoice) -> None:
    before = everything()
    found = counted(usage(account))
    assert found.is_equal and (found.invoices, found.run) == (1, (0, 0, 0))
    assert everything() == before


@pytest.mark.parametrize(
    ("units", "amounts"), [(10_110, (1, 0, 1)), (8_100, (-200, -38, -238)), (12_100, (200, 38, 238))]
)
def test_difference_is_told_to_the_cent_and_nothing_is_changed(
    account: str, invoice: Invoice, units: int, amounts: tuple[int, int, int]
) -> None:
    before = everything()
    found = counted(usage(account, units))
    (one,) = found.differences
    assert not found.is_equal and (one.charges_minor, one.tax_minor, one.total_minor) == amounts
    assert (one.invoice, one.billed_minor, one.is_settled) == (invoice, 1_190, False)
    assert everything() == before and not CreditNote.objects.exists()


def test_row_that_the_lake_does_not_have_is_a_difference_and_one_that_cannot_be_billed_is_none(
    account: str, invoice: Invoice
) -> None:
    (one,) = counted(usage(account)[1:]).differences
    assert one.total_minor == -1_190
    bad = row(account, 6, partition_id=0, sent_units=2**48 + 1)
    found = counted([*usage(account), bad])
    assert found.is_equal and found.run.quarantined == 1 and not QuarantinedUsage.objects.exists()


def test_difference_that_the_settled_usage_has_too_is_one_that_a_note_corrects(account: str, invoice: Invoice) -> None:
    settle_rows([usage(account, 12_100)[0]], 5, 1)
    (one,) = counted(usage(account, 12_100)).differences
    assert one.is_settled and one.total_minor == 238
    note = correct_invoice(OPERATOR, account, invoice.pk, "late")
    assert note is not None and note.owed_minor == one.total_minor
    assert counted(usage(account, 12_100)).is_equal, "the invoice and its note together"
    (back,) = counted(usage(account)).differences
    assert (back.total_minor, back.billed_minor) == (-238, 1_428)


def test_accounts_are_compared_one_by_one_or_one_alone(account: str, invoice: Invoice) -> None:
    other = new_caller("another").account_id
    open_since(other)
    plan(other, code="other")
    rows = [*usage(account), *usage(other, 2_100)]
    found = counted(rows)
    assert [(one.account.pk, one.total_minor) for one in found.not_invoiced] == [(other, 200)] and not found.is_equal
    assert counted(rows, account).is_equal
