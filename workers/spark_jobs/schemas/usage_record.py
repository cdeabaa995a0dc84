"""Reads one record of the `__usage` stream. The format: docs/usage_records.md, where its golden bytes stand too.

    key      12 bytes: partition id (unsigned, 8, big endian), hours since the epoch (unsigned, 4, big endian)
    value    byte 0: version (1); byte 1: kind; then one msgpack array, whose members are those of the class below

A window is cumulative: one that was closed early (`until_ms` before the end of its hour) is followed by another with
the same key and greater figures, and the later one counts. Reading is strict; what a number may be is judged by
`transforms/checks.py`, so that the same rule holds for records that come in files.
"""

from __future__ import annotations

from typing import Annotated

import msgspec

from storage_nodes.protocol.usage_records import KIND_WINDOW, VERSION

KIND_REQUESTS = 2
ACCOUNT_ID_DIGITS = 12
UUID_BYTES = 16

# What a column holds: greater numbers are no record, and would end a job. Negative ones are quarantined by the checks.
Int32 = Annotated[int, msgspec.Meta(ge=-(1 << 31), le=(1 << 31) - 1)]
Int64 = Annotated[int, msgspec.Meta(ge=-(1 << 63), le=(1 << 63) - 1)]
_PREFIX_BYTES = 2


class UsageRecordError(ValueError):
    """Bytes that are no usage record; `reason` is the word that the quarantine shows."""

    def __init__(self, reason: str, detail: str) -> None:
        super().__init__(detail)
        self.reason = reason


class OriginCounters(msgspec.Struct, array_like=True, frozen=True, gc=False, forbid_unknown_fields=True):
    """Since the beginning of the hour. Bytes are of the customer's plaintext; a unit is 64 KiB begun of one message."""

    origin: Int32
    sent: Int64
    delivered: Int64
    deleted: Int64
    moved: Int64
    dead_lettered: Int64
    scheduled: Int64
    sent_bytes: Int64
    delivered_bytes: Int64
    sent_units: Int64
    delivered_units: Int64


class UsageWindow(msgspec.Struct, array_like=True, frozen=True, gc=False, forbid_unknown_fields=True):
    """What one partition of a queue did in one hour."""

    cluster: str
    partition: Int64
    account_id: str
    queue_uuid: bytes
    hour_ms: Int64  # beginning of the hour, ms since the epoch
    until_ms: Int64  # up to where in this hour the figures go; the end of the hour unless it was closed early
    final: bool  # the partition is deleted: nothing is stored after `until_ms`
    stored_byte_ms: Int64  # the integral of stored bytes from the beginning of the hour to `until_ms`
    stored_bytes: Int64  # what is stored at `until_ms`, and from then on until the next record
    origins: list[OriginCounters]


class RequestRow(msgspec.Struct, array_like=True, frozen=True, gc=False, forbid_unknown_fields=True):
    account_id: str
    queue_uuid: bytes
    access_key_id: str
    requests: Int64
    empty_receives: Int64
    throttled: Int64
    # Left out by front ends of before. For the series alone: the lake does not keep it.
    errors: Int64 = 0


class RequestReport(msgspec.Struct, array_like=True, frozen=True, gc=False, forbid_unknown_fields=True):
    """What one front end counted in the hour so far, of the rows that changed; the greatest figures of a row count."""

    front_end: bytes
    sequence: Int64
    hour_ms: Int64
    rows: list[RequestRow]


_window = msgspec.msgpack.Decoder(UsageWindow)
_requests = msgspec.msgpack.Decoder(RequestReport)


def decode_record(value: bytes) -> UsageWindow | RequestReport:
    """Of the value of a stream record. Raises UsageRecordError on anything that is none."""
    if len(value) < _PREFIX_BYTES:
        raise UsageRecordError("malformed", f"{len(value)} bytes are no record")
    if value[0] != VERSION:
        raise UsageRecordError("unknown_version", f"version {value[0]}; this program reads version {VERSION}")
    try:
        if value[1] == KIND_WINDOW:
            return _window.decode(value[_PREFIX_BYTES:])
        if value[1] == KIND_REQUESTS:
            return _requests.decode(value[_PREFIX_BYTES:])
    except msgspec.DecodeError as error:
        raise UsageRecordError("malformed", str(error)) from None
    raise UsageRecordError("unknown_kind", f"kind {value[1]}")
