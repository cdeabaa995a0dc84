"""Addresses of the pages. `a/<account>` is one account; all state of a page stands in its address."""

from __future__ import annotations

from django.urls import URLPattern, URLResolver, include, path

import api.converters  # noqa: F401 - registers `name`
from console.assets import serve_asset
from console.views import (
    account,
    alarms,
    entry,
    keys,
    me,
    messages,
    metrics,
    moves,
    operators,
    overview,
    people,
    queue,
    queue_forms,
    queues,
    schedules,
)

_ENTRY = [
    path("", entry.home),
    path("sign-in", entry.sign_in),
    path("code", entry.code),
    path("sign-out", entry.sign_out),
    path("sign-up", entry.sign_up),
    path("confirm", entry.confirm),
    path("reset", entry.reset),
    path("new-password", entry.new_password),
    path("link", entry.link),
    path("join", entry.join),
    path("again", entry.again),
]
_ME = [
    path("me", me.me),
    path("me/password", me.change_password),
    path("me/totp", me.begin_totp),
    path("me/totp/confirm", me.confirm_totp),
    path("me/totp/codes", me.renew_codes),
    path("me/totp/remove", me.remove_totp),
    path("me/sessions/end-others", me.end_other_sessions),
    path("me/sessions/<uuid:session_id>/end", me.end_session),
]
_QUEUE = [
    path("", queue.queue_page),
    path("/counts", queue.queue_counts),
    path("/metrics", metrics.queue_metrics),
    path("/charts", metrics.queue_charts),
    path("/edit", queue_forms.edit_queue),
    path("/tags", queue.tags),
    path("/access", queue.access),
    path("/pause", queue.pause),
    path("/resume", queue.resume),
    path("/purge", queue.purge),
    path("/delete", queue.delete),
    path("/messages", messages.messages),
    path("/messages/list", messages.message_list),
    path("/messages/body", messages.body),
    path("/messages/resend", messages.resend),
    path("/messages/delete", messages.delete_message),
    path("/messages/dead-letter", messages.dead_letter),
    path("/send", messages.send),
    path("/moves", moves.moves),
    path("/moves/progress", moves.progress),
    path("/moves/<uuid:move_id>/<name:verb>", moves.change_move),
    path("/schedules", schedules.schedules),
    path("/schedules/<name:schedule>/<name:verb>", schedules.change_schedule),
    path("/scheduled", schedules.scheduled),
    path("/scheduled/cancel", schedules.cancel_scheduled),
]
_ACCOUNT: list[URLPattern | URLResolver] = [
    path("", overview.overview),
    path("attention", overview.attention),
    path("traffic", overview.traffic),
    path("jump", queues.jump),
    path("queues", queues.queues),
    path("counts", queues.counts),
    path("new-queue", queue_forms.new_queue),
    path("new-queue/same-as", queue_forms.same_as),
    path("queues/<name:name>", include(_QUEUE)),
    path("people", people.people),
    path("people/invite", people.invite),
    path("people/<uuid:person_id>/role", people.change_role),
    path("people/<uuid:person_id>/remove", people.remove),
    path("invitations/<uuid:invitation_id>/withdraw", people.withdraw),
    path("keys", keys.keys),
    path("keys/new", keys.new_key),
    path("keys/<name:access_key_id>/revoke", keys.revoke),
    path("alarms", alarms.alarms),
    path("alarms/new", alarms.new_alarm),
    path("alarm/<name:alarm>", alarms.one_alarm),
    path("alarm/<name:alarm>/mute", alarms.mute),
    path("alarm/<name:alarm>/delete", alarms.delete),
    path("audit", account.audit),
    path("settings", account.settings),
    path("close", account.close),
    path("reopen", account.reopen),
]
_OPERATORS = [
    path("", operators.cluster),
    path("now", operators.cluster_now),
    path("accounts", operators.accounts),
    path("accounts/<name:account_id>", operators.one_account),
]

_PAGES: list[URLPattern | URLResolver] = [
    *_ENTRY,
    *_ME,
    path("operators/", include(_OPERATORS)),
    path("a/<name:account_id>/", include(_ACCOUNT)),
]

urlpatterns = [
    path("console", entry.home),
    path("console/", include(_PAGES)),
    path("static/console/<str:named>", serve_asset),
]
