"""E-mail: the one written form of an address, the mails that people get, and the folder of an installation without a
mail server. Mails are sent by errands; a token stands in a mail and nowhere else."""

from __future__ import annotations

import os
from typing import Any

from django.core.exceptions import ValidationError
from django.core.mail import EmailMessage
from django.core.mail.backends.filebased import EmailBackend
from django.core.validators import validate_email

from api.people import limits
from api.people.errors import PeopleError
from api.settings.environment import environment

_FOOT = "\n\n-- \nPenstock, {endpoint}\n"


def normal_email(text: str) -> str:
    """The address in lower case, so that one address is one person. ASCII only: two addresses never fold to one, and
    what was stored is what is mailed to. Domains with other letters are given in their `xn--` form. Control characters,
    which a quoted part may hold by the rules of mail, would break the header of a mail. Raises PeopleError."""
    email = text.strip(" ")
    try:
        if len(email) > limits.EMAIL_CHARACTERS_MAX or not (email.isascii() and email.isprintable()):
            raise ValidationError("")
        validate_email(email)
    except ValidationError:
        raise PeopleError("invalid-request", "This is not an e-mail address that can be written to.") from None
    return email.lower()


def send_sign_up_token(email: str, token: str) -> None:
    _send(
        email,
        "Confirm your e-mail address",
        "This address was given at a sign-up. To confirm it, give this token together with the password that was\n"
        f"chosen at the sign-up:\n\n{token}\n\nIn the browser: {_page('confirm', token)}\n\n"
        "It is good for one day. If you did not sign up, do nothing.",
    )


def send_known_address(email: str) -> None:
    _send(
        email,
        "You have an account already",
        "This address was given at a sign-up, and belongs to a person who has signed up before. Sign in instead, or\n"
        "ask for a new password. If you did not sign up again, do nothing.",
    )


def send_password_reset_token(email: str, token: str) -> None:
    _send(
        email,
        "Choose a new password",
        "A new password was asked for. To choose one, give this token together with it:\n\n"
        f"{token}\n\nIn the browser: {_page('new-password', token)}\n\n"
        "It is good for one hour. If you did not ask, do nothing: the password stays.",
    )


def send_invitation_token(email: str, title: str, role: str, token: str) -> None:
    _send(
        email,
        "You are invited to an account",
        f"You are invited to the account {title!r} as {role}. Sign up or sign in with this address, then give this\n"
        f"token:\n\n{token}\n\nIn the browser: {_page('join', token)}\n\n"
        "It is good for seven days. If you do not know the account, do nothing.",
    )


def send_notice(email: str, what: str) -> None:
    """A change of a security setting, told to the person it concerns."""
    _send(email, "A security setting was changed", f"{what}\n\nIf this was not you, ask for a new password at once.")


def _page(name: str, token: str) -> str:
    """A page of the console. What stands behind the `#` is not sent to any server, and so stands in no log."""
    return f"{environment().endpoint}/console/{name}#{token}"


def _send(email: str, subject: str, text: str) -> None:
    EmailMessage(subject, text + _FOOT.format(endpoint=environment().endpoint), to=[email]).send()


class PrivateFolderBackend(EmailBackend):
    """Mails as files: Django's backend, in a folder that only this user may read, because mails hold tokens."""

    file_path: str

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        os.chmod(self.file_path, 0o700)
