"""People, their sessions and tokens, memberships, states of accounts. Written by `actions/` and `rates.py` only."""

from __future__ import annotations

import uuid

from django.contrib.auth.base_user import AbstractBaseUser
from django.db import models
from django.db.models.functions import Lower

from api.accounts.models import Account
from api.people import limits
from api.people.roles import MemberRole

_HASH_BYTES = 32
_SOURCE_CHARACTERS_MAX = 45


class Person(AbstractBaseUser):
    """A person who can sign in. `password` is empty until the address is confirmed: nothing can match it."""

    id = models.UUIDField(primary_key=True, default=uuid.uuid4, editable=False)
    email = models.CharField(max_length=limits.EMAIL_CHARACTERS_MAX)
    name = models.CharField(max_length=limits.PERSON_NAME_CHARACTERS_MAX, default="")
    created_at = models.DateTimeField()
    email_confirmed_at = models.DateTimeField(null=True)
    password_changed_at = models.DateTimeField(null=True)
    last_login = None

    USERNAME_FIELD = "email"

    class Meta:
        db_table = "person"
        constraints = (
            models.UniqueConstraint(Lower("email"), name="person_email"),
            models.CheckConstraint(
                condition=models.Q(password="") | models.Q(email_confirmed_at__isnull=False), name="person_confirmed"
            ),
        )

    def __str__(self) -> str:
        return str(self.id)


class PersonToken(models.Model):
    """A token that was mailed, or that stands between two steps of a sign-in. Used once: the row goes with its use."""

    kind = models.CharField(max_length=16)
    person = models.ForeignKey(Person, on_delete=models.CASCADE, related_name="tokens")
    token_hash = models.BinaryField(max_length=_HASH_BYTES, unique=True)
    # Of a sign-up: the hash of the password chosen with it, which becomes the person's with the confirmation.
    password = models.CharField(max_length=128, default="")
    attempts = models.IntegerField(default=0)
    created_at = models.DateTimeField()
    expires_at = models.DateTimeField()

    class Meta:
        db_table = "person_token"

    def __str__(self) -> str:
        return f"{self.kind} {self.pk}"


class PersonSession(models.Model):
    """A signed-in browser or program. Only a MAC of its token is kept."""

    id = models.UUIDField(primary_key=True, default=uuid.uuid4, editable=False)
    person = models.ForeignKey(Person, on_delete=models.CASCADE, related_name="sessions")
    token_hash = models.BinaryField(max_length=_HASH_BYTES, unique=True)
    created_at = models.DateTimeField()
    last_seen_at = models.DateTimeField()
    # When the password (and the code, where a second factor is on) was given last.
    authenticated_at = models.DateTimeField()
    source = models.CharField(max_length=_SOURCE_CHARACTERS_MAX)
    user_agent = models.CharField(max_length=limits.USER_AGENT_CHARACTERS_MAX)

    class Meta:
        db_table = "person_session"

    def __str__(self) -> str:
        return str(self.id)


class TotpFactor(models.Model):
    """The authenticator application of a person. `last_step` only grows: a code is good once."""

    person = models.OneToOneField(Person, on_delete=models.CASCADE, primary_key=True, related_name="totp")
    secret_sealed = models.BinaryField()
    created_at = models.DateTimeField()
    # Null until a first code has shown that the application has the secret; it is not asked for before.
    confirmed_at = models.DateTimeField(null=True)
    last_step = models.BigIntegerField(default=0)

    class Meta:
        db_table = "person_totp"

    def __str__(self) -> str:
        return str(self.pk)


class RecoveryCode(models.Model):
    """Stands in for a code of the authenticator, once: the row goes with its use."""

    person = models.ForeignKey(Person, on_delete=models.CASCADE, related_name="recovery_codes")
    code_hash = models.BinaryField(max_length=_HASH_BYTES)

    class Meta:
        db_table = "person_recovery_code"

    def __str__(self) -> str:
        return str(self.pk)


class Passkey(models.Model):
    """A key pair that a device of the person holds; the public half of it is here. It signs what WebAuthn defines."""

    id = models.UUIDField(primary_key=True, default=uuid.uuid4, editable=False)
    person = models.ForeignKey(Person, on_delete=models.CASCADE, related_name="passkeys")
    name = models.CharField(max_length=limits.PASSKEY_NAME_CHARACTERS_MAX)
    # Chosen by the device, unique over all persons.
    credential_id = models.BinaryField(max_length=limits.CREDENTIAL_ID_BYTES_MAX, unique=True)
    # COSE, as the device gave it.
    public_key = models.BinaryField(max_length=limits.CREDENTIAL_KEY_BYTES_MAX)
    # Grows with each use, or stays 0 for good where the device does not count.
    sign_count = models.BigIntegerField()
    created_at = models.DateTimeField()
    last_used_at = models.DateTimeField(null=True)

    class Meta:
        db_table = "person_passkey"
        constraints = (models.UniqueConstraint(fields=["person", "name"], name="passkey_name"),)

    def __str__(self) -> str:
        return str(self.pk)


