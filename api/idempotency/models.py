"""What requests with an idempotency key were answered. Written by `actions.py` only."""

from __future__ import annotations

from django.db import models

HASH_BYTES = 32


class IdempotentOutcome(models.Model):
    """Of one key of one caller. Neither the key nor the request stands here, only hashes under the pepper.

    `account_id` is empty for a person who asks for no account. `sealed` opens under the master key (`outcomes.py`); it
    is empty where the answer is not kept, or not any longer. No foreign keys: an account's rows go with their time.
    """

    account_id = models.CharField(max_length=12)
    # An access key id, or `person:` and the id of one.
    actor = models.CharField(max_length=64)
    key_hash = models.BinaryField(max_length=HASH_BYTES)
    request_hash = models.BinaryField(max_length=HASH_BYTES)
    status = models.SmallIntegerField()
    sealed = models.BinaryField(default=b"")
    holds_secret = models.BooleanField()
    at = models.DateTimeField()

    class Meta:
        db_table = "idempotent_outcome"
        constraints = (
            models.UniqueConstraint(fields=["account_id", "actor", "key_hash"], name="idempotent_outcome_key"),
        )
        indexes = (models.Index(fields=["at"], name="idempotent_outcome_at"),)

    def __str__(self) -> str:
        return f"{self.account_id} {self.actor} {self.status}"
