"""E-mail addresses: one written form each, so that an address is one person whatever its case."""

from __future__ import annotations

from django.core.exceptions import ValidationError
from django.core.validators import validate_email

from api.people import limits
from api.people.errors import PeopleError


def normal_email(text: str) -> str:
    """The address in lower case. ASCII only: two addresses never fold to one, and what was stored is what is mailed to.
    Domains with other letters are given in their `xn--` form. Control characters, which a quoted part may hold by the
    rules of mail, would break the header of a mail. Raises PeopleError."""
    email = text.strip(" ")
    try:
        if len(email) > limits.EMAIL_CHARACTERS_MAX or not (email.isascii() and email.isprintable()):
            raise ValidationError("")
        validate_email(email)
    except ValidationError:
        raise PeopleError("invalid-request", "This is not an e-mail address that can be written to.") from None
    return email.lower()
