"""JSON of people, sessions, accounts, members and invitations."""

from __future__ import annotations

from typing import Any

from rest_framework import serializers

from api.people import limits
from api.people.models import AccountMembership, AccountState, Invitation, Passkey, Person, PersonSession
from api.people.roles import MemberRole
from api.people.selectors import expiry_of, has_second_factor
from api.people.strict import StrictCharField, StrictChoiceField, StrictSerializer

_ROLES = [role.value for role in MemberRole]


def _email() -> StrictCharField:
    return StrictCharField(max_length=limits.EMAIL_CHARACTERS_MAX)


def _password() -> StrictCharField:
    return StrictCharField(max_length=limits.PASSWORD_CHARACTERS_MAX, trim_whitespace=False, write_only=True)


def _token() -> StrictCharField:
    return StrictCharField(max_length=limits.TOKEN_CHARACTERS_MAX, write_only=True)


def _code(**given: Any) -> StrictCharField:
    return StrictCharField(max_length=limits.CODE_CHARACTERS_MAX, write_only=True, **given)


# --- requests ---


class SignUpSerializer(StrictSerializer):
    email = _email()
    password = _password()


class ConfirmationSerializer(StrictSerializer):
    token = _token()
    password = _password()
    name = StrictCharField(max_length=limits.PERSON_NAME_CHARACTERS_MAX, default="", allow_blank=True)
    account_title = StrictCharField(
        max_length=limits.ACCOUNT_TITLE_CHARACTERS_MAX, default="", allow_blank=True,
        help_text="What the person's account is called; the e-mail address if not given.",
    )  # fmt: skip


class EmailSerializer(StrictSerializer):
    email = _email()


class ResetSerializer(StrictSerializer):
    token = _token()
    new_password = _password()


class NewPasswordSerializer(StrictSerializer):
    current_password = _password()
    new_password = _password()


class SignInSerializer(StrictSerializer):
    email = _email()
    password = _password()


class ChallengeAnswerSerializer(StrictSerializer):
    challenge_token = _token()
    code = _code(help_text="Of the authenticator application, or a recovery code.")


class AuthenticationSerializer(StrictSerializer):
    password = _password()
    code = _code(default="", allow_blank=True, help_text="Where the second factor is on.")


class CodeSerializer(StrictSerializer):
    code = _code()


class TokenSerializer(StrictSerializer):
    token = _token()


class InvitationRequestSerializer(StrictSerializer):
    email = _email()
    role = StrictChoiceField(choices=_ROLES)


class RoleSerializer(StrictSerializer):
    role = StrictChoiceField(choices=_ROLES)


# --- answers ---


class PersonSerializer(serializers.Serializer):
    person_id = serializers.UUIDField()
    email = serializers.CharField()
    name = serializers.CharField()
    created_at = serializers.DateTimeField()
    second_factor = serializers.BooleanField()

    def to_representation(self, instance: Person) -> dict[str, Any]:
        return {
            "person_id": str(instance.pk),
            "email": instance.email,
            "name": instance.name,
            "created_at": _time(instance.created_at),
            "second_factor": has_second_factor(instance),
        }


class EnrolledSerializer(PersonSerializer):
    account_id = serializers.CharField()


class SessionSerializer(serializers.Serializer):
    session_id = serializers.UUIDField()
    created_at = serializers.DateTimeField()
    last_seen_at = serializers.DateTimeField()
    authenticated_at = serializers.DateTimeField()
    expires_at = serializers.DateTimeField(help_text="However much it is used; earlier if it is not used.")
    source_address = serializers.CharField()
    user_agent = serializers.CharField()

    def to_representation(self, instance: PersonSession) -> dict[str, Any]:
        return {
            "session_id": str(instance.pk),
            "created_at": _time(instance.created_at),
            "last_seen_at": _time(instance.last_seen_at),
            "authenticated_at": _time(instance.authenticated_at),
            "expires_at": _time(expiry_of(instance)),
            "source_address": instance.source,
            "user_agent": instance.user_agent,
        }


class SessionsSerializer(serializers.Serializer):
    sessions = SessionSerializer(many=True)


class NewSessionSerializer(serializers.Serializer):
    session = SessionSerializer()
    session_token = serializers.CharField(help_text="Shown this once; goes into the header `Session-Token`.")


class ChallengeSerializer(serializers.Serializer):
    challenge_token = serializers.CharField(help_text="For `/v1/session/challenge`, together with a code.")


class PasskeySerializer(serializers.Serializer):
    passkey_id = serializers.UUIDField()
    name = serializers.CharField()
    created_at = serializers.DateTimeField()
    last_used_at = serializers.DateTimeField(allow_null=True)

    def to_representation(self, instance: Passkey) -> dict[str, Any]:
        return {
            "passkey_id": str(instance.pk),
            "name": instance.name,
            "created_at": _time(instance.created_at),
            "last_used_at": _time(instance.last_used_at) if instance.last_used_at else None,
        }


class PasskeysSerializer(serializers.Serializer):
    passkeys = PasskeySerializer(many=True)


class TotpSerializer(serializers.Serializer):
    secret = serializers.CharField(help_text="Base32, shown this once.")
    url = serializers.CharField(help_text="The same as an `otpauth:` URL, for a QR code.")


class RecoveryCodesSerializer(serializers.Serializer):
    recovery_codes = serializers.ListField(child=serializers.CharField(), help_text="Shown this once.")


class MemberAccountSerializer(serializers.Serializer):
    account_id = serializers.CharField()
    title = serializers.CharField()
    role = serializers.ChoiceField(choices=_ROLES)
    state = serializers.ChoiceField(choices=AccountState.values)
    state_since = serializers.DateTimeField()
    closes_at = serializers.DateTimeField(allow_null=True)

    def to_representation(self, instance: AccountMembership) -> dict[str, Any]:
        life = instance.account.life
        return {
            "account_id": instance.account_id,
            "title": life.title,
            "role": instance.role,
            "state": life.state,
            "state_since": _time(life.state_since),
            "closes_at": _time(life.closes_at),
        }


class MemberAccountsSerializer(serializers.Serializer):
    accounts = MemberAccountSerializer(many=True)


class MemberSerializer(serializers.Serializer):
    person_id = serializers.UUIDField()
    email = serializers.CharField()
    name = serializers.CharField()
    role = serializers.ChoiceField(choices=_ROLES)
    since = serializers.DateTimeField()

    def to_representation(self, instance: AccountMembership) -> dict[str, Any]:
        return {
            "person_id": str(instance.person_id),
            "email": instance.person.email,
            "name": instance.person.name,
            "role": instance.role,
            "since": _time(instance.created_at),
        }


class MemberPageSerializer(serializers.Serializer):
    members = MemberSerializer(many=True)
    next_page_token = serializers.CharField(allow_null=True)


class InvitationSerializer(serializers.Serializer):
    invitation_id = serializers.UUIDField()
    email = serializers.CharField()
    role = serializers.ChoiceField(choices=_ROLES)
    created_at = serializers.DateTimeField()
    expires_at = serializers.DateTimeField()

    def to_representation(self, instance: Invitation) -> dict[str, Any]:
        return {
            "invitation_id": str(instance.pk),
            "email": instance.email,
            "role": instance.role,
            "created_at": _time(instance.created_at),
            "expires_at": _time(instance.expires_at),
        }


class InvitationsSerializer(serializers.Serializer):
    invitations = InvitationSerializer(many=True)


def _time(value: Any) -> Any:
    return None if value is None else serializers.DateTimeField().to_representation(value)
