"""Addresses below /v1."""

from __future__ import annotations

from django.urls import path

import api.converters  # noqa: F401 - registers `name`
from api.queues.deleted_views import DeletedQueuesView, DeletedQueueView, RestorationView
from api.queues.pausing import PauseView, ResumeView
from api.queues.views import (
    DeadLetterSourcesView,
    MovePauseView,
    MoveResumeView,
    MovesView,
    MoveView,
    QueuesView,
    QueueView,
)

urlpatterns = [
    path("deleted-queues", DeletedQueuesView.as_view()),
    path("deleted-queues/<uuid:queue_id>", DeletedQueueView.as_view()),
    path("deleted-queues/<uuid:queue_id>/restoration", RestorationView.as_view()),
    path("queues", QueuesView.as_view()),
    path("queues/<name:name>", QueueView.as_view()),
    path("queues/<name:name>/pause", PauseView.as_view()),
    path("queues/<name:name>/resume", ResumeView.as_view()),
    path("queues/<name:name>/sources", DeadLetterSourcesView.as_view()),
    path("queues/<name:name>/moves", MovesView.as_view()),
    path("queues/<name:name>/moves/<uuid:move_id>", MoveView.as_view()),
    path("queues/<name:name>/moves/<uuid:move_id>/pause", MovePauseView.as_view()),
    path("queues/<name:name>/moves/<uuid:move_id>/resume", MoveResumeView.as_view()),
]
