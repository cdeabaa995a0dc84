"""Which Celery queue a task goes to: what takes long stands in the way of its own kind alone."""

from __future__ import annotations

import pytest

from workers.application import LIFECYCLE_QUEUE, QUEUES, USAGE_QUEUE, app


def queue_of(task: str) -> str:
    return str(app.amqp.router.route({}, task)["queue"].name)


def tasks() -> list[str]:
    app.loader.import_default_modules()
    return sorted(name for name in app.tasks if name.startswith("workers."))


def test_every_task_goes_to_the_queue_of_its_kind() -> None:
    own = {*QUEUES, USAGE_QUEUE}
    found = {name: queue_of(name) for name in tasks()}
    assert set(found.values()) == own, "each queue has tasks"
    for name, queue in found.items():
        kind = name.split(".")[1]
        assert queue == (kind if kind in own else LIFECYCLE_QUEUE), name


@pytest.mark.parametrize("kind", ["moves", "lifecycle", "cron", "billing"])
def test_kinds_that_may_not_hold_each_other_up_have_queues_of_their_own(kind: str) -> None:
    assert queue_of(f"workers.{kind}.anything") == kind
