"""Forms that create and change a queue."""

from __future__ import annotations

import json

from asgiref.sync import async_to_sync
from django.http import Http404, HttpRequest, HttpResponse
from django.shortcuts import render

from api.encryption import limits as encryption_limits
from api.encryption.selectors import keys_of as encryption_keys_of
from api.iam.authorisation import Targets
from api.iam.targets import with_attributes
from api.people.roles import Act
from api.queues import attributes as rules
from api.queues import selectors
from api.queues.actions import of_version
from api.queues.attributes import FIFO_SUFFIX, QueueProblem, is_fifo
from api.queues.models import Queue
from api.queues.provisioning import create_and_wait
from api.queues.spreading import change_attributes
from api.settings.environment import environment
from console import attribute_words
from console.error_notices import ErrorNotice, notice_of
from console.pages import account_page, told
from console.presets import PRESETS, preset_of
from console.same_as import creating
from console.visits import AccountVisit
from frontend.authz.actions import MANAGEMENT_OPERATIONS

TARGETS_OFFERED_MAX = 200
_MOVED_AFTER_DEFAULT = "5"
_DIGITS_MAX = 18


@account_page(Act.MANAGE_QUEUES, "GET", "POST")
def new_queue(request: HttpRequest, visit: AccountVisit) -> HttpResponse:
    preset = preset_of(request.GET.get("preset", "plain"))
    if request.method == "GET":
        fifo = preset.fifo or request.GET.get("kind") == "fifo"
        return _new_form(request, visit, fifo, preset.attributes, {"preset": preset})
    form = {key: str(value) for key, value in request.POST.items()}
    fifo = form.get("kind") == "fifo"
    name = _full_name(form.get("name", ""), fifo)
    asked = _asked(visit, form, name)
    try:
        name = rules.check_name(name)
        attributes = rules.check_new(asked | ({"FifoQueue": "true"} if fifo else {}), name)
        _require(visit, "queues.create", name, attributes)
        queue = async_to_sync(create_and_wait)(visit.actor, visit.account_id, name, attributes, {})
    except QueueProblem as error:
        return _new_form(request, visit, fifo, asked, {"preset": preset, "form": form}, error)
    return told(queue_url(visit, queue.name), f"The queue {queue.name} is ready.")


@account_page(Act.MANAGE_QUEUES, "POST")
def same_as(request: HttpRequest, visit: AccountVisit) -> HttpResponse:
    """The texts beside the form, as it stands now."""
    form = {key: str(value) for key, value in request.POST.items()}
    fifo = form.get("kind") == "fifo"
    name = _full_name(form.get("name", ""), fifo)
    return render(request, "console/parts/snippets.html", {"snippets": _snippets(name, _asked(visit, form, name))})


@account_page(Act.MANAGE_QUEUES, "GET", "POST")
def edit_queue(request: HttpRequest, visit: AccountVisit, name: str) -> HttpResponse:
    queue = queue_or_404(visit, name)
    if request.method == "GET":
        return _edit_form(request, visit, queue, dict(queue.attributes))
    form = {key: str(value) for key, value in request.POST.items()}
    form["RedrivePolicy"] = _redrive_policy(visit, form)
    change = attribute_words.changed(form, queue.attributes, name)
    if not change:
        return told(queue_url(visit, name), "Nothing was changed.")
    version = form.get("version", "")
    check = of_version(int(version)) if _is_integer(version) else None
    try:
        checked = rules.check_change(change, name)
        _require(visit, "queues.update", name, checked)
        async_to_sync(change_attributes)(visit.actor, visit.account_id, name, checked, check)
    except QueueProblem as error:
        return _edit_form(request, visit, queue, {**queue.attributes, **form}, error)
    return told(queue_url(visit, name), "The settings are changed.")


def queue_or_404(visit: AccountVisit, name: str) -> Queue:
    queue = selectors.queue_of(visit.account_id, name)
    if queue is None:
        raise Http404
    return queue


def queue_url(visit: AccountVisit, name: str, tail: str = "") -> str:
    return f"/console/a/{visit.account_id}/queues/{name}{tail}"


def _require(visit: AccountVisit, operation: str, name: str, attributes: dict[str, str]) -> None:
    """With the rights to the encryption key and the dead-letter queue that the attributes name. Raises AccessDenied."""
    targets = with_attributes(Targets(name), visit.account_id, attributes)
    visit.rights.require(MANAGEMENT_OPERATIONS[operation], targets)


