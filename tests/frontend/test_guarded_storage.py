"""One sick node or partition must not take the places of the others, nor make every caller wait for its deadline."""

from __future__ import annotations

import asyncio
import time

import pytest

from frontend.limits import (
    STORAGE_CALLS_PER_NODE_MAX,
    STORAGE_CALLS_PER_PARTITION_MAX,
    STORAGE_FAILURES_MAX,
    STORAGE_PROBE_INTERVAL_MS,
)
from frontend.messages.storage_errors import explain_storage_error
from frontend.queues.names import Address
from frontend.routing.bulkhead import Bulkhead
from frontend.routing.guarded import GuardedStorage, Guards
from storage_nodes.client.sends import outcome_of
from storage_nodes.model import Acks
from storage_nodes.protocol.errors import NOBODY_ASKED, ErrorCode, StorageError
from storage_nodes.protocol.messages import SendReply
from tests.support.frontend_plane import ACCOUNT, QUEUE_URL, Installation

SICK, WELL = 1, 2


class Scene:
    """Partitions 1 to 9 are led by node 1, from 11 on by node 2, until the test says otherwise."""

    def __init__(self) -> None:
        self.now_ms = 0.0
        self.leaders: dict[int, int] = {}
        self.guards = Guards(self.leader_of, lambda: self.now_ms)

    def leader_of(self, partition: int) -> int:
        return self.leaders.get(partition, SICK if partition < 10 else WELL)

    def call(self, partition: int, error: StorageError | None = None) -> None:
        """One call that ends so. Raises what the guards say before it begins."""
        slot = self.guards.slot(partition)
        try:
            with slot:
                if error is not None:
                    raise error
        except StorageError as raised:
            assert raised is error

    def fail(self, partition: int, code: ErrorCode = ErrorCode.UNREACHABLE, times: int = STORAGE_FAILURES_MAX) -> None:
        for _ in range(times):
            self.call(partition, StorageError(code))

    def refused(self, partition: int) -> StorageError | None:
        try:
            self.guards.slot(partition)
        except StorageError as error:
            assert error.code is ErrorCode.UNAVAILABLE
            return error
        return None


def test_calls_for_one_node_leave_room_for_the_others() -> None:
    scene = Scene()
    under_way = [scene.guards.slot(1 + number % 4).__enter__() for number in range(STORAGE_CALLS_PER_NODE_MAX)]
    assert scene.refused(5) is not None, "however little its partition has under way"
    assert scene.refused(11) is None
    assert len(under_way) == STORAGE_CALLS_PER_NODE_MAX


def test_calls_for_one_partition_leave_room_for_others_of_its_node() -> None:
    scene = Scene()
    slots = [scene.guards.slot(1) for _ in range(STORAGE_CALLS_PER_PARTITION_MAX)]
    for slot in slots:
        slot.__enter__()
    assert scene.refused(1) is not None
    assert scene.refused(2) is None
    slots[0].__exit__(None, None, None)
    assert scene.refused(1) is None


def test_long_polls_take_no_places() -> None:
    scene = Scene()
    for _ in range(STORAGE_CALLS_PER_PARTITION_MAX + 1):
        scene.guards.slot(1, 0).__enter__()
    assert scene.refused(1) is None


def test_node_that_answers_nobody_is_given_up_and_probed_for_each_partition() -> None:
    scene = Scene()
    scene.fail(1)
    refused = scene.refused(1)
    assert refused is not None and 0 < refused.retry_after_ms <= STORAGE_PROBE_INTERVAL_MS
    assert scene.guards.nodes_open == 1
    assert scene.refused(2) is None, "another of its partitions may be led elsewhere by now: one call finds out"
    assert scene.refused(2) is not None, "and the others need not wait for it"
    assert scene.refused(11) is None
    scene.now_ms += STORAGE_PROBE_INTERVAL_MS
    assert scene.refused(1) is None
    assert scene.refused(1) is not None


def test_success_of_a_probe_lets_everybody_pass_again() -> None:
    scene = Scene()
    scene.fail(1)
    scene.now_ms += STORAGE_PROBE_INTERVAL_MS
    scene.call(1)
    assert scene.guards.nodes_open == scene.guards.partitions_open == 0
    assert scene.refused(1) is None and scene.refused(1) is None


def test_partition_that_is_led_elsewhere_now_is_free_of_the_sick_node_at_once() -> None:
    scene = Scene()
    scene.fail(1)
    slot = scene.guards.slot(2)
    with slot:
        scene.leaders[2] = WELL  # the client was sent there
    for _ in range(3):
        scene.call(2)
    assert scene.guards.nodes_open == 1, "the answer was not the sick node's"


def test_partition_without_a_leader_is_given_up_alone() -> None:
    scene = Scene()
    scene.fail(1, ErrorCode.NOT_LEADER)
    assert scene.refused(1) is not None
    assert scene.guards.nodes_open == 0
    assert scene.refused(2) is None and scene.refused(2) is None


def test_failure_is_that_of_the_node_that_was_asked_last() -> None:
    scene = Scene()
    scene.call(11)
    for _ in range(STORAGE_FAILURES_MAX):
        error = StorageError(ErrorCode.OUTCOME_UNKNOWN)
        error.asked = WELL
        scene.call(1, error)
    assert scene.refused(12) is None and scene.refused(12) is not None
    assert scene.refused(3) is None and scene.refused(3) is None


