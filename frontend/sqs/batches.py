"""Batches of the SQS wire: the ids of their entries, and answers that tell the outcome of each."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from typing import TypeVar

from frontend.errors import RequestError
from frontend.limits import BATCH_ENTRIES_MAX, BATCH_ENTRY_ID_CHARS_MAX
from frontend.sqs.call import EMPTY, encode
from frontend.sqs.requests import ReceiptEntry, SendEntry

_ENTRY_ID = re.compile(rf"[A-Za-z0-9_-]{{1,{BATCH_ENTRY_ID_CHARS_MAX}}}", re.ASCII)
# Ids of which none holds what joins them.
_ENTRY_IDS = re.compile(rf"{_ENTRY_ID.pattern}(?: {_ENTRY_ID.pattern})*", re.ASCII)

T = TypeVar("T")


def check_batch(action: str, entries: Sequence[SendEntry | ReceiptEntry] | None) -> Sequence[str]:
    """The ids of a batch, which must be 1 to 10, well-formed and distinct. Raises RequestError."""
    if not entries:
        raise RequestError("EmptyBatchRequest", f"There should be at least one {action}RequestEntry in the request.")
    if len(entries) > BATCH_ENTRIES_MAX:
        raise RequestError(
            "TooManyEntriesInBatchRequest",
            f"Maximum number of entries per request are {BATCH_ENTRIES_MAX}. You have sent {len(entries)}.",
        )
    ids = [entry.id or "" for entry in entries]
    joined = " ".join(ids)
    if joined.count(" ") != len(ids) - 1 or _ENTRY_IDS.fullmatch(joined) is None or len(set(ids)) != len(ids):
        _refuse_ids(ids)
    return ids


def _refuse_ids(ids: Sequence[str]) -> None:
    """Raises RequestError for the first that is refused."""
    for index, entry_id in enumerate(ids):
        if _ENTRY_ID.fullmatch(entry_id) is None:
            raise RequestError(
                "InvalidBatchEntryId",
                "A batch entry id can only contain alphanumeric characters, hyphens and underscores. "
                f"It can be at most {BATCH_ENTRY_ID_CHARS_MAX} letters long.",
            )
        if entry_id in ids[:index]:
            raise RequestError("BatchEntryIdsNotDistinct", f"Id {entry_id} repeated.")


def attempt(check: Callable[[], T]) -> T | RequestError:
    """An entry that is refused is an answer, not the end of the request."""
    try:
        return check()
    except RequestError as error:
        return error


def single_answer(outcomes: Sequence[RequestError | None]) -> bytes:
    """For a request about one receipt, which has no batch to be told in. Raises RequestError."""
    if outcomes[0] is not None:
        raise outcomes[0]
    return EMPTY


def receipts_answer(ids: Sequence[str], outcomes: Sequence[RequestError | None]) -> bytes:
    done = [entry_id for entry_id, outcome in zip(ids, outcomes, strict=True) if outcome is None]
    return batch_answer([f'{{"Id":"{entry_id}"}}' for entry_id in done], ids, outcomes)


def batch_answer(successful: Sequence[str], ids: Sequence[str], outcomes: Sequence[RequestError | None]) -> bytes:
    """`successful` are the answers of the entries that succeeded, as JSON. A list without entries is left out."""
    told = f'"Successful":[{",".join(successful)}]' if successful else ""
    if not any(outcomes):
        return f"{{{told}}}".encode()
    failed = []
    for entry_id, error in zip(ids, outcomes, strict=True):
        if error is None:
            continue
        if error.kind.status >= 500:
            raise error  # SDKs repeat a whole request by themselves, but never the entries of one
        failed.append({"Id": entry_id, "SenderFault": True, "Code": error.kind.query_code, "Message": error.message})
    return b'{%b%b"Failed":%b}' % (told.encode(), b"," if told else b"", encode(failed))
