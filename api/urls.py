"""Where everything is. `/internal` is never passed on from outside; `/v1` and `/console` are."""

from __future__ import annotations

from django.urls import include, path

from api.health import healthz, metrics
from api.internal.audit import note_action
from api.internal.key_uses import note_api_key_uses, note_encryption_key_uses, note_queue_key_uses
from api.internal.quotas import note_quota_use
from api.internal.refused_calls import note_refused_calls
from api.internal.sqs import run_action
from api.internal.tails import confirm_tails, start_tail
from api.schema import openapi_document

handler400 = "api.problems.bad_request"
handler403 = "api.problems.forbidden"
handler404 = "console.views.errors.not_found"
handler500 = "console.views.errors.internal_failure"

urlpatterns = [
    path("healthz", healthz),
    path("metrics", metrics),
    path("internal/audit", note_action),
    path("internal/data-keys/used", note_queue_key_uses),
    path("internal/encryption-keys/used", note_encryption_key_uses),
    path("internal/keys/used", note_api_key_uses),
    path("internal/quotas", note_quota_use),
    path("internal/refused-calls", note_refused_calls),
    path("internal/sqs/<str:action>", run_action),
    path("internal/tails/confirm", confirm_tails),
    path("internal/tails/open", start_tail),
    path("v1/openapi.json", openapi_document),
    path("v1/", include("api.accounts.urls")),
    path("v1/", include("api.alarms.urls")),
    path("v1/", include("api.webhooks.urls")),
    path("v1/", include("api.audit.urls")),
    path("v1/", include("api.billing.urls")),
    path("v1/", include("api.definitions.urls")),
    path("v1/", include("api.encryption.urls")),
    path("v1/", include("api.iam.urls")),
    path("v1/", include("api.people.urls")),
    path("v1/", include("api.queues.urls")),
    path("v1/", include("api.quotas.urls")),
    path("v1/", include("api.schedules.urls")),
    path("v1/", include("api.series.urls")),
    path("", include("console.urls")),
]