def test_node_that_is_there_is_not_given_up_for_a_partition_that_is_slow() -> None:
    """Five sends that wait for a replica which is away must not close the way to all other tenants."""
    scene = Scene()
    for _ in range(STORAGE_FAILURES_MAX):
        error = StorageError(ErrorCode.OUTCOME_UNKNOWN)
        error.asked, error.node_is_there = SICK, True
        scene.call(1, error)
    assert scene.refused(1) is not None
    assert scene.guards.nodes_open == 0
    assert scene.refused(2) is None and scene.refused(2) is None


def test_send_that_waits_for_an_absent_replica_says_nothing_of_a_partition_whose_leader_is_there() -> None:
    scene = Scene()

    def send_to_all(node_is_there: bool) -> None:
        for _ in range(STORAGE_FAILURES_MAX):
            error = StorageError(ErrorCode.OUTCOME_UNKNOWN)
            error.asked, error.node_is_there = SICK, node_is_there
            try:
                with scene.guards.slot(1, 1, for_all=True):
                    raise error
            except StorageError as raised:
                assert raised is error

    send_to_all(node_is_there=True)
    assert scene.guards.partitions_open == 0 and scene.refused(1) is None
    send_to_all(node_is_there=False)
    assert scene.refused(1) is not None, "a leader that is silent fails these, too"


async def test_sends_to_all_replicas_have_places_of_their_own_which_accounts_share(front: Installation) -> None:
    front.plane.sends_to_all = Bulkhead("send with acks all", 4)
    held, store = asyncio.Event(), front.storage.send

    async def send(partition: int, bodies: list[bytes], plain: bool = True, acks: Acks = Acks.QUORUM) -> SendReply:
        if acks == Acks.ALL:
            await held.wait()
        return await store(partition, bodies, plain, acks)

    front.storage.send = send  # type: ignore[method-assign]
    careful = {
        "QueueUrl": QUEUE_URL,
        "MessageBody": "x",
        "MessageAttributes": {"Penstock.Acks": {"DataType": "String", "StringValue": "all"}},
    }
    under_way = [asyncio.create_task(front.sqs("SendMessage", careful)) for _ in range(2)]
    await asyncio.sleep(0.02)
    refused = await front.sqs("SendMessage", careful)
    assert refused.error == "RequestThrottled" and refused.headers["retry-after"] == "1"
    assert (await front.sqs("SendMessage", {"QueueUrl": QUEUE_URL, "MessageBody": "x"})).status == 200
    held.set()
    assert [(await task).status for task in under_way] == [200, 200] and front.plane.sends_to_all.calls == 0


def test_call_that_never_left_is_no_failure_of_a_node() -> None:
    scene = Scene()
    for _ in range(STORAGE_FAILURES_MAX):
        error = StorageError(ErrorCode.UNREACHABLE)
        error.asked = NOBODY_ASKED
        scene.call(1, error)
    assert (scene.guards.partitions_open, scene.guards.nodes_open) == (1, 0)


def test_refusal_after_an_unknown_outcome_is_still_that_of_the_node_that_gave_it() -> None:
    refused = StorageError(ErrorCode.NOT_LEADER)
    refused.asked, refused.node_is_there = WELL, True
    unknown = outcome_of(refused, True)
    assert (unknown.code, unknown.asked, unknown.node_is_there) == (ErrorCode.OUTCOME_UNKNOWN, WELL, True)


def test_answers_that_say_no_open_nothing() -> None:
    scene = Scene()
    for code in (ErrorCode.OVERLOADED, ErrorCode.NOT_IN_FLIGHT, ErrorCode.READ_ONLY, ErrorCode.UNKNOWN_PARTITION):
        scene.fail(1, code, 20)
    assert scene.refused(1) is None


def test_failures_that_are_not_in_a_row_open_nothing() -> None:
    scene = Scene()
    for _ in range(10):
        scene.fail(1, times=STORAGE_FAILURES_MAX - 1)
        scene.call(1)
    assert scene.refused(1) is None


async def test_cancelled_call_gives_its_place_back_and_says_nothing() -> None:
    scene = Scene()

    class Slow:
        async def stats(self, partition: int) -> None:
            await asyncio.sleep(60)

    storage = GuardedStorage(Slow(), scene.guards)  # type: ignore[arg-type]
    calls = [asyncio.ensure_future(storage.stats(1)) for _ in range(STORAGE_CALLS_PER_PARTITION_MAX)]
    await asyncio.sleep(0)
    assert scene.refused(1) is not None
    for call in calls:
        call.cancel()
    await asyncio.gather(*calls, return_exceptions=True)
    assert scene.refused(1) is None and scene.guards.partitions_open == 0


@pytest.mark.parametrize(
    ("error", "retry_after_s"),
    [
        (StorageError(ErrorCode.OVERLOADED, retry_after_ms=2_400), 3),
        (StorageError(ErrorCode.UNAVAILABLE, retry_after_ms=120), 1),
        (StorageError(ErrorCode.NOT_LEADER), 1),
    ],
)
async def test_hint_of_a_node_reaches_the_caller_as_retry_after(
    front: Installation, error: StorageError, retry_after_s: int
) -> None:
    queue = await front.plane.queues.find(Address(ACCOUNT, "orders"))
    refusal = await explain_storage_error(front.plane, queue, error)
    assert (refusal.kind.status, refusal.retry_after_s) == (503, retry_after_s)


def test_place_costs_little() -> None:
    """Two per message sent and received alone; a bound far above what it is, so that it fails for a reason."""
    guards = Guards(lambda _: 1)
    best_s = 1.0
    for _ in range(5):
        began = time.perf_counter()
        for _ in range(2_000):
            with guards.slot(1):
                pass
        best_s = min(best_s, time.perf_counter() - began)
    assert best_s / 2_000 < 10e-6
