"""What else an operation on a queue is about, as far as it is known beforehand: queues that messages of a dead-letter
queue may go to, the encryption key that a queue is given."""

from __future__ import annotations

from api.encryption.selectors import named_key
from api.iam import limits
from api.queues.selectors import dead_letter_sources_of
from frontend.queues.encryption import KMS_KEY, names_customer_key


def destinations_of(account_id: str, source: str, destination: str | None) -> tuple[str, ...]:
    """The destination; without one the queues that have the source as their dead-letter queue now."""
    if destination:
        return (destination,)
    return tuple(queue.name for queue in dead_letter_sources_of(account_id, source, "", limits.MOVE_ORIGINS_MAX))


def encryption_key_of(account_id: str, attributes: object) -> str:
    """The id of the encryption key of the account that SQS attributes name, "" without one."""
    named = attributes.get(KMS_KEY) if isinstance(attributes, dict) else None
    if not isinstance(named, str) or "\0" in named or not names_customer_key(named):
        return ""
    key = named_key(account_id, named)
    return "" if key is None else str(key.pk)
