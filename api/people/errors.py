"""Refusals of this app: a stable code, a text for the caller, and the status of the answer."""

from __future__ import annotations

from api.absence import NOTHING_HERE


class PeopleError(Exception):
    """An operating error. `code` is one of STATUS; `retry_after_s` is given where trying again later helps."""

    def __init__(self, code: str, detail: str, retry_after_s: int | None = None) -> None:
        super().__init__(detail)
        self.status = STATUS[code]
        self.code = code
        self.detail = detail
        self.retry_after_s = retry_after_s


STATUS = {
    "invalid-request": 400,
    "invalid-token": 400,
    "weak-password": 400,
    "sign-in-refused": 401,
    "passkey-refused": 401,
    "not-signed-in": 401,
    "access-denied": 403,
    "recent-authentication-required": 403,
    "not-found": 404,
    "already-member": 409,
    "last-owner": 409,
    "account-not-active": 409,
    "state-not-possible": 409,
    "second-factor-on": 409,
    "second-factor-off": 409,
    "passkeys-not-possible": 409,
    "passkey-known": 409,
    "passkey-name-taken": 409,
    "over-limit": 409,
    "too-many-attempts": 429,
    "service-busy": 503,
}


def invalid_token() -> PeopleError:
    """One text for all reasons: absent, used, expired, of another person, or given with a wrong password."""
    return PeopleError("invalid-token", "The token is not valid, or what came with it does not match it.")


def passkey_refused() -> PeopleError:
    """One text for all reasons: unknown, of another person, replayed, of another page, not signed by its key."""
    return PeopleError("passkey-refused", "The passkey was not accepted.")


def not_signed_in() -> PeopleError:
    """One text for absent, ended, expired and made-up tokens."""
    return PeopleError("not-signed-in", "There is no session, or it has ended.")


def not_found() -> PeopleError:
    return PeopleError("not-found", NOTHING_HERE)


class ActDenied(PeopleError):
    """A member asked for what its rights in the account do not allow."""

    def __init__(self, account_id: str, person_id: object, act: str) -> None:
        super().__init__("access-denied", "Your role in this account does not allow this.")
        self.account_id, self.person_id, self.act = account_id, str(person_id), act
