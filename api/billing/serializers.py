"""JSON of billing. Amounts are integers in minor units or nanos; what stands beside them as text is for reading."""

from __future__ import annotations

from typing import Any

from drf_spectacular.utils import extend_schema_field
from rest_framework import serializers

from api.billing import limits
from api.billing.actions.budgets import BudgetSpec
from api.billing.actions.parties import Party
from api.billing.documents.content import document_of, notes_in_order
from api.billing.models import BudgetEffect
from api.billing.pricing.meters import UsageMeter
from api.people.strict import StrictCharField, StrictChoiceField, StrictIntegerField, StrictSerializer


class QuantitiesSerializer(serializers.Serializer):
    """One member for each meter."""

    def get_fields(self) -> dict[str, serializers.Field]:
        return {meter.value: serializers.IntegerField() for meter in UsageMeter}


class QueueUsageSerializer(serializers.Serializer):
    queue = serializers.CharField(help_text="Empty: requests of no queue, or a queue that is gone.")
    queue_uuid = serializers.UUIDField()
    origin = serializers.CharField()
    quantities = QuantitiesSerializer()


class QuarantineCountSerializer(serializers.Serializer):
    reason = serializers.CharField()
    records = serializers.IntegerField()


class UsagePageSerializer(serializers.Serializer):
    period = serializers.CharField()
    settled_up_to = serializers.DateTimeField(allow_null=True, help_text="Usage of the hours before this is complete.")
    usage = QueueUsageSerializer(many=True)
    quarantined = QuarantineCountSerializer(many=True, help_text="Records that are not billed, and why.")
    next_page_token = serializers.CharField(allow_null=True)


class CostMeterSerializer(serializers.Serializer):
    """`charges_minor` is the sum of `settled_minor` and `provisional_minor`: usage and fees, before credits and tax."""

    period = serializers.CharField()
    currency = serializers.CharField()
    minor_digits = serializers.IntegerField()
    settled_minor = serializers.IntegerField(help_text="Of the hours before `settled_up_to`.")
    provisional_minor = serializers.IntegerField(help_text="Of what was counted since: the open hours.")
    charges_minor = serializers.IntegerField()
    total_minor = serializers.IntegerField(help_text="After credits and tax.")
    forecast_minor = serializers.IntegerField(
        allow_null=True, help_text="Charges of the whole month, if it goes on as it did so far. Null: too early to say."
    )
    settled_up_to = serializers.DateTimeField(allow_null=True)
    as_of = serializers.DateTimeField(allow_null=True, help_text="What was acknowledged before is counted.")
    is_live = serializers.BooleanField(help_text="`as_of` is not long ago, and nothing is missing.")
    missing = serializers.CharField(help_text="That something is missing. Empty: nothing is.")
    provisional = QuantitiesSerializer(help_text="Of the hours that are not settled.")


_DUE = "What is left to pay, with corrections; 0 of a draft. Negative: more was paid than is owed now."


class NoteSummarySerializer(serializers.Serializer):
    document = serializers.SerializerMethodField(help_text="credit_note or debit_note")
    id = serializers.UUIDField()
    number = serializers.CharField()
    kind = serializers.CharField(help_text="credit or debit")
    total_minor = serializers.IntegerField(help_text="Positive: what is given back, or asked for.")
    owed_minor = serializers.IntegerField(help_text="By how much more is due of the invoice; negative: less.")
    reason = serializers.CharField()
    issued_at = serializers.DateTimeField()

    def get_document(self, note: Any) -> str:
        return document_of(note)


