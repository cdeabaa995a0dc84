"""Where everything is. `/internal` is never passed on from outside; `/v1` and `/console` are."""

from __future__ import annotations

from django.urls import include, path

import api.converters  # noqa: F401 - registers `name`
from api.accounts.views import AccountView, KeysView, KeyView
from api.alarms import views as alarms
from api.audit.views import AuditEntriesView, AuditExportView
from api.billing import views as billing
from api.definitions.views import ComparisonView, DefinitionsView, ImportView
from api.encryption import views as encryption
from api.health import healthz, metrics
from api.iam.views import groups, keys, policies, simulation
from api.internal.audit import note_action
from api.internal.key_uses import note_api_key_uses, note_encryption_key_uses, note_queue_key_uses
from api.internal.quotas import note_quota_use
from api.internal.refused_calls import note_refused_calls
from api.internal.sqs import run_action
from api.internal.tails import confirm_tails, start_tail
from api.people.views import accounts, people, sessions
from api.queues import views as queues
from api.queues.deleted_views import DeletedQueuesView, DeletedQueueView, RestorationView
from api.queues.pausing import PauseView, ResumeView
from api.quotas.single_views import KeyQuotasView, QueueQuotasView
from api.quotas.views import QuotaRequestsView, QuotaRequestView, QuotasView
from api.schedules import views as schedules
from api.schema import openapi_document
from api.series import views as series
from api.webhooks import views as webhooks

handler400 = "api.problems.bad_request"
handler403 = "api.problems.forbidden"
handler404 = "console.views.errors.not_found"
handler500 = "console.views.errors.internal_failure"

