"""Webhooks of an account: the list, one of them with its last deliveries, created, tested, rotated, deleted."""

from __future__ import annotations

from functools import partial
from typing import Any

from django.http import Http404, HttpRequest, HttpResponse
from django.shortcuts import render

from api import clock
from api.idempotency.forms import DoneAlready
from api.webhooks import actions, limits, selectors
from api.webhooks.actions import PutWebhook, WebhookError
from api.webhooks.models import CallResult, DeliveryState, Webhook, WebhookDelivery
from console.error_notices import ErrorNotice, notice_of
from console.once import once
from console.pages import operation_page, told
from console.visits import AccountVisit

# In hours: how long the old secret signs, too.
GRACES_H = (0, 1, 24, limits.WEBHOOK_GRACE_S_MAX // 3_600)
RESULTS = {
    CallResult.NONE: "not called yet",
    CallResult.DELIVERED: "answered",
    CallResult.STATUS: "answered",
    CallResult.NO_ADDRESS: "the name has no address that may be called",
    CallResult.NO_CONNECTION: "the connection failed",
    CallResult.NO_TLS: "the certificate is not valid for the name, or there is no TLS",
    CallResult.NO_ANSWER: "no valid HTTP answer",
    CallResult.TIMEOUT: "no answer in time",
}


@operation_page("webhooks.list", "GET", "POST")
def webhooks(request: HttpRequest, visit: AccountVisit) -> HttpResponse:
    """A secret that is created is in this answer and nowhere else: no redirect, and a repetition creates none."""
    if request.method == "GET":
        return _list(request, visit)
    visit.require("webhooks.put")
    name, url = (request.POST.get(field, "").replace("\0", "").strip() for field in ("name", "url"))
    try:
        made = once(request, visit, partial(_create, visit, name, url), _name_of)
    except DoneAlready as done:
        text = (
            f"The webhook {done.made} was created already. Its secret was shown once: a rotation gives it another one."
        )
        return told(f"/console/a/{visit.account_id}/webhooks", text, "warn")
    except WebhookError as error:
        return _list(request, visit, refusal=notice_of(error), form={"name": name, "url": url})
    return _page(request, visit, made.webhook, made)


@operation_page("webhooks.get", "GET")
def one_webhook(request: HttpRequest, visit: AccountVisit, webhook: str) -> HttpResponse:
    return _page(request, visit, _webhook_or_404(visit, webhook))


@operation_page("webhooks.deliveries", "GET")
def webhook_deliveries(request: HttpRequest, visit: AccountVisit, webhook: str) -> HttpResponse:
    """The list alone: asked again while something waits for its first call."""
    _webhook_or_404(visit, webhook)
    return render(request, "console/webhooks/deliveries.html", _deliveries(visit, webhook))


@operation_page("webhooks.test", "POST")
def check(request: HttpRequest, visit: AccountVisit, webhook: str) -> HttpResponse:
    _webhook_or_404(visit, webhook)
    actions.check_webhook(visit.actor, visit.account_id, webhook)
    return told(webhook_url(visit, webhook), "A test is sent within seconds. Its outcome is shown below.")


@operation_page("webhooks.rotate", "POST")
def rotate(request: HttpRequest, visit: AccountVisit, webhook: str) -> HttpResponse:
    """The new secret is in this answer and nowhere else: no redirect, and a repetition rotates nothing."""
    _webhook_or_404(visit, webhook)
    hours = request.POST.get("hours", "")
    grace_s = int(hours) * 3_600 if hours in map(str, GRACES_H) else limits.WEBHOOK_GRACE_S_DEFAULT
    try:
        make = partial(actions.rotate_webhook, visit.actor, visit.account_id, webhook, grace_s)
        made = once(request, visit, make, _name_of)
    except DoneAlready:
        text = "The secret was rotated already, and is not rotated again. The new one was shown once."
        return told(webhook_url(visit, webhook), text, "warn")
    return _page(request, visit, made.webhook, made)


@operation_page("webhooks.delete", "POST")
def delete(request: HttpRequest, visit: AccountVisit, webhook: str) -> HttpResponse:
    found = _webhook_or_404(visit, webhook)
    try:
        actions.delete_webhook(visit.actor, visit.account_id, webhook)
    except WebhookError as error:
        return _page(request, visit, found, refusal=notice_of(error))
    return told(f"/console/a/{visit.account_id}/webhooks", f"The webhook {webhook} is deleted.", "warn")


def webhook_url(visit: AccountVisit, name: str) -> str:
    return f"/console/a/{visit.account_id}/webhooks/{name}"


def _create(visit: AccountVisit, name: str, url: str) -> PutWebhook:
    """Raises WebhookError."""
    if selectors.webhook_of(visit.account_id, name) is not None:
        text = f"A webhook {name} exists already: choose another name, or delete that webhook."
        raise WebhookError("invalid-request", text)
    return actions.put_webhook(visit.actor, visit.account_id, name, url)


def _name_of(made: PutWebhook) -> str:
    return made.webhook.name


def _webhook_or_404(visit: AccountVisit, name: str) -> Webhook:
    found = selectors.webhook_of(visit.account_id, name)
    if found is None:
        raise Http404
    return found


def _list(
    request: HttpRequest, visit: AccountVisit, refusal: ErrorNotice | None = None, form: dict[str, str] | None = None
) -> HttpResponse:
    shown = {
        "webhooks": selectors.webhooks_of(visit.account_id),
        "puts": visit.may_change_with("webhooks.put"),
        "form": form or {},
        "refusal": refusal,
    }
    return render(request, "console/webhooks/index.html", shown, status=refusal.status if refusal else 200)


def _page(
    request: HttpRequest,
    visit: AccountVisit,
    webhook: Webhook,
    made: PutWebhook | None = None,
    refusal: ErrorNotice | None = None,
) -> HttpResponse:
    now = clock.now()
    shown = {
        "webhook": webhook,
        "made": made,
        "graces": [(hours, hours * 3_600) for hours in GRACES_H],
        "has_two": webhook.previous_until is not None and webhook.previous_until > now,
        "tests": visit.may_change_with("webhooks.test"),
        "rotates": visit.may_change_with("webhooks.rotate"),
        "deletes": visit.may_change_with("webhooks.delete"),
        "refusal": refusal,
        **_deliveries(visit, webhook.name),
    }
    return render(request, "console/webhooks/webhook.html", shown, status=refusal.status if refusal else 200)


def _deliveries(visit: AccountVisit, name: str) -> dict[str, Any]:
    found: list[WebhookDelivery] = selectors.deliveries_of(visit.account_id, name)
    return {
        "deliveries": found,
        "results": RESULTS,
        "base": webhook_url(visit, name),
        "is_due": any(one.state == DeliveryState.WAITING and not one.last_at for one in found),
    }