class InvoiceSummarySerializer(serializers.Serializer):
    document = serializers.SerializerMethodField(help_text="Always invoice: notes stand below the invoice.")
    id = serializers.UUIDField()
    number = serializers.CharField(allow_null=True)
    period = serializers.SerializerMethodField()
    state = serializers.CharField()
    kind = serializers.CharField()
    currency = serializers.CharField()
    charges_minor = serializers.IntegerField()
    credits_minor = serializers.IntegerField()
    tax_minor = serializers.IntegerField()
    total_minor = serializers.IntegerField()
    settled_up_to = serializers.DateTimeField(allow_null=True)
    issued_at = serializers.DateTimeField(allow_null=True)
    paid_minor = serializers.IntegerField()
    due_minor = serializers.IntegerField(help_text=_DUE)
    is_paid = serializers.BooleanField(help_text="It is issued, and nothing is due.")
    notes = serializers.SerializerMethodField(help_text="What corrects it, the oldest first.")

    def get_document(self, invoice: Any) -> str:
        return "invoice"

    @extend_schema_field(NoteSummarySerializer(many=True))
    def get_notes(self, invoice: Any) -> Any:
        return NoteSummarySerializer(notes_in_order(invoice), many=True).data

    def get_period(self, invoice: Any) -> str:
        return f"{invoice.period_start:%Y-%m}"


class InvoicePageSerializer(serializers.Serializer):
    invoices = InvoiceSummarySerializer(many=True)
    next_page_token = serializers.CharField(allow_null=True)


class InvoiceLineSerializer(serializers.Serializer):
    position = serializers.IntegerField()
    kind = serializers.CharField()
    text = serializers.CharField()
    plan = serializers.CharField()
    meter = serializers.CharField(allow_null=True)
    tier = serializers.IntegerField()
    quantity = serializers.IntegerField()
    quantity_text = serializers.CharField()
    unit = serializers.CharField()
    price_nanos = serializers.IntegerField()
    per = serializers.IntegerField()
    price_text = serializers.CharField()
    amount_minor = serializers.IntegerField()
    amount = serializers.CharField()


class InvoiceQueueSerializer(serializers.Serializer):
    queue = serializers.CharField()
    queue_uuid = serializers.UUIDField()
    tags = serializers.DictField(child=serializers.CharField())
    meter = serializers.CharField()
    meter_name = serializers.CharField()
    quantity = serializers.IntegerField()
    quantity_text = serializers.CharField()
    unit = serializers.CharField()
    amount_nanos = serializers.IntegerField()
    amount = serializers.CharField()


class DifferenceSerializer(serializers.Serializer):
    meter = serializers.CharField()
    quantity = serializers.IntegerField()


class InvoiceNoteSerializer(serializers.Serializer):
    document = serializers.CharField(help_text="credit_note or debit_note")
    id = serializers.UUIDField()
    number = serializers.CharField()
    kind = serializers.CharField()
    charges_minor = serializers.IntegerField()
    credits_minor = serializers.IntegerField()
    tax_minor = serializers.IntegerField()
    total_minor = serializers.IntegerField()
    total = serializers.CharField()
    owed_minor = serializers.IntegerField(help_text="By how much more is due of the invoice; negative: less.")
    owed = serializers.CharField()
    differences = DifferenceSerializer(many=True)
    reason = serializers.CharField()
    issued_at = serializers.CharField()


class NoteLineSerializer(serializers.Serializer):
    kind = serializers.CharField(help_text="charges, credit or tax")
    text = serializers.CharField()
    amount_minor = serializers.IntegerField()
    amount = serializers.CharField()


class NoteDifferenceSerializer(DifferenceSerializer):
    meter_name = serializers.CharField()
    quantity_text = serializers.CharField()
    unit = serializers.CharField()


class PartySerializer(serializers.Serializer):
    """Who sells, or who buys, as it was when the document was made. What was not given is left out."""

    name = serializers.CharField()
    address = serializers.ListField(child=serializers.CharField(), required=False, help_text="Lines.")
    tax_id = serializers.CharField(required=False)
    payment = serializers.ListField(
        child=serializers.CharField(), required=False, help_text="How to pay the seller: lines."
    )
    payment_days = serializers.IntegerField(required=False, help_text="From the day of issue.")


class BuyerRequestSerializer(StrictSerializer):
    name = StrictCharField(help_text="As the law knows it.")
    address = serializers.ListField(
        child=StrictCharField(), default=list, max_length=limits.PARTY_LINES_MAX, help_text="Lines."
    )
    tax_id = StrictCharField(required=False, default="", allow_blank=True)

    def party(self) -> Party:
        given = self.validated_data
        return Party(given["name"], given["address"], given["tax_id"])


