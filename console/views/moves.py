"""The redrive of a dead-letter queue: a dry run, the move with its progress, pause and cancel."""

from __future__ import annotations

import uuid

from django.http import Http404, HttpRequest, HttpResponse
from django.shortcuts import render

from api.iam.authorisation import Targets
from api.iam.targets import destinations_of
from api.people.roles import Act
from api.queues import moves as actions
from api.queues.attributes import QueueProblem, format_arn, parse_arn
from api.queues.models import ACTIVE_MOVES
from api.queues.serializers import MoveRequestSerializer, MoveSerializer
from api.settings.environment import environment
from console.error_notices import ErrorNotice, notice_of
from console.pages import account_page, told
from console.views.queue import tab_of
from console.views.queue_forms import queue_or_404, queue_url
from console.visits import AccountVisit
from frontend.authz.actions import MANAGEMENT_OPERATIONS

MOVES_SHOWN = 10
_DIGITS_MAX = 15
_NUMBERS = ("messages_per_second", "messages_max", "returned_percent_max")


@account_page(Act.READ_QUEUES, "GET", "POST", does="sqs:ListMessageMoveTasks")
def moves(request: HttpRequest, visit: AccountVisit, name: str) -> HttpResponse:
    queue = queue_or_404(visit, name)
    refusal = None
    if request.method == "POST":
        visit.require_change(Act.CHANGE_MESSAGES, "sqs:StartMessageMoveTask", to="move messages")
        _require(visit, "moves.start", name, request.POST.get("destination", "").strip())
        try:
            dry = _start(visit, name, request)
            return told(queue_url(visit, name, "/moves"), "The dry run has begun." if dry else "The redrive has begun.")
        except QueueProblem as error:
            refusal = notice_of(error)
        except ValueError as error:
            refusal = ErrorNotice(400, str(error))
    form = request.POST if request.method == "POST" else {"ids": request.GET.get("ids", "")}
    shown = {**tab_of(visit, queue, "moves"), **_tasks(visit, name), "refusal": refusal, "form": form}
    return render(request, "console/messages/moves.html", shown, status=refusal.status if refusal else 200)


@account_page(Act.READ_QUEUES, "GET", does="sqs:ListMessageMoveTasks")
def progress(request: HttpRequest, visit: AccountVisit, name: str) -> HttpResponse:
    """The tasks, asked for again while one runs."""
    queue = queue_or_404(visit, name)
    shown = {**tab_of(visit, queue, "moves"), **_tasks(visit, name)}
    return render(request, "console/messages/tasks.html", shown)


@account_page(Act.CHANGE_MESSAGES, "POST")
def change_move(request: HttpRequest, visit: AccountVisit, name: str, move_id: uuid.UUID, verb: str) -> HttpResponse:
    queue_or_404(visit, name)
    act = {"cancel": actions.cancel_move, "pause": actions.pause_move, "resume": actions.resume_move}.get(verb)
    move = actions.move_of(visit.account_id, name, move_id)
    if act is None or move is None:
        raise Http404
    target = parse_arn(move.destination_arn)
    _require(visit, f"moves.{verb}", name, "" if target is None else target.name)
    act(visit.actor, visit.account_id, move_id)
    text = {
        "cancel": "The redrive is being cancelled.",
        "pause": "The redrive is paused.",
        "resume": "The redrive continues.",
    }
    return told(queue_url(visit, name, "/moves"), text[verb])


def _start(visit: AccountVisit, name: str, request: HttpRequest) -> bool:
    """Raises QueueProblem, ValueError. True: it only counts."""
    form = request.POST
    asked: dict[str, object] = {"dry_run": form.get("what") == "count"}
    for field in _NUMBERS:
        if form.get(field, "").strip():
            text = form[field].strip()
            asked[field] = int(text) if text.isascii() and text.isdigit() and len(text) <= _DIGITS_MAX else text
    wanted: dict[str, object] = {}
    if form.get("text", "").strip():
        wanted["body_contains"] = form["text"].strip()
    if form.get("note", "").strip():
        wanted["note_contains"] = form["note"].strip()
    if form.get("ids", "").strip():
        wanted["ids"] = form["ids"].replace(",", " ").split()
    if form.get("groups", "").strip():
        wanted["groups"] = form["groups"].replace(",", " ").split()
    if wanted:
        asked["filter"] = wanted
    read = MoveRequestSerializer(data=asked)
    if not read.is_valid():
        raise ValueError("; ".join(f"{field}: {_first(error)}" for field, error in read.errors.items()))
    given = read.validated_data
    choice = actions.Choice(
        given["filter"], given["messages_max"], given["dry_run"], given["returned_max"], given["returned_percent_max"]
    )
    region = environment().region
    target = form.get("destination", "").strip()
    source_arn = format_arn(region, visit.account_id, name)
    target_arn = format_arn(region, visit.account_id, target) if target else None
    actions.start_move(visit.actor, visit.account_id, source_arn, target_arn, given["messages_per_second"], choice)
    return bool(given["dry_run"])


def _require(visit: AccountVisit, operation: str, name: str, destination: str) -> None:
    """On the queue, and on those that messages go to. Raises AccessDenied."""
    targets = Targets(name, destinations_of(visit.account_id, name, destination))
    visit.rights.require(MANAGEMENT_OPERATIONS[operation], targets)


def _first(error: object) -> str:
    return str(error[0]) if isinstance(error, list) and error else str(error)


def _tasks(visit: AccountVisit, name: str) -> dict[str, object]:
    arn = format_arn(environment().region, visit.account_id, name)
    try:
        found = actions.moves_of(visit.account_id, arn, MOVES_SHOWN)
    except QueueProblem:
        found = []
    return {
        "tasks": [{**MoveSerializer(task).data, "began": task.started_at} for task in found],
        "is_running": any(task.status in ACTIVE_MOVES for task in found),
    }
