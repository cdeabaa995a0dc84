"""What clients know against what is billed: what counts as right, as unknown, and as wrong."""

from __future__ import annotations

import pytest

from tests.blackbox.usage_ledger import DELETED, DELIVERED, LEASE_AT_RISK_S, SENT, Finding, UsageLedger

KEY = ("one", "orders")


def judged(ledger: UsageLedger, meter: str, billed: int) -> Finding:
    return next(found for found in ledger.judge({KEY: {meter: billed}}) if found.meter == meter)


@pytest.mark.parametrize(("billed", "right"), [(9, False), (10, True), (13, True), (14, False)])
def test_billed_lies_between_the_known_and_that_with_the_unknown(billed: int, right: bool) -> None:
    ledger = UsageLedger()
    ledger.know(*KEY, **{SENT: 10})
    ledger.doubt(*KEY, "ReadError", **{SENT: 3})
    assert judged(ledger, SENT, billed).is_right is right


def test_figure_without_doubt_is_exact_or_wrong() -> None:
    ledger = UsageLedger()
    ledger.know(*KEY, **{DELETED: 10})
    assert judged(ledger, DELETED, 10).is_exact and not judged(ledger, DELETED, 11).is_right


@pytest.mark.parametrize(
    ("answered_s", "billed", "right"),
    [
        (100.0, 6, True),
        (100.0 - LEASE_AT_RISK_S / 2, 6, True),
        (100.0 - LEASE_AT_RISK_S / 2, 5, False),
        (100.0 - LEASE_AT_RISK_S / 2, 11, False),
        (100.0 - 2 * LEASE_AT_RISK_S, 6, False),
        (100.0 + 2 * LEASE_AT_RISK_S, 6, False),
    ],
)
def test_delivery_may_be_forgotten_only_beside_a_kill(answered_s: float, billed: int, right: bool) -> None:
    ledger = UsageLedger()
    ledger.know(*KEY, **{DELIVERED: 10})
    ledger.leased(*KEY, 6, 50.0)
    ledger.leased(*KEY, 4, answered_s)
    ledger.killed(100.0)
    assert judged(ledger, DELIVERED, billed).is_right is right
