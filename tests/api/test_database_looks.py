"""`./penstock status` names the queues of quarantined partitions by what the database says of their tags."""

from __future__ import annotations

import pytest
from django.db import connection

from api.queues.models import Queue
from deploy.commands.quarantine_view import names_by
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
