"""What a mail server says of a mail that it does not take."""

from __future__ import annotations

from smtplib import SMTPRecipientsRefused

_FINAL = 500  # SMTP answers from here on are not to be tried again


def is_final(error: SMTPRecipientsRefused) -> bool:
    """The mail server takes none of the addresses, and says that it never will."""
    return all(code >= _FINAL for code, _ in error.recipients.values())