def _keys_offered(visit: AccountVisit) -> list[object]:
    """Encryption keys that the form can be given."""
    if not visit.reads_encryption_keys:
        return []
    return [*encryption_keys_of(visit.account_id, "", encryption_limits.KEYS_PER_ACCOUNT_MAX)]


def _new_form(
    request: HttpRequest,
    visit: AccountVisit,
    fifo: bool,
    attributes: dict[str, str],
    more: dict[str, object],
    error: QueueProblem | None = None,
) -> HttpResponse:
    name = f"my-queue{FIFO_SUFFIX}" if fifo else "my-queue"
    values = {**rules.defaults_of(name), **attributes}
    wrong, refusal = _wrong(error)
    shown = {
        **more,
        "fifo": fifo,
        "presets": PRESETS,
        "sections": attribute_words.form_of(values, fifo, wrong, refusal.text if refusal else ""),
        "refusal": refusal,
        "snippets": _snippets(name, attributes),
        "encryption_keys": _keys_offered(visit),
        **_redrive_fields(visit, values, fifo, ""),
    }
    return render(request, "console/queues/new.html", shown, status=refusal.status if refusal else 200)


def _edit_form(
    request: HttpRequest, visit: AccountVisit, queue: Queue, values: dict[str, str], error: QueueProblem | None = None
) -> HttpResponse:
    wrong, refusal = _wrong(error)
    shown = {
        "queue": queue,
        "sections": attribute_words.form_of(values, queue.fifo, wrong, refusal.text if refusal else ""),
        "refusal": refusal,
        "encryption_keys": _keys_offered(visit),
        **_redrive_fields(visit, values, queue.fifo, queue.name),
    }
    return render(request, "console/queues/edit.html", shown, status=refusal.status if refusal else 200)


def _wrong(error: QueueProblem | None) -> tuple[str, ErrorNotice | None]:
    return ("", None) if error is None else (attribute_words.attribute_in(error.message), notice_of(error))


def _full_name(name: str, fifo: bool) -> str:
    """Of a FIFO queue the suffix need not be typed."""
    given = name.strip()
    return f"{given}{FIFO_SUFFIX}" if fifo and given and not given.endswith(FIFO_SUFFIX) else given


def _asked(visit: AccountVisit, form: dict[str, str], name: str) -> dict[str, str]:
    """What the form says that differs from the defaults."""
    given = attribute_words.attributes_given({**form, "RedrivePolicy": _redrive_policy(visit, form)}, name)
    defaults = rules.defaults_of(name)
    plain = {one.name: one.default for section in attribute_words.SECTIONS for one in section.words if one.default}
    return {key: value for key, value in given.items() if {**plain, **defaults}.get(key) != value}


def _redrive_policy(visit: AccountVisit, form: dict[str, str]) -> str:
    target = form.get("dead_letter_name", "").strip()
    if not target:
        return ""
    arn = rules.format_arn(environment().region, visit.account_id, target)
    receives = form.get("dead_letter_receives", "").strip() or _MOVED_AFTER_DEFAULT
    return json.dumps(
        {"deadLetterTargetArn": arn, "maxReceiveCount": int(receives) if _is_integer(receives) else receives}
    )


def _is_integer(text: str) -> bool:
    """Of a size that the database holds, too."""
    return text.isascii() and text.isdigit() and len(text) <= _DIGITS_MAX


def _redrive_fields(visit: AccountVisit, values: dict[str, str], fifo: bool, name: str) -> dict[str, object]:
    """What the form shows of the dead-letter queue, and the queues that can be one. The values may be refused ones."""
    search = selectors.QueueSearch(kind="fifo" if fifo else "standard")
    offered = visit.search_queues(search, 0, TARGETS_OFFERED_MAX).found
    target, receives = "", _MOVED_AFTER_DEFAULT
    try:
        redrive = rules.redrive_of(values)
    except (ValueError, KeyError, TypeError):
        redrive = None
    if redrive is not None:
        target, receives = redrive.target.name, str(redrive.receives_max)
    return {
        "dead_letter_name": target,
        "dead_letter_receives": receives,
        "targets": [queue.name for queue in offered if queue.name != name],
    }


def _snippets(name: str, attributes: dict[str, str]) -> list[object]:
    env = environment()
    with_kind = {**({"FifoQueue": "true"} if is_fifo(name) else {}), **attributes}
    return [*creating(env.endpoint, env.region, name, with_kind)]
