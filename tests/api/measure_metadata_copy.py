"""Memory of the metadata service's copy: `python -m tests.api.measure_metadata_copy [queues]`. Needs no database.

Queues with every attribute that a new one has, names of 24 characters, 100 of them an account; keys and accounts as
they are. Says what the process grows by, beside what the copy itself counts.
"""

from __future__ import annotations

import gc
import os
import sys
import time

from api.metadata.holding import EncodedRecord, Holding
from api.queues.attributes import defaults_of
from frontend.metadata.messages import AccountReply, KeyReply, QueueReply
from frontend.metadata.records import AccountRecord, DataKeyRecord, KeyRecord, QueueRecord, queue_change_key
from storage_nodes.protocol.messages import encode_message

QUEUES_PER_ACCOUNT = 100


def queue_row(number: int) -> EncodedRecord:
    account_id, name = f"{100_000_000_000 + number // QUEUES_PER_ACCOUNT}", f"orders-of-shop-{number:09d}"
    keys = [DataKeyRecord(number, os.urandom(60))]
    fields = (account_id, name, os.urandom(16), [number], "active", defaults_of(name), False, os.urandom(60), keys)
    record = QueueRecord(*fields, 1_700_000_000_000, 1_700_000_000_000, number + 1)
    return EncodedRecord(queue_change_key(account_id, name), record.version, encode_message(QueueReply(record)))


def key_row(number: int) -> EncodedRecord:
    name = f"AKPS{number:016d}"
    account_id = f"{100_000_000_000 + number}"
    record = KeyRecord(name, account_id, "key", os.urandom(68), os.urandom(32), True, None, number + 1)
    return EncodedRecord(name, record.version, encode_message(KeyReply(record)))


def account_row(number: int) -> EncodedRecord:
    account_id = f"{100_000_000_000 + number}"
    record = AccountRecord(account_id, f"shop number {number}", True, number + 1)
    return EncodedRecord(account_id, record.version, encode_message(AccountReply(record)))


def resident_bytes() -> int:
    gc.collect()
    with open("/proc/self/statm", encoding="ascii") as file:
        return int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")


def main() -> None:
    count = int(sys.argv[1]) if len(sys.argv) > 1 else 100_000
    for what, make in (("queues", queue_row), ("keys", key_row), ("accounts", account_row)):
        holding = Holding(2**40)
        before, started = resident_bytes(), time.perf_counter()
        for number in range(count):
            holding.put(make(number))
        elapsed_s = time.perf_counter() - started
        grown = resident_bytes() - before
        print(
            f"{count:,} {what}: process {grown / 1e6:.1f} MB, {grown / count:.0f} B each;"
            f" own count {holding.bytes / 1e6:.1f} MB; encoding and storing {elapsed_s / count * 1e6:.1f} us each"
        )


if __name__ == "__main__":
    main()
