"""A queue's record from the database: one statement, and what becomes of its row. The metadata service reads so, and
the control plane where it uses a queue as front ends do.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec

from api.queues.layout import records_of
from frontend.metadata.records import DataKeyGrantRecord, DataKeyRecord, QueueRecord

# Every queue there is. JSON comes as text: the drivers differ in what they make of it.
QUEUES = """
SELECT q.account_id, q.name, uuid_send(q.uuid), q.partitions::text, q.state, q.attributes::text, q.fifo,
       a.account_key_wrapped, d.versions, d.wrapped, floor(extract(epoch FROM q.created_at) * 1000)::bigint,
       floor(extract(epoch FROM q.modified_at) * 1000)::bigint, q.version,
       q.layout::text, b.versions, b.wrapped, b.owners, b.names, q.tags::text
  FROM queue q
  JOIN account a ON a.id = q.account_id
  CROSS JOIN LATERAL (
       SELECT array_agg(k.version ORDER BY k.version) AS versions, array_agg(k.wrapped ORDER BY k.version) AS wrapped
         FROM queue_data_key k WHERE k.queue_id = q.id) d
  CROSS JOIN LATERAL (
       SELECT array_agg(k.version ORDER BY k.id) AS versions, array_agg(k.wrapped ORDER BY k.id) AS wrapped,
              array_agg(uuid_send(k.owner_uuid) ORDER BY k.id) AS owners, array_agg(k.owner_name ORDER BY k.id) AS names
         FROM queue_data_key_grant k WHERE k.queue_id = q.id) b
 WHERE q.state <> 'deleted'
"""
# By account and name.
QUEUE = QUEUES + " AND q.account_id = %s AND q.name = %s"

_layout = msgspec.json.Decoder(list[list[Any]]).decode
_partitions = msgspec.json.Decoder(list[int]).decode
_attributes = _tags = msgspec.json.Decoder(dict[str, str]).decode


def queue_record(row: Sequence[Any]) -> QueueRecord:
    keys = [DataKeyRecord(version, key) for version, key in zip(row[8] or (), row[9] or (), strict=True)]
    grants = [DataKeyGrantRecord(*key) for key in zip(*(column or () for column in row[14:18]), strict=True)]
    partitions, attributes = _partitions(row[3]), _attributes(row[5])
    fields: list[Any] = [*row[:3], partitions, row[4], attributes, *row[6:8], keys, *row[10:13], grants]
    fields += (records_of(_layout(row[13])), _tags(row[18]))
    return QueueRecord(*fields)
