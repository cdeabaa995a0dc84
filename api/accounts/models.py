"""Accounts and access keys. Written by `actions.py` only."""

from __future__ import annotations

from django.db import models

from api import limits
from frontend.authn.tokens import ACCESS_KEY_ID_CHARS


class Account(models.Model):
    """A tenant. The account key wraps the data keys of its queues and is itself wrapped by the master key."""

    id = models.CharField(primary_key=True, max_length=limits.ACCOUNT_ID_DIGITS)
    name = models.CharField(max_length=limits.ACCOUNT_NAME_CHARACTERS_MAX, unique=True)
    active = models.BooleanField(default=True)
    account_key_wrapped = models.BinaryField()
    created_at = models.DateTimeField()
    version = models.BigIntegerField()
    # A send to a queue that does not exist makes it; so many were made within the hour that began then.
    auto_create_queues = models.BooleanField(default=False)
    auto_created_since = models.DateTimeField(null=True)
    auto_created = models.IntegerField(default=0)
    # While this is on no queue can be deleted; what is deleted is kept for so many days (api/queues/keeping.py).
    deletion_protection = models.BooleanField(default=False)
    deletion_grace_days = models.SmallIntegerField(default=0)

    class Meta:
        db_table = "account"
        # The first one is asked for: usage is settled from it on.
        indexes = (models.Index(fields=["created_at"], name="account_created"),)

    def __str__(self) -> str:
        return self.id


class AccessKey(models.Model):
    """Signs SigV4 with its (sealed) secret, or is presented as a bearer token, of which a MAC is kept."""

    access_key_id = models.CharField(primary_key=True, max_length=ACCESS_KEY_ID_CHARS)
    account = models.ForeignKey(Account, on_delete=models.PROTECT, related_name="keys")
    name = models.CharField(max_length=limits.KEY_NAME_CHARACTERS_MAX)
    secret_sealed = models.BinaryField()
    bearer_hash = models.BinaryField()
    active = models.BooleanField(default=True)
    created_at = models.DateTimeField()
    expires_at = models.DateTimeField(null=True)
    # Since the key was rotated `expires_at` ends its grace; it was to end then, or never, without that.
    rotated = models.BooleanField(default=False)
    planned_expires_at = models.DateTimeField(null=True)
    last_used_at = models.DateTimeField(null=True)
    version = models.BigIntegerField()

    class Meta:
        db_table = "access_key"

    def __str__(self) -> str:
        return self.access_key_id
