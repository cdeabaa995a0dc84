"""What `./penstock status` asks the database: the names of quarantined queues, and the last round of usage."""

from __future__ import annotations

import pytest
from django.db import connection

from api.billing.models import WorkRound
from api.billing.work_notes import Work, note_round
from api.queues.models import Queue
from deploy.commands.quarantine_view import names_by
from deploy.commands.usage_view import round_by
from tests.support.control_plane import new_caller
from tests.support.scripted_storage import ScriptedStorage

pytestmark = pytest.mark.django_db(transaction=True)


def test_partitions_of_queues_are_named_and_others_left_out(storage: ScriptedStorage) -> None:
    owner = new_caller()
    assert owner.request("POST", "/v1/queues", {"name": "orders"}).status_code == 201
    queue_uuid = Queue.objects.get(name="orders").uuid
    first, second, gone = f"queue:{queue_uuid.hex}:0", f"queue:{queue_uuid.hex}:3", f"queue:{'ab' * 16}:0"
    with connection.cursor() as cursor:
        named = names_by(cursor, [first, second, gone, "cluster", "queue:not-a-uuid:0"])
    assert named == {first: ("tests", "orders"), second: ("tests", "orders")}


def test_last_round_of_usage_is_read_as_the_worker_noted_it() -> None:
    with connection.cursor() as cursor:
        assert round_by(cursor) == {"ended_at": None, "troubled_rounds": 0, "trouble": ""}
        note_round(Work.METER, 5, 0, "of another work")
        for trouble in ("x", "Java is missing"):
            note_round(Work.USAGE, 5, 0, trouble)
        found = round_by(cursor)
    ended_at = WorkRound.objects.get(pk=Work.USAGE).ended_at.timestamp()
    assert found == {"ended_at": pytest.approx(ended_at), "troubled_rounds": 2, "trouble": "Java is missing"}
