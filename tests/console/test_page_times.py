"""What a page asks the database for: as often for a list of many as for one of few, and its time once."""

from __future__ import annotations

from typing import Any

import pytest
from django.db import connection
from django.test.utils import CaptureQueriesContext

from tests.console.browsing import Browser, queue_row
from tests.console.test_messages import SEEN

pytestmark = pytest.mark.django_db
READS_TIME = "clock_timestamp()"
MANY = 12


def queries(browser: Browser, tail: str) -> list[str]:
    with CaptureQueriesContext(connection) as captured:
        assert browser.get(browser.at(tail)).status_code == 200
    return [one["sql"] for one in captured]


@pytest.mark.parametrize("tail", ["", "queues", "attention", "queues/q-0/messages/list", "audit", "keys"])
def test_page_of_many_asks_the_database_as_often_as_a_page_of_few(ann: Browser, data_plane: Any, tail: str) -> None:
    from api.accounts.actions import create_key
    from api.audit.actions import OPERATOR

    def add(numbers: range) -> None:
        for number in numbers:
            queue_row(ann.account_id, f"q-{number}")
            create_key(OPERATOR, ann.account_id, f"key {number}")
        answer = {"messages": [SEEN] * len(numbers), "scanned": len(numbers), "cursor": None}
        data_plane.answers["messages/find"] = answer

    add(range(2))
    few = queries(ann, tail)
    add(range(2, MANY))
    many = queries(ann, tail)
    assert len(many) <= len(few), "\n".join(many)


def test_page_of_queues_reads_its_time_once(ann: Browser) -> None:
    for number in range(MANY):
        queue_row(ann.account_id, f"q-{number}")
    reads = [one for one in queries(ann, "queues") if READS_TIME in one]
    assert len(reads) <= 3, "the session, the operator's visit, the page"
