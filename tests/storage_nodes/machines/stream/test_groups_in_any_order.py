"""Consumer groups: whatever happens in whatever order, a partition has one owner, its offset never goes back (R31)."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from storage_nodes.protocol.errors import ErrorCode
from tests.storage_nodes.machines.stream.topic import SESSION_MS, Consumer, Topic, refusal_of

KINDS = "join beat beat beat leave work work work pass stall stall fail settle settle fence lose grow delete"
CONSUMERS = 3
STEPS = st.tuples(st.sampled_from(KINDS.split()), st.integers(0, CONSUMERS - 1), st.integers(0, 9))


class Walk:
    """One order of events, and what is known of owners and offsets from outside."""

    def __init__(self) -> None:
        self.topic = Topic(2)
        self.consumers = [Consumer(self.topic, b"%d" % number) for number in range(CONSUMERS)]
        self._owners: dict[tuple[int, int], int] = {}  # (partition, generation) -> epoch
        self._newest: dict[int, int] = {}  # partition -> generation of the latest grant that anybody heard of
        self._offsets: dict[int, int] = {}

    def step(self, kind: str, consumer: Consumer, value: int) -> None:
        topic = self.topic
        partition = topic.partitions[value % len(topic.partitions)]
        if kind == "join":
            consumer.join()
        elif kind == "beat" and consumer.epoch:
            refusal_of(consumer.beat)
        elif kind == "leave" and consumer.epoch:
            consumer.leave()
        elif kind == "work" and consumer.held:
            self._work(consumer, sorted(consumer.held)[value % len(consumer.held)])
        elif kind == "pass":
            topic.pass_ms(value * SESSION_MS // 6)
        elif kind == "stall":
            self._stall(consumer)
        elif kind == "fail":
            topic.logs[partition].fail_over()
        elif kind == "settle":
            topic.settle()
        elif kind in ("fence", "lose") and topic.fences:
            coordinator, asked = topic.fences.pop(value % len(topic.fences))
            if kind == "fence":
                topic.answer_fence(coordinator, asked)
            else:
                coordinator.do(coordinator.leader.fenced(asked, ErrorCode.NO_QUORUM, topic.now_ms))
        elif kind == "grow" and len(topic.logs) < 4:
            topic.add_partition()
        elif kind == "delete" and refusal_of(topic.delete) is ErrorCode.OK:
            self._offsets.clear()
        self._note_owners()
        topic.check_folds()

    def _stall(self, zombie: Consumer) -> None:
        """It stands still for a session, while the others go on."""
        others = [consumer for consumer in self.consumers if consumer is not zombie and consumer.epoch]
        for _ in range(5):
            self.topic.pass_ms(SESSION_MS // 4)
            for consumer in others:
                refusal_of(consumer.beat)
        self.topic.settle()
        for consumer in others:
            refusal_of(consumer.beat)

    def _work(self, consumer: Consumer, partition: int) -> None:
        topic = self.topic
        topic.append(partition, 1)
        code = refusal_of(lambda: consumer.commit(partition, topic.logs[partition].end))
        assert code in (ErrorCode.OK, ErrorCode.FENCED)
        if code is ErrorCode.OK:
            assert consumer.held[partition] == self._newest[partition], "a former owner committed"
        now = topic.committed(partition)
        assert now >= self._offsets.get(partition, -1), "the committed offset went back"
        self._offsets[partition] = now

    def _note_owners(self) -> None:
        for consumer in self.consumers:
            for partition, generation in consumer.held.items():
                epoch = self._owners.setdefault((partition, generation), consumer.epoch)
                assert epoch == consumer.epoch, "two owners in one generation"
                self._newest[partition] = max(self._newest.get(partition, 0), generation)

    def end_well(self) -> None:
        """Whatever happened: once everybody does as it is told, everything is owned, by one member each."""
        for consumer in self.consumers:
            consumer.join()
        for _ in range(6):
            for consumer in self.consumers:
                consumer.beat()
            self.topic.settle()
            self.topic.pass_ms(SESSION_MS // 10)
        self._note_owners()
        held = [partition for consumer in self.consumers for partition in consumer.beat().held]
        assert sorted(held) == self.topic.partitions


@settings(max_examples=120, deadline=None)
@given(st.lists(STEPS, max_size=100))
def test_no_order_of_events_gives_a_partition_two_owners_or_none_or_moves_an_offset_back(
    steps: list[tuple[str, int, int]],
) -> None:
    walk = Walk()
    for consumer in walk.consumers[:2]:
        consumer.join()
    for kind, number, value in steps:
        walk.step(kind, walk.consumers[number], value)
    walk.end_well()
