"""Encryption keys of customers. Written by `actions.py` only.

enabled           -> disabled, pending_deletion
disabled          -> enabled, pending_deletion
pending_deletion  -> disabled (cancelled), deleted (when `deletes_at` is over)
deleted           tombstone: its versions are gone, and its name is free
"""

from __future__ import annotations

import uuid

from django.db import models
from django.db.models import Q

from api.accounts.models import Account
from api.encryption import limits
from frontend.metadata.records import EncryptionKeyState


class KeyState(models.TextChoices):
    ENABLED = EncryptionKeyState.ENABLED.value
    DISABLED = EncryptionKeyState.DISABLED.value
    PENDING_DELETION = EncryptionKeyState.PENDING_DELETION.value
    DELETED = "deleted"


class EncryptionKey(models.Model):
    """A named key of an account. What seals is its newest version; what an older one sealed opens for good."""

    id = models.UUIDField(primary_key=True, default=uuid.uuid4)
    account = models.ForeignKey(Account, on_delete=models.PROTECT, related_name="encryption_keys", db_index=False)
    name = models.CharField(max_length=limits.NAME_CHARACTERS_MAX, db_collation="C")
    description = models.CharField(max_length=limits.DESCRIPTION_CHARACTERS_MAX, default="")
    state = models.CharField(max_length=16, choices=KeyState.choices, default=KeyState.ENABLED)
    # Accounts whose callers may use it through queues that are open to them.
    shared_accounts = models.JSONField(default=list)
    created_at = models.DateTimeField()
    rotated_at = models.DateTimeField(null=True)
    deletes_at = models.DateTimeField(null=True)
    version = models.BigIntegerField()

    class Meta:
        db_table = "encryption_key"
        constraints = (
            models.UniqueConstraint(
                fields=["account", "name"], condition=~Q(state=KeyState.DELETED), name="encryption_key_name"
            ),
        )
        indexes = (
            models.Index(
                fields=["deletes_at"], condition=Q(state=KeyState.PENDING_DELETION), name="encryption_key_due"
            ),
        )

    def __str__(self) -> str:
        return f"{self.account_id}/{self.name}"


class EncryptionKeyVersion(models.Model):
    """Wrapped by the account key. Numbers come from one sequence: no two of an installation have the same."""

    key = models.ForeignKey(EncryptionKey, on_delete=models.CASCADE, related_name="versions", db_index=False)
    number = models.IntegerField(unique=True)
    wrapped = models.BinaryField()
    created_at = models.DateTimeField()

    class Meta:
        db_table = "encryption_key_version"
        indexes = (models.Index(fields=["key", "number"], name="encryption_key_versions"),)

    def __str__(self) -> str:
        return f"{self.key_id}:{self.number}"


class EncryptionKeyUse(models.Model):
    """Messages that front ends sealed and opened under a key within the hour that begins at `hour`."""

    key = models.ForeignKey(EncryptionKey, on_delete=models.CASCADE, related_name="uses", db_index=False)
    hour = models.DateTimeField()
    sealed = models.BigIntegerField(default=0)
    opened = models.BigIntegerField(default=0)
    last_told_at = models.DateTimeField()

    class Meta:
        db_table = "encryption_key_use"
        constraints = (models.UniqueConstraint(fields=["key", "hour"], name="encryption_key_use_hour"),)
        indexes = (models.Index(fields=["hour"], name="encryption_key_use_by_hour"),)

    def __str__(self) -> str:
        return f"{self.key_id} {self.hour:%Y-%m-%dT%H}"
