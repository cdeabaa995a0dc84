"""Tickets that open a live tail, once. Written by `actions.py` only."""

from __future__ import annotations

from django.db import models

from api.people.models import PersonSession

# The longest name with the suffix of FIFO queues.
QUEUE_CHARACTERS_MAX = 85
_HASH_BYTES = 32


class TailTicket(models.Model):
    """Of one session and one queue. The row goes with its use, and with the session."""

    session = models.ForeignKey(PersonSession, on_delete=models.CASCADE, related_name="tail_tickets")
    account_id = models.CharField(max_length=12)
    queue = models.CharField(max_length=QUEUE_CHARACTERS_MAX)
    token_hash = models.BinaryField(max_length=_HASH_BYTES, unique=True)
    created_at = models.DateTimeField()
    expires_at = models.DateTimeField()

    class Meta:
        db_table = "tail_ticket"

    def __str__(self) -> str:
        return f"{self.account_id}/{self.queue} {self.pk}"
