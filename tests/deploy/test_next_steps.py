"""What is told beside a storage node that does not come up."""

from __future__ import annotations

import inspect
from typing import Any

import pytest

from deploy import next_steps
from deploy.commands.status import not_up_lines
from deploy.next_steps import next_step
from storage_nodes import __main__ as storage_node
from storage_nodes.ids import make_node_id
from storage_nodes.node.disk.committer import EXIT_DISK_FAILED


def failing(last_end: str, *words: str) -> dict[str, Any]:
    not_up = {"since": 1.0, "last_end": last_end, "log": "x.log", "last_words": list(words), "last_words_at": 1.0}
    return {"role": "storage-node", "id": make_node_id(7, 4), "health": "failing", "restarts": 3, "not_up": not_up}


@pytest.mark.parametrize(
    ("last_end", "words", "step"),
    [
        ("ended with status 73", (), "disk full: free space; the node starts by itself then"),
        ("ended with status 74", (), "a write to its disk failed"),
        ("ended with status 78", (next_steps.UNUSABLE_DIRECTORY,), "./penstock node decommission 7.4 --dead"),
        ("ended with status 65", (next_steps.UNREADABLE_OWNER,), "an empty directory in its place"),
        ("ended with status 78", (next_steps.NO_CERTIFICATE,), "./penstock node start 7.4 makes the certificate"),
    ],
)
def test_cause_that_has_a_next_step_comes_with_it_before_the_last_words(
    last_end: str, words: tuple[str, ...], step: str
) -> None:
    lines = not_up_lines([failing(last_end, *words)])
    assert step in lines[2] and last_end in lines[1] and lines[2].startswith("  ")


def test_end_without_a_next_step_is_told_without_one() -> None:
    assert next_step("storage-node", 1, "ended with status 70", ["Traceback"]) == ""
    assert next_step("storage-node", 1, "ended with signal SIGKILL", []) == ""
    assert next_step("postgres", 1, "ended with status 73", [next_steps.UNUSABLE_DIRECTORY]) == ""
    assert len(not_up_lines([failing("ended with status 70")])) == 3


def test_steps_are_found_by_what_a_node_says_and_ends_with() -> None:
    source = inspect.getsource(storage_node)
    for said in (next_steps.UNUSABLE_DIRECTORY, next_steps.UNREADABLE_OWNER, next_steps.NO_CERTIFICATE):
        assert f'_log.critical("{said}"' in source
    assert next_steps.STATUS_DISK_FULL == storage_node.EXIT_DISK_FULL
    assert next_steps.STATUS_DISK_FAILED == EXIT_DISK_FAILED
