"""What is published and what is received."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from penstock_client.consuming import Consuming


@dataclass(slots=True)
class Message:
    """A message to be published. None: as the queue is configured.

    attributes        texts; for other types a pair of type and text ("Number", "7"), ("Binary", base64)
    deduplication_id  a second message with the same id within the queue's window is not stored: FIFO queues, and
                      standard queues with `Penstock.DeduplicationWindow`
    """

    body: str
    group: str | None = None
    deduplication_id: str | None = None
    attributes: Mapping[str, str | tuple[str, str]] | None = None
    delay_seconds: int | None = None
    deliver_at_ms: int | None = None
    tag: str | None = None
    priority: int | None = None

    def row(self) -> dict[str, Any]:
        """Its members on the wire."""
        row: dict[str, Any] = {"body": self.body}
        for name in ("group", "deduplication_id", "delay_seconds", "deliver_at_ms", "tag", "priority"):
            value = getattr(self, name)
            if value is not None:
                row[name] = value
        if self.attributes:
            row["attributes"] = {name: _attribute(value) for name, value in self.attributes.items()}
        return row


def _attribute(value: str | tuple[str, str]) -> dict[str, str]:
    if isinstance(value, str):
        return {"value": value}
    return {"type": value[0], "value": value[1]}


@dataclass(frozen=True, slots=True)
class Failure:
    """A message that was not stored, or perhaps was, with the codes `outcome-unknown`, `internal-failure` and
    `service-unavailable`. `index` is its place in what was published; `retry_after_s` is 0 where the service does not
    say."""

    index: int
    code: str
    detail: str
    retry_after_s: float = 0.0


@dataclass(slots=True)
class Published:
    """The outcome of a publish: all messages are stored but for those in `failed`.

    sent  where ids were asked for: for each message what the service answered (`id`, `sequence_number`,
          `schedule_id`), None for one that failed
    """

    count: int
    failed: list[Failure] = field(default_factory=list)
    sent: list[dict[str, str] | None] | None = None


class Delivery:
    """A received message. Times are milliseconds since 1970. It is settled by the batch that it came in."""

    __slots__ = ("_batch", "_row", "number")

    def __init__(self, batch: Batch, number: int, row: dict[str, Any]) -> None:
        self._batch = batch
        self.number = number
        self._row = row

    def is_of(self, batch: Batch) -> bool:
        return self._batch is batch

    @property
    def body(self) -> str:
        return str(self._row["body"])

    @property
    def id(self) -> str:
        return str(self._row["id"])

    @property
    def group(self) -> str | None:
        return self._row.get("group")

    @property
    def tag(self) -> str | None:
        return self._row.get("tag")

    @property
    def sent_ms(self) -> int:
        return int(self._row["sent_ms"])

    @property
    def delivery_count(self) -> int:
        return int(self._row["delivery_count"])

    @property
    def sequence_number(self) -> str | None:
        return self._row.get("sequence_number")

    @property
    def attributes(self) -> dict[str, tuple[str, str]]:
        """Name -> (type, value as text; base64 for Binary)."""
        given = self._row.get("attributes") or {}
        return {name: (one["type"], one["value"]) for name, one in given.items()}

    @property
    def raw(self) -> Mapping[str, Any]:
        """All members, as the service sent them."""
        return self._row

    def __repr__(self) -> str:
        return f"Delivery(number={self.number}, id={self.id!r})"


class Batch(Sequence[Delivery]):
    """Messages that came together. Their leases are renewed by the service while the connection lives; when it is
    lost they come again, and settling this batch has no effect any more."""

    def __init__(self, consuming: Consuming, connection: int, first: int, rows: list[dict[str, Any]]) -> None:
        self._consuming = consuming
        self._connection = connection
        self._first = first
        self._rows = rows
        self._left: set[int] | None = None  # numbers that are not settled; None: none is

    def __len__(self) -> int:
        return len(self._rows)

    def __getitem__(self, index: Any) -> Any:
        if isinstance(index, slice):
            return [self[at] for at in range(*index.indices(len(self._rows)))]
        row = self._rows[index]
        return Delivery(self, self._first + (index if index >= 0 else len(self._rows) + index), row)

    def __iter__(self) -> Iterator[Delivery]:
        for number, row in enumerate(self._rows, self._first):
            yield Delivery(self, number, row)

    def bodies(self) -> list[str]:
        return [row["body"] for row in self._rows]

    async def ack(self, messages: Iterable[Delivery] | None = None) -> bool:
        """Deletes these, or all that are not settled. False: the connection that brought them is gone.

        Raises ValueError for a message of another batch: its number may be that of another message by now.
        """
        ranges, count = self._take(messages)
        return await self._consuming.settle(self._connection, "ack", ranges, count)

    async def nack(
        self, messages: Iterable[Delivery] | None = None, *, delay_seconds: int | None = None, count: bool = True
    ) -> bool:
        """Gives these back, or all that are not settled. Without a delay the queue's retry policy says when they come
        again. `count` False: the receive does not count as failed. False: as in `ack`."""
        ranges, given = self._take(messages)
        more: dict[str, Any] = {"count": count}
        if delay_seconds is not None:
            more["delay_seconds"] = delay_seconds
        return await self._consuming.settle(self._connection, "nack", ranges, given, more)

    def _take(self, messages: Iterable[Delivery] | None) -> tuple[list[list[int]], int]:
        """(ranges, how many) of what is settled now."""
        last = self._first + len(self._rows) - 1
        if messages is None and self._left is None:
            self._left = set()
            return [[self._first, last]], len(self._rows)
        if self._left is None:
            self._left = set(range(self._first, last + 1))
        wanted = self._left if messages is None else self._numbers(messages) & self._left
        self._left = self._left - wanted
        return _ranges(wanted), len(wanted)

    def _numbers(self, messages: Iterable[Delivery]) -> set[int]:
        numbers = set()
        for one in messages:
            if not one.is_of(self):
                raise ValueError(f"{one!r} came in another batch, which settles it")
            numbers.add(one.number)
        return numbers


def _ranges(numbers: Iterable[int]) -> list[list[int]]:
    ranges: list[list[int]] = []
    for number in sorted(numbers):
        if ranges and ranges[-1][1] + 1 == number:
            ranges[-1][1] = number
        else:
            ranges.append([number, number])
    return ranges
