"""The plan of every account that was given no other. Operators change it by a later version of their own. Pure."""

from __future__ import annotations

from api.billing.pricing.meters import BYTE_MS_PER_GIB_HOUR, PRICED_METERS, UsageMeter
from api.billing.pricing.terms import INCLUDED, MeterPrice, PlanTerms, PriceTier

STANDARD_CODE = "standard"
STANDARD_NAME = "Standard"
_HOURS_PER_MONTH = 730
_GIB_MONTH = BYTE_MS_PER_GIB_HOUR * _HOURS_PER_MONTH
# 0.40 USD a million units, 0.30 USD from 100 thousand million on; the first million is free.
_UNITS = MeterPrice(10**6, (PriceTier(10**11, 400, 1), PriceTier(None, 300, 1)))
# 0.10 USD a GiB and month; the first GiB is free.
_STORAGE = MeterPrice(_GIB_MONTH, (PriceTier(None, 10**8, _GIB_MONTH),))

STANDARD_TERMS = PlanTerms(
    "USD",
    0,
    0,
    {
        **dict.fromkeys(PRICED_METERS, INCLUDED),
        UsageMeter.SENT_UNITS: _UNITS,
        UsageMeter.DELIVERED_UNITS: _UNITS,
        UsageMeter.STORED_BYTE_MS: _STORAGE,
    },
)
