"""Django settings of the front end: only what Channels asks for.

DATABASES is empty on purpose: the data plane never opens the database, and any use of the ORM fails at once.
"""

from __future__ import annotations

from typing import Any

SECRET_KEY = "the front end signs nothing with Django"  # required to be set; no session, cookie or token uses it
DEBUG = False
ALLOWED_HOSTS: list[str] = ["*"]
DATABASES: dict[str, Any] = {}
INSTALLED_APPS: list[str] = []
MIDDLEWARE: list[str] = []
CHANNEL_LAYERS: dict[str, Any] = {}
ROOT_URLCONF = "frontend.settings"
urlpatterns: list[Any] = []
USE_TZ = True
LOGGING_CONFIG = None
