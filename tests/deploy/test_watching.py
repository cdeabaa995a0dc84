"""Watching work that goes on by itself: lines away from a terminal, a word when it stalls or nobody watches on."""

from __future__ import annotations

import asyncio

import pytest

from deploy import limits
from deploy.errors import CommandError
from deploy.watching import Watch, count_of
from storage_nodes.protocol.errors import ErrorCode, StorageError


class HandClock:
    def __init__(self) -> None:
        self.now_s = 1_000.0

    def __call__(self) -> float:
        return self.now_s


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "WATCH_INTERVAL_S", 0.0)


async def test_changes_are_said_as_lines_not_faster_than_one_can_read(capsys: pytest.CaptureFixture[str]) -> None:
    clock = HandClock()
    watch = Watch("node 2 is being emptied", "it goes on", clock)
    left = [50, 40, 30, 30, 0]

    async def is_over() -> bool:
        clock.now_s += 0.5
        now = left.pop(0)
        if now:
            watch.counted(now, "partition 7 to node 4")
        return now == 0

    await watch.until(is_over)
    assert capsys.readouterr().err.splitlines() == [
        "  node 2 is being emptied: 50 replicas left, 0.0 moves/s; partition 7 to node 4",
        "  node 2 is being emptied: 30 replicas left, 13.3 moves/s; partition 7 to node 4",
        "node 2 is being emptied: done in 2.5 s",
    ]


async def test_work_that_stands_still_is_pointed_out(capsys: pytest.CaptureFixture[str]) -> None:
    clock = HandClock()
    watch = Watch("t", "it goes on", clock)
    turns = iter(range(100))

    async def is_over() -> bool:
        clock.now_s += 5.0
        watch.say("the same")
        return next(turns) == 10

    await watch.until(is_over)
    lines = [line for line in capsys.readouterr().err.splitlines() if "nothing has changed" in line]
    assert len(lines) == 2 and "./penstock status" in lines[0]


async def test_cluster_that_does_not_answer_is_waited_for(capsys: pytest.CaptureFixture[str]) -> None:
    answers = iter([StorageError(ErrorCode.UNREACHABLE, "no node answered"), True])

    async def is_over() -> bool:
        answer = next(answers)
        if isinstance(answer, StorageError):
            raise answer
        return answer

    await Watch("t", "it goes on").until(is_over)
    assert "does not answer: UNREACHABLE: no node answered" in capsys.readouterr().err


async def test_interrupted_watching_says_that_the_work_goes_on() -> None:
    async def never() -> bool:
        return False

    task = asyncio.create_task(Watch("t", "it goes on; look again").until(never))
    await asyncio.sleep(0.01)
    task.cancel()
    with pytest.raises(CommandError, match="no longer watching: t; it goes on; look again"):
        await task


def test_node_ids_read_as_words() -> None:
    assert [count_of(ids) for ids in ([1], [1, 2], [1, 2, 3])] == ["1", "1 and 2", "1, 2 and 3"]