class BuyerSerializer(serializers.Serializer):
    name = serializers.CharField()
    address = serializers.ListField(child=serializers.CharField(), help_text="Lines.")
    tax_id = serializers.CharField(help_text="Empty: none was given.")
    updated_at = serializers.DateTimeField()


class NoteDocumentSerializer(InvoiceNoteSerializer):
    """A note whole. The lines sum to the total."""

    invoice_id = serializers.UUIDField()
    invoice_number = serializers.CharField(help_text="Of the invoice that it corrects.")
    invoice_issued_at = serializers.CharField()
    invoice_total_minor = serializers.IntegerField()
    account_id = serializers.CharField()
    account_name = serializers.CharField()
    account_title = serializers.CharField(help_text="What people called the account when the invoice was made.")
    seller = PartySerializer(allow_null=True, help_text="Null: the operator named none.")
    buyer = PartySerializer(allow_null=True, help_text="Null: the operator named none for the account.")
    period = serializers.CharField()
    currency = serializers.CharField()
    minor_digits = serializers.IntegerField()
    lines = NoteLineSerializer(many=True)
    differences = NoteDifferenceSerializer(many=True)


class InvoicePaymentSerializer(serializers.Serializer):
    amount_minor = serializers.IntegerField(help_text="Negative: it went back, or was recorded by mistake before.")
    amount = serializers.CharField()
    received_on = serializers.DateField()
    reference = serializers.CharField()


class TagShareSerializer(serializers.Serializer):
    value = serializers.CharField(help_text="Empty: queues without this tag.")
    amount_nanos = serializers.IntegerField()
    amount = serializers.CharField()


class InvoiceDocumentSerializer(serializers.Serializer):
    """An invoice whole. The lines sum to the total; the queues' shares, and those of a tag, to the usage lines."""

    document = serializers.CharField(help_text="Always invoice.")
    id = serializers.UUIDField()
    number = serializers.CharField(allow_null=True)
    state = serializers.CharField()
    kind = serializers.CharField()
    account_id = serializers.CharField()
    account_name = serializers.CharField()
    account_title = serializers.CharField(help_text="What people called the account when the invoice was made.")
    seller = PartySerializer(allow_null=True, help_text="Null: the operator named none.")
    buyer = PartySerializer(allow_null=True, help_text="Null: the operator named none for the account.")
    period = serializers.CharField()
    open_from = serializers.CharField()
    open_to = serializers.CharField()
    settled_up_to = serializers.CharField(allow_null=True)
    made_at = serializers.CharField()
    issued_at = serializers.CharField(allow_null=True)
    pay_by = serializers.DateField(allow_null=True, help_text="The last day; null: none is named, or it is a draft.")
    currency = serializers.CharField()
    minor_digits = serializers.IntegerField()
    charges_minor = serializers.IntegerField()
    credits_minor = serializers.IntegerField()
    tax_minor = serializers.IntegerField()
    total_minor = serializers.IntegerField()
    total = serializers.CharField()
    lines = InvoiceLineSerializer(many=True)
    queues = InvoiceQueueSerializer(many=True)
    notes = InvoiceNoteSerializer(many=True)
    payments = InvoicePaymentSerializer(many=True)
    paid_minor = serializers.IntegerField()
    due_minor = serializers.IntegerField(help_text=_DUE)
    is_paid = serializers.BooleanField(help_text="It is issued, and nothing is due.")
    tags = TagShareSerializer(many=True, required=False, help_text="Where a tag is asked for.")


class TaxSerializer(serializers.Serializer):
    name = serializers.CharField()
    rate_ppm = serializers.IntegerField()


class PlanVersionSerializer(serializers.Serializer):
    number = serializers.IntegerField()
    effective_from = serializers.DateTimeField()
    terms = serializers.DictField()


class AccountPlanSerializer(serializers.Serializer):
    plan = serializers.CharField()
    effective_from = serializers.DateTimeField()
    taxes = TaxSerializer(many=True)
    versions = PlanVersionSerializer(many=True)


