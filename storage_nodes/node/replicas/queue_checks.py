"""Checks what clients ask of a queue, before its machine hears of it. All raise StorageError."""

from __future__ import annotations

from storage_nodes.limits import (
    ACQUIRE_MESSAGES_MAX,
    ACQUIRE_WAIT_MS_MAX,
    ATTEMPT_BYTES_MAX,
    DEDUP_ID_BYTES_MAX,
    GROUP_BYTES_MAX,
    RECEIPTS_PER_CALL_MAX,
    TAG_BYTES_MAX,
    TAGS_PER_ACQUIRE_MAX,
    UNPARK_GROUPS_MAX,
    VISIBILITY_MS_MAX,
)
from storage_nodes.machines.queue.commands import NACKED, UNSEEN, if_held, uncounted
from storage_nodes.machines.queue.state.headers import is_due_time
from storage_nodes.protocol.dead_letters import is_possible_source
from storage_nodes.protocol.errors import ErrorCode, StorageError
from storage_nodes.protocol.messages import AcquireRequest, ChangeVisibilityRequest, VisibilityMode
from storage_nodes.protocol.records import RecordError, group_and_id, read_headers, section_of


def check_acquire(request: AcquireRequest) -> None:
    # 0 asks whether an attempt is known here.
    if not (0 if request.attempt else 1) <= request.max_messages <= ACQUIRE_MESSAGES_MAX:
        raise StorageError(ErrorCode.INVALID_REQUEST, f"max_messages must be 1 to {ACQUIRE_MESSAGES_MAX}")
    if not 0 <= request.visibility_ms <= VISIBILITY_MS_MAX:
        raise _visibility_error()
    if not 0 <= request.wait_ms <= ACQUIRE_WAIT_MS_MAX:
        raise StorageError(ErrorCode.INVALID_REQUEST, f"wait_ms must be 0 to {ACQUIRE_WAIT_MS_MAX}")
    if len(request.attempt) > ATTEMPT_BYTES_MAX:
        raise StorageError(ErrorCode.INVALID_REQUEST, f"an attempt id has at most {ATTEMPT_BYTES_MAX} bytes")


def check_unpark(groups: list[bytes]) -> None:
    if len(groups) > UNPARK_GROUPS_MAX or any(len(group) > GROUP_BYTES_MAX for group in groups):
        raise StorageError(ErrorCode.INVALID_REQUEST, f"a call names up to {UNPARK_GROUPS_MAX} groups")


def _visibility_error() -> StorageError:
    return StorageError(ErrorCode.INVALID_REQUEST, f"visibility must be 0 to {VISIBILITY_MS_MAX} ms")


def check_visibility(visibility_ms: int) -> None:
    if not 0 <= visibility_ms <= VISIBILITY_MS_MAX:
        raise _visibility_error()


def give_backs(request: ChangeVisibilityRequest) -> list[tuple[int, int, int]]:
    """The changes as the machine takes them. Raises StorageError."""
    if request.mode == VisibilityMode.UNSEEN:
        return [(offset, delivery, UNSEEN) for offset, delivery, _ in request.changes]
    if request.mode == VisibilityMode.UNCOUNTED:
        return [(offset, delivery, uncounted(visibility_ms)) for offset, delivery, visibility_ms in request.changes]
    if request.mode == VisibilityMode.HELD:
        return [(offset, delivery, if_held(visibility_ms)) for offset, delivery, visibility_ms in request.changes]
    if request.mode == VisibilityMode.NACK:
        return [(offset, delivery, NACKED) for offset, delivery, _ in request.changes]
    raise StorageError(ErrorCode.INVALID_REQUEST, f"mode {request.mode} of a change of visibility is not known")


def check_headers(body: bytes, is_fifo: bool) -> tuple[bool, bool, bool]:
    """Whether the message has a deduplication id, whether it is scheduled, and whether it is delayed. Raises
    StorageError."""
    section = section_of(body)
    group: bytes | None
    dedup_id: bytes | None
    delay = tag = due = release = source = None
    usual = group_and_id(section)
    if usual is not None:
        group, dedup_id = usual
    else:
        try:
            delay, group, dedup_id, source, tag, due, release = read_headers(section)
        except RecordError as error:
            raise StorageError(ErrorCode.INVALID_REQUEST, f"a record does not parse: {error}") from error
    if group is None:
        if is_fifo:
            raise StorageError(ErrorCode.INVALID_REQUEST, "a message of a FIFO queue names its group")
    elif not 1 <= len(group) <= GROUP_BYTES_MAX:
        raise StorageError(ErrorCode.INVALID_REQUEST, f"a message group id has 1 to {GROUP_BYTES_MAX} bytes")
    if tag is not None and not 1 <= len(tag) <= TAG_BYTES_MAX:
        raise StorageError(ErrorCode.INVALID_REQUEST, f"a tag has 1 to {TAG_BYTES_MAX} bytes")
    if dedup_id is not None and not 1 <= len(dedup_id) <= DEDUP_ID_BYTES_MAX:
        raise StorageError(ErrorCode.INVALID_REQUEST, f"a deduplication id has 1 to {DEDUP_ID_BYTES_MAX} bytes")
    if (due is not None and not is_due_time(due)) or release is not None:
        raise StorageError(ErrorCode.INVALID_REQUEST, "a due time is a number of milliseconds")
    if source is not None and not is_possible_source(source):
        raise StorageError(ErrorCode.INVALID_REQUEST, "where a dead letter comes from is a place and times that can be")
    return dedup_id is not None, due is not None, delay is not None


def check_tags(tags: list[bytes]) -> tuple[bytes, ...]:
    if len(tags) > TAGS_PER_ACQUIRE_MAX or not all(1 <= len(tag) <= TAG_BYTES_MAX for tag in tags):
        text = f"at most {TAGS_PER_ACQUIRE_MAX} tags of 1 to {TAG_BYTES_MAX} bytes are asked for"
        raise StorageError(ErrorCode.INVALID_REQUEST, text)
    return tuple(dict.fromkeys(tags))


def check_count(count: int) -> None:
    if not 1 <= count <= RECEIPTS_PER_CALL_MAX:
        raise StorageError(ErrorCode.INVALID_REQUEST, f"a call names 1 to {RECEIPTS_PER_CALL_MAX} messages")