class PasskeyChallenge(models.Model):
    """Random bytes that a passkey has to sign, for one purpose of one holder. The row goes with the first answer."""

    holder_hash = models.BinaryField(primary_key=True, max_length=_HASH_BYTES)
    challenge = models.BinaryField(max_length=limits.PASSKEY_CHALLENGE_BYTES)
    expires_at = models.DateTimeField(db_index=True)

    class Meta:
        db_table = "passkey_challenge"

    def __str__(self) -> str:
        return bytes(self.holder_hash).hex()


class Operator(models.Model):
    """A person who may see and operate the installation, beside what memberships allow."""

    person = models.OneToOneField(Person, on_delete=models.CASCADE, primary_key=True, related_name="operator")
    created_at = models.DateTimeField()

    class Meta:
        db_table = "operator"

    def __str__(self) -> str:
        return str(self.pk)


class ActingVisit(models.Model):
    """An operator acts as a member of an account, in one session. It goes with the session and with the membership."""

    session = models.OneToOneField(PersonSession, on_delete=models.CASCADE, primary_key=True, related_name="acting")
    member = models.ForeignKey("AccountMembership", on_delete=models.CASCADE, related_name="acting_visits")
    reason = models.CharField(max_length=limits.ACTING_REASON_CHARACTERS_MAX)
    begun_at = models.DateTimeField()
    ends_at = models.DateTimeField()

    class Meta:
        db_table = "acting_visit"

    def __str__(self) -> str:
        return f"{self.session_id} as {self.member_id}"


class FamiliarSource(models.Model):
    """Where a person has signed in from of late (`actions/familiar_sources.py`), as a MAC of address and source."""

    key = models.BinaryField(primary_key=True, max_length=_HASH_BYTES)
    person = models.ForeignKey(Person, on_delete=models.CASCADE, related_name="familiar_sources")
    last_used_at = models.DateTimeField(db_index=True)

    class Meta:
        db_table = "person_familiar_source"

    def __str__(self) -> str:
        return bytes(self.key).hex()


class AttemptRate(models.Model):
    """How many attempts were made of late, as the time at which they are forgotten (`rates.py`)."""

    key = models.BinaryField(primary_key=True, max_length=_HASH_BYTES)
    empty_at = models.DateTimeField(db_index=True)

    class Meta:
        db_table = "attempt_rate"

    def __str__(self) -> str:
        return bytes(self.key).hex()


class AccountState(models.TextChoices):
    ACTIVE = "active"
    SUSPENDED = "suspended"
    CLOSING = "closing"
    CLOSED = "closed"


class AccountLife(models.Model):
    """What people call an account, and which state it is in. `Account.active` follows: only ACTIVE is active."""

    account = models.OneToOneField(Account, on_delete=models.CASCADE, primary_key=True, related_name="life")
    title = models.CharField(max_length=limits.ACCOUNT_TITLE_CHARACTERS_MAX)
    state = models.CharField(max_length=16, choices=AccountState.choices, default=AccountState.ACTIVE)
    state_since = models.DateTimeField()
    reason = models.CharField(max_length=limits.STATE_REASON_CHARACTERS_MAX, default="")
    # Of CLOSING alone: when it becomes CLOSED.
    closes_at = models.DateTimeField(null=True)

    class Meta:
        db_table = "account_life"
        indexes = (models.Index(fields=["closes_at"], condition=models.Q(state="closing"), name="account_closing"),)

    def __str__(self) -> str:
        return f"{self.pk} {self.state}"


class AccountMembership(models.Model):
    """A person in an account. An account that has members has an owner among them (`actions/members.py`)."""

    account = models.ForeignKey(Account, on_delete=models.CASCADE, related_name="members", db_index=False)
    person = models.ForeignKey(Person, on_delete=models.PROTECT, related_name="memberships")
    role = models.CharField(max_length=16, choices=[(role.value, role.value) for role in MemberRole])
    created_at = models.DateTimeField()

    class Meta:
        db_table = "membership"
        constraints = (models.UniqueConstraint(fields=["account", "person"], name="membership_once"),)

    def __str__(self) -> str:
        return f"{self.account_id}/{self.person_id} {self.role}"


class Invitation(models.Model):
    """An address that may become a member. The row goes with its acceptance, and with another for the same address."""

    id = models.UUIDField(primary_key=True, default=uuid.uuid4, editable=False)
    account = models.ForeignKey(Account, on_delete=models.CASCADE, related_name="invitations", db_index=False)
    email = models.CharField(max_length=limits.EMAIL_CHARACTERS_MAX)
    role = models.CharField(max_length=16, choices=[(role.value, role.value) for role in MemberRole])
    invited_by = models.ForeignKey(Person, on_delete=models.CASCADE, related_name="+")
    token_hash = models.BinaryField(max_length=_HASH_BYTES, unique=True)
    created_at = models.DateTimeField()
    expires_at = models.DateTimeField()

    class Meta:
        db_table = "invitation"
        constraints = (models.UniqueConstraint(fields=["account", "email"], name="invitation_once"),)

    def __str__(self) -> str:
        return f"{self.account_id} {self.pk}"
