"""A queue's record from the database: one statement, and what becomes of its row. The metadata service reads so, and
the control plane where it uses a queue as front ends do.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec

from api.queues.layout import records_of
from frontend.metadata.records import (
    DataKeyGrantRecord,
    DataKeyRecord,
    EncryptionKeyRecord,
    EncryptionKeyVersionRecord,
    QueueRecord,
)

# Every queue that has its name: a deleted one that is kept has none. JSON comes as text: the drivers differ in what
# they make of it.
QUEUES = """
SELECT q.account_id, q.name, uuid_send(q.uuid), q.partitions::text, q.state, q.attributes::text, q.fifo,
       a.account_key_wrapped, d.versions, d.wrapped, floor(extract(epoch FROM q.created_at) * 1000)::bigint,
       floor(extract(epoch FROM q.modified_at) * 1000)::bigint, q.version,
       q.layout::text, b.versions, b.wrapped, b.owners, b.names, q.tags::text,
       q.encryption_key, q.encryption_keys::text, s.given::text, h.sending_stopped, h.sends_per_s,
       h.held_reason
  FROM queue q
  JOIN account a ON a.id = q.account_id
  LEFT JOIN quota_queue s ON s.queue_id = q.id
  LEFT JOIN quota_queue_sending h ON h.queue_id = q.id
  CROSS JOIN LATERAL (
       SELECT array_agg(k.version ORDER BY k.version) AS versions, array_agg(k.wrapped ORDER BY k.version) AS wrapped
         FROM queue_data_key k WHERE k.queue_id = q.id) d
  CROSS JOIN LATERAL (
       SELECT array_agg(k.version ORDER BY k.id) AS versions, array_agg(k.wrapped ORDER BY k.id) AS wrapped,
              array_agg(uuid_send(k.owner_uuid) ORDER BY k.id) AS owners, array_agg(k.owner_name ORDER BY k.id) AS names
         FROM queue_data_key_grant k WHERE k.queue_id = q.id) b
 WHERE q.state <> 'deleted' AND q.kept_until IS NULL
"""
# By account and name.
QUEUE = QUEUES + " AND q.account_id = %s AND q.name = %s"
# Every encryption key of a customer that is not deleted.
ENCRYPTION_KEYS = """
SELECT k.id::text, k.account_id, k.state, v.numbers, v.wrapped, k.version, k.shared_accounts::text
  FROM encryption_key k
  CROSS JOIN LATERAL (
       SELECT array_agg(n.number ORDER BY n.number) AS numbers, array_agg(n.wrapped ORDER BY n.number) AS wrapped
         FROM encryption_key_version n WHERE n.key_id = k.id) v
 WHERE k.state <> 'deleted'
"""
# By id.
ENCRYPTION_KEY = ENCRYPTION_KEYS + " AND k.id = %s::uuid"
ENCRYPTION_KEYS_OF = ENCRYPTION_KEYS + " AND k.id = ANY(%s::uuid[])"

_layout = msgspec.json.Decoder(list[list[Any]]).decode
_texts = msgspec.json.Decoder(list[str]).decode
_partitions = msgspec.json.Decoder(list[int]).decode
_attributes = _tags = msgspec.json.Decoder(dict[str, str]).decode
_quotas = msgspec.json.Decoder(dict[str, int]).decode


def queue_record(row: Sequence[Any]) -> QueueRecord:
    keys = [DataKeyRecord(version, key) for version, key in zip(row[8] or (), row[9] or (), strict=True)]
    grants = [DataKeyGrantRecord(*key) for key in zip(*(column or () for column in row[14:18]), strict=True)]
    partitions, attributes = _partitions(row[3]), _attributes(row[5])
    fields: list[Any] = [*row[:3], partitions, row[4], attributes, *row[6:8], keys, *row[10:13], grants]
    fields += (records_of(_layout(row[13])), _tags(row[18]), row[19], _texts(row[20]), quotas_in(row[21]))
    fields += (row[22] or "", row[23] or 0, row[24] or "")
    return QueueRecord(*fields)


def quotas_in(text: str | None) -> dict[str, int]:
    return {} if text is None else _quotas(text)


def encryption_key_record(row: Sequence[Any]) -> EncryptionKeyRecord:
    versions = [EncryptionKeyVersionRecord(*version) for version in zip(row[3] or (), row[4] or (), strict=True)]
    key_id, account_id, state = row[:3]
    return EncryptionKeyRecord(key_id, account_id, state, versions, row[5], _texts(row[6]))
