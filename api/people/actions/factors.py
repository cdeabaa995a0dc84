"""The second factor: an authenticator application, and recovery codes for the day it is lost.

It is on while there is an application or a passkey (`passkeys.py`). Recovery codes come with the first of them and go
with the last one. The secret is sealed with the installation's key ring and opens for its person only. A code is good
once: the step it belongs to is kept, and only later steps count. Recovery codes are kept as MACs, and each goes with
its use.
"""

from __future__ import annotations

import base64
import re
import secrets
from datetime import datetime
from typing import NamedTuple

from django.db import transaction

from api import clock
from api.people import errands, limits, mails, rates
from api.people.errors import PeopleError
from api.people.models import Person, PersonSession, RecoveryCode, TotpFactor
from api.people.origin import RequestOrigin
from api.people.selectors import has_authenticator, has_second_factor
from api.people.tokens import hash_recovery_code
from api.people.totp import matching_step, otpauth_url, secret_text
from api.secrets import keyring

_TOTP_CODE = re.compile(rf"[0-9]{{{limits.TOTP_DIGITS}}}", re.ASCII)
_RECOVERY_CODE = re.compile(r"[a-z2-7]{16}", re.ASCII)
_SEALED_AS = "totp"

assert limits.RECOVERY_CODE_BYTES * 8 == 16 * 5, "a recovery code has 16 characters of base32"


class NewTotp(NamedTuple):
    """What the person puts into the application. Shown once."""

    secret: str
    url: str


def begin_totp(origin: RequestOrigin, session: PersonSession) -> NewTotp:
    """A secret that counts once a first code has confirmed it; takes the place of one that never was. The caller has
    checked that the session is a recent one."""
    with transaction.atomic():
        person = Person.objects.select_for_update().get(pk=session.person_id)
        if has_authenticator(person):
            raise PeopleError("second-factor-on", "There is an authenticator application already.")
        secret = secrets.token_bytes(limits.TOTP_SECRET_BYTES)
        TotpFactor.objects.filter(person=person).delete()
        TotpFactor.objects.create(person=person, secret_sealed=_seal(person, secret), created_at=clock.now())
        origin.note(person, "", "second_factor.begin", f"person:{person.pk}")
    return NewTotp(secret_text(secret), otpauth_url(secret, person.email))


def confirm_totp(origin: RequestOrigin, session: PersonSession, code: str) -> list[str]:
    """The application counts from now on. Returns the recovery codes, this once; none where there are some already.
    Raises PeopleError."""
    rates.charge(rates.CODE_PER_PERSON, str(session.person_id))
    with transaction.atomic():
        person = Person.objects.select_for_update().get(pk=session.person_id)
        if has_authenticator(person):
            raise PeopleError("second-factor-on", "There is an authenticator application already.")
        now = clock.now()
        if not _use_totp(person, code, now, confirmed=False):
            raise PeopleError("access-denied", "The code is not right.")
        codes = factor_comes(origin, person, "totp")
        TotpFactor.objects.filter(person=person).update(confirmed_at=now)
        tell_change(person, "An authenticator application was added. A sign-in asks for its code.")
    return codes


def remove_totp(origin: RequestOrigin, session: PersonSession) -> None:
    """The application is forgotten. Raises PeopleError."""
    with transaction.atomic():
        person = Person.objects.select_for_update().get(pk=session.person_id)
        if not TotpFactor.objects.filter(person=person).delete()[0]:
            raise _off()
        factor_went(origin, person, "totp")
        tell_change(person, "The authenticator application was removed.")


def factor_comes(origin: RequestOrigin, person: Person, method: str) -> list[str]:
    """With the person locked, before the row of the factor is there. Returns recovery codes if it is the first one."""
    if has_second_factor(person):
        origin.note(person, "", "second_factor.add", f"person:{person.pk}", method=method)
        return []
    origin.note(person, "", "second_factor.on", f"person:{person.pk}", method=method)
    return _renew_codes(person)


def factor_went(origin: RequestOrigin, person: Person, method: str) -> None:
    """With the person locked, when the row of the factor is gone. Recovery codes go with the last factor."""
    is_off = not has_second_factor(person)
    if is_off:
        RecoveryCode.objects.filter(person=person).delete()
    action = "second_factor.off" if is_off else "second_factor.remove"
    origin.note(person, "", action, f"person:{person.pk}", method=method)


def renew_recovery_codes(origin: RequestOrigin, session: PersonSession) -> list[str]:
    """New ones; those before no longer work. Raises PeopleError."""
    with transaction.atomic():
        person = Person.objects.select_for_update().get(pk=session.person_id)
        if not has_second_factor(person):
            raise _off()
        codes = _renew_codes(person)
        origin.note(person, "", "second_factor.renew_recovery_codes", f"person:{person.pk}")
        tell_change(person, "New recovery codes were created; the previous ones no longer work.")
    return codes


def use_code(person: Person, code: str, now: datetime) -> str | None:
    """With the person locked, in the transaction of what the code is for: which method matched, or None."""
    if _TOTP_CODE.fullmatch(code) is not None:
        return "totp" if _use_totp(person, code, now, confirmed=True) else None
    plain = code.strip().replace("-", "").lower()
    if _RECOVERY_CODE.fullmatch(plain) is None:
        return None
    code_hash = hash_recovery_code(person.pk, plain)
    used = RecoveryCode.objects.filter(person=person, code_hash=code_hash).delete()[0]
    return "recovery_code" if used else None


def tell_change(person: Person, what: str) -> None:
    """By mail, after the commit."""
    email = person.email
    transaction.on_commit(lambda: errands.leave(lambda: mails.send_notice(email, what)), robust=True)


def _use_totp(person: Person, code: str, now: datetime, confirmed: bool) -> bool:
    factor = TotpFactor.objects.filter(person=person, confirmed_at__isnull=not confirmed).first()
    if factor is None:
        return False
    step = matching_step(_open(person, factor), code, int(now.timestamp()), factor.last_step)
    if step is None:
        return False
    factor.last_step = step
    factor.save(update_fields=["last_step"])
    return True


def _renew_codes(person: Person) -> list[str]:
    RecoveryCode.objects.filter(person=person).delete()
    plain = [_recovery_code() for _ in range(limits.RECOVERY_CODES)]
    rows = [RecoveryCode(person=person, code_hash=hash_recovery_code(person.pk, code)) for code in plain]
    RecoveryCode.objects.bulk_create(rows)
    return ["-".join(code[at : at + 4] for at in range(0, len(code), 4)) for code in plain]


def _recovery_code() -> str:
    return base64.b32encode(secrets.token_bytes(limits.RECOVERY_CODE_BYTES)).decode().lower()


def _seal(person: Person, secret: bytes) -> bytes:
    """The key ring binds what it seals to an owner and a name; no account id looks like a person's."""
    return keyring().seal_secret(f"person:{person.pk}", _SEALED_AS, base64.b64encode(secret).decode())


def _open(person: Person, factor: TotpFactor) -> bytes:
    return base64.b64decode(keyring().open_secret(f"person:{person.pk}", _SEALED_AS, bytes(factor.secret_sealed)))


def _off() -> PeopleError:
    return PeopleError("second-factor-off", "The second factor is not on.")