_INTERNAL = [
    path("audit", note_action),
    path("data-keys/used", note_queue_key_uses),
    path("encryption-keys/used", note_encryption_key_uses),
    path("keys/used", note_api_key_uses),
    path("quotas", note_quota_use),
    path("refused-calls", note_refused_calls),
    path("sqs/<str:action>", run_action),
    path("tails/confirm", confirm_tails),
    path("tails/open", start_tail),
]
_ACCOUNT = [
    path("account", AccountView.as_view()),
    path("keys", KeysView.as_view()),
    path("keys/<name:access_key_id>", KeyView.as_view()),
]
_ALARMS = [
    path("alarms", alarms.AlarmsView.as_view()),
    path("alarms/<name:name>", alarms.AlarmView.as_view()),
    path("alarms/<name:name>/mute", alarms.AlarmMuteView.as_view()),
    path("alarm-events", alarms.AlarmEventsView.as_view()),
]
_WEBHOOKS = [
    path("webhooks", webhooks.WebhooksView.as_view()),
    path("webhooks/<name:name>", webhooks.WebhookView.as_view()),
    path("webhooks/<name:name>/rotation", webhooks.WebhookRotationView.as_view()),
    path("webhooks/<name:name>/test", webhooks.WebhookTestView.as_view()),
    path("webhooks/<name:name>/deliveries", webhooks.WebhookDeliveriesView.as_view()),
]
_AUDIT = [
    path("audit-entries", AuditEntriesView.as_view()),
    path("audit-entries/export", AuditExportView.as_view()),
]
_BILLING = [
    path("billing/usage", billing.UsageView.as_view()),
    path("billing/meter", billing.MeterView.as_view()),
    path("billing/invoices", billing.InvoicesView.as_view()),
    path("billing/invoices/<uuid:invoice_id>", billing.InvoiceView.as_view()),
    path("billing/invoices/<uuid:invoice_id>.csv", billing.InvoiceCsvView.as_view()),
    path("billing/invoices/<uuid:invoice_id>.pdf", billing.InvoicePdfView.as_view()),
    path("billing/notes/<uuid:note_id>", billing.NoteView.as_view()),
    path("billing/notes/<uuid:note_id>.csv", billing.NoteCsvView.as_view()),
    path("billing/notes/<uuid:note_id>.pdf", billing.NotePdfView.as_view()),
    path("billing/budgets", billing.BudgetsView.as_view()),
    path("billing/budgets/<name:name>", billing.BudgetView.as_view()),
    path("billing/budget-events", billing.BudgetEventsView.as_view()),
    path("billing/buyer", billing.BuyerView.as_view()),
    path("billing/plans", billing.PlansView.as_view()),
    path("billing/credits", billing.CreditsView.as_view()),
]
_DEFINITIONS = [
    path("definitions", DefinitionsView.as_view()),
    path("definitions/comparison", ComparisonView.as_view()),
    path("definitions/import", ImportView.as_view()),
]
_ENCRYPTION_KEY = "encryption-keys/<name:encryption_key>"
_ENCRYPTION = [
    path("encryption-keys", encryption.EncryptionKeysView.as_view()),
    path(_ENCRYPTION_KEY, encryption.EncryptionKeyView.as_view()),
    path(f"{_ENCRYPTION_KEY}/enable", encryption.EncryptionKeyEnableView.as_view()),
    path(f"{_ENCRYPTION_KEY}/disable", encryption.EncryptionKeyDisableView.as_view()),
    path(f"{_ENCRYPTION_KEY}/rotation", encryption.EncryptionKeyRotationView.as_view()),
    path(f"{_ENCRYPTION_KEY}/deletion", encryption.EncryptionKeyDeletionView.as_view()),
    path(f"{_ENCRYPTION_KEY}/uses", encryption.EncryptionKeyUsesView.as_view()),
]
_IAM = [
    path("keys/<name:access_key_id>/rotation", keys.KeyRotationView.as_view()),
    path("keys/<name:access_key_id>/policy", keys.KeyPolicyView.as_view()),
    path("keys/<name:access_key_id>/policies/<name:policy_name>", keys.KeyAttachmentView.as_view()),
    path("policies", policies.PoliciesView.as_view()),
    path("policies/simulate", simulation.SimulateView.as_view()),
    path("policies/<name:policy>", policies.PolicyView.as_view()),
    path("members/<uuid:person_id>/policies", policies.MemberPoliciesView.as_view()),
    path("members/<uuid:person_id>/policies/<name:policy_name>", policies.MemberAttachmentView.as_view()),
    path("groups", groups.GroupsView.as_view()),
    path("groups/<name:group>", groups.GroupView.as_view()),
    path("groups/<name:group>/members/<uuid:person_id>", groups.GroupMemberView.as_view()),
    path("groups/<name:group>/policies/<name:policy_name>", groups.GroupAttachmentView.as_view()),
]
_PEOPLE = [
    path("people", people.PeopleView.as_view()),
    path("people/confirmation", people.ConfirmationView.as_view()),
    path("people/password-reset", people.PasswordResetView.as_view()),
    path("people/password", people.PasswordView.as_view()),
    path("people/me", people.MeView.as_view()),
    path("people/me/password", people.MyPasswordView.as_view()),
    path("people/me/totp", people.TotpView.as_view()),
    path("people/me/totp/confirmation", people.TotpConfirmationView.as_view()),
    path("people/me/passkeys", people.PasskeysView.as_view()),
    path("people/me/passkeys/<uuid:passkey_id>", people.PasskeyView.as_view()),
    path("people/me/recovery-codes", people.RecoveryCodesView.as_view()),
    path("session", sessions.SessionView.as_view()),
    path("session/challenge", sessions.ChallengeView.as_view()),
    path("session/authentication", sessions.AuthenticationView.as_view()),
    path("sessions", sessions.SessionsView.as_view()),
    path("sessions/<uuid:session_id>", sessions.OneSessionView.as_view()),
    path("accounts", accounts.AccountsView.as_view()),
    path("accounts/<name:account_id>", accounts.OneAccountView.as_view()),
    path("accounts/<name:account_id>/closing", accounts.ClosingView.as_view()),
    path("accounts/<name:account_id>/members", accounts.MembersView.as_view()),
    path("accounts/<name:account_id>/members/<uuid:person_id>", accounts.MemberView.as_view()),
    path("accounts/<name:account_id>/invitations", accounts.InvitationsView.as_view()),
    path("accounts/<name:account_id>/invitations/<uuid:invitation_id>", accounts.InvitationView.as_view()),
    path("invitations/acceptance", accounts.AcceptanceView.as_view()),
]
_QUEUES = [
    path("deleted-queues", DeletedQueuesView.as_view()),
    path("deleted-queues/<uuid:queue_id>", DeletedQueueView.as_view()),
    path("deleted-queues/<uuid:queue_id>/restoration", RestorationView.as_view()),
    path("queues", queues.QueuesView.as_view()),
    path("queues/<name:name>", queues.QueueView.as_view()),
    path("queues/<name:name>/pause", PauseView.as_view()),
    path("queues/<name:name>/resume", ResumeView.as_view()),
    path("queues/<name:name>/sources", queues.DeadLetterSourcesView.as_view()),
    path("queues/<name:name>/moves", queues.MovesView.as_view()),
    path("queues/<name:name>/moves/<uuid:move_id>", queues.MoveView.as_view()),
    path("queues/<name:name>/moves/<uuid:move_id>/pause", queues.MovePauseView.as_view()),
    path("queues/<name:name>/moves/<uuid:move_id>/resume", queues.MoveResumeView.as_view()),
]
_QUOTAS = [
    path("keys/<name:access_key_id>/quotas", KeyQuotasView.as_view()),
    path("queues/<name:name>/quotas", QueueQuotasView.as_view()),
    path("quotas", QuotasView.as_view()),
    path("quota-requests", QuotaRequestsView.as_view()),
    path("quota-requests/<name:request_id>", QuotaRequestView.as_view()),
]
_SCHEDULES = [
    path("queues/<name:name>/schedules", schedules.SchedulesView.as_view()),
    path("queues/<name:name>/schedules/<name:schedule>", schedules.ScheduleView.as_view()),
    path("queues/<name:name>/schedules/<name:schedule>/pause", schedules.SchedulePauseView.as_view()),
    path("queues/<name:name>/schedules/<name:schedule>/resume", schedules.ScheduleResumeView.as_view()),
]
_SERIES = [
    path("metrics", series.MetricsView.as_view()),
    path("metrics/data", series.MetricDataView.as_view()),
    path("metrics/prometheus", series.MetricScrapeView.as_view()),
]
_V1 = [
    path("openapi.json", openapi_document),
    *_ACCOUNT,
    *_ALARMS,
    *_WEBHOOKS,
    *_AUDIT,
    *_BILLING,
    *_DEFINITIONS,
    *_ENCRYPTION,
    *_IAM,
    *_PEOPLE,
    *_QUEUES,
    *_QUOTAS,
    *_SCHEDULES,
    *_SERIES,
]
urlpatterns = [
    path("healthz", healthz),
    path("metrics", metrics),
    path("internal/", include(_INTERNAL)),
    path("v1/", include(_V1)),
    path("", include("console.urls")),
]