class AccountPlansSerializer(serializers.Serializer):
    plans = AccountPlanSerializer(many=True)


class BillingCreditSerializer(serializers.Serializer):
    name = serializers.CharField()
    currency = serializers.CharField()
    amount_minor = serializers.IntegerField()
    left_minor = serializers.IntegerField()
    granted_at = serializers.DateTimeField()
    ends_at = serializers.DateTimeField(allow_null=True)


class BillingCreditsSerializer(serializers.Serializer):
    credits = BillingCreditSerializer(many=True)


EFFECT = (
    "At 100 %, to the account or to the queue: alert (nothing but its alerts), throttle (sends are held to "
    f"{limits.THROTTLED_SENDS_PER_S} message a second), stop (sends are refused)."
)


class BudgetRequestSerializer(StrictSerializer):
    limit_minor = StrictIntegerField(min_value=0, max_value=limits.BUDGET_MINOR_MAX)
    alert_percents = serializers.ListField(
        child=StrictIntegerField(min_value=1, max_value=limits.ALERT_PERCENT_MAX),
        default=list,
        max_length=limits.ALERT_PERCENTS_MAX,
    )
    effect = StrictChoiceField(choices=BudgetEffect.values, default=BudgetEffect.ALERT.value, help_text=EFFECT)
    mail_to = serializers.ListField(child=StrictCharField(), default=list, max_length=limits.BUDGET_MAILS_MAX)
    queue = StrictCharField(
        required=False, default="", allow_blank=True, help_text="Of this queue alone. Empty: of the account."
    )

    def spec(self) -> BudgetSpec:
        given = self.validated_data
        return BudgetSpec(
            given["limit_minor"], given["alert_percents"], given["effect"], given["mail_to"], given["queue"]
        )


class BudgetSerializer(serializers.Serializer):
    name = serializers.CharField()
    queue_uuid = serializers.UUIDField(allow_null=True)
    limit_minor = serializers.IntegerField()
    alert_percents = serializers.ListField(child=serializers.IntegerField())
    effect = serializers.CharField(help_text=EFFECT)
    mail_to = serializers.ListField(child=serializers.CharField())
    modified_at = serializers.DateTimeField()


class SpendingEffectSerializer(serializers.Serializer):
    budget = serializers.CharField(source="budget.name")
    queue_uuid = serializers.UUIDField(allow_null=True, help_text="Null: the account.")
    effect = serializers.CharField(help_text="throttle or stop")
    since = serializers.DateTimeField()


class LiftedStopSerializer(serializers.Serializer):
    budget = serializers.CharField(source="budget.name")
    lifted_by = serializers.SerializerMethodField(help_text="Always operator.")
    at = serializers.DateTimeField(allow_null=True)
    until = serializers.DateTimeField(help_text="The end of the month; a change of the budget ends it before.")

    def get_lifted_by(self, lifted: Any) -> str:
        return "operator"


class BudgetsSerializer(serializers.Serializer):
    sending_stopped = serializers.BooleanField(help_text="A budget is used up: the account sends no more.")
    in_force = SpendingEffectSerializer(many=True, help_text="What budgets that are used up do now.")
    lifted = LiftedStopSerializer(
        allow_null=True, help_text="The stop of a budget that is used up, which an operator lifted."
    )
    budgets = BudgetSerializer(many=True)


class BudgetEventSerializer(serializers.Serializer):
    budget = serializers.CharField(source="budget_name")
    kind = serializers.CharField(help_text="alert, throttle, stop, resume; lift: an operator lifted the stop")
    percent = serializers.IntegerField()
    spent_minor = serializers.IntegerField()
    limit_minor = serializers.IntegerField()
    over_minor = serializers.IntegerField()
    currency = serializers.CharField()
    at = serializers.DateTimeField()
    not_mailed = serializers.CharField(help_text="Why no mail was sent. Empty: it was, or there is no address.")


class BudgetEventsSerializer(serializers.Serializer):
    period = serializers.CharField()
    events = BudgetEventSerializer(many=True)
