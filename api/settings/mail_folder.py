"""Mails as files: Django's backend, in a folder that only this user may read, because mails hold tokens."""

from __future__ import annotations

import os
from typing import Any

from django.core.mail.backends.filebased import EmailBackend


class PrivateFolderBackend(EmailBackend):
    file_path: str

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        os.chmod(self.file_path, 0o700)
