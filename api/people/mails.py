"""The mails that people get. Called by errands; a token stands in a mail and nowhere else."""

from __future__ import annotations

from django.core.mail import EmailMessage

from api.settings.environment import environment

_FOOT = "\n\n-- \nPenstock, {endpoint}\n"


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
