"""Django's settings, made from the environment. The control plane's process and the workers use them."""

from __future__ import annotations

import os
from typing import Any
from urllib.parse import urlsplit

from api import limits
from api.observability import configure_logging
from api.settings.environment import environment
from api.settings.mail import mail_settings
from api.settings.server_urls import parse_database_url


def connection_settings(is_command: bool) -> dict[str, Any]:
    """How this process connects to PostgreSQL: through a pool, but for a command, which uses one connection and ends. A
    pool would make it wait for the pool, and again for its end."""
    if is_command:
        return {"connect_timeout": limits.COMMAND_CONNECT_TIMEOUT_S}
    pool = {
        "min_size": limits.DATABASE_POOL_MIN,
        "max_size": limits.DATABASE_POOL_MAX,
        "num_workers": 1,
        "timeout": limits.DATABASE_POOL_WAIT_MS_MAX / 1000,
        "reconnect_timeout": limits.DATABASE_RECONNECT_S_MAX,
    }
    return {"pool": pool, "connect_timeout": limits.DATABASE_CONNECT_TIMEOUT_S}


_env = environment()
_database = parse_database_url(_env.database_url)

DEBUG = False
SECRET_KEY = _env.secret("django.key").hex()
_endpoint_host = urlsplit(_env.endpoint).hostname or "localhost"
ALLOWED_HOSTS = [
    "127.0.0.1",
    "localhost",
    "[::1]",
    f"[{_endpoint_host}]" if ":" in _endpoint_host else _endpoint_host,
    *filter(None, map(str.strip, _env.allowed_hosts.split(","))),
]
ROOT_URLCONF = "api.urls"
ASGI_APPLICATION = "api.asgi.application"
INSTALLED_APPS = [
    "django.contrib.contenttypes",
    "django.contrib.staticfiles",
    "rest_framework",
    "drf_spectacular",
    "api",
    "api.accounts",
    "api.alarms",
    "api.encryption",
    "api.queues",
    "api.schedules",
    "api.audit",
    "api.billing",
    "api.people",
    "api.iam",
    "api.idempotency",
    "api.quotas",
    "api.series",
    "api.tails",
    "api.webhooks",
    "console",
]
# Internal endpoints carry a MAC and no cookies; pages bring what sessions and forms need with them.
MIDDLEWARE = [
    "api.request_ids.RequestIds",
    "console.security.PageSecurity",
    "django.middleware.security.SecurityMiddleware",
    "whitenoise.middleware.WhiteNoiseMiddleware",
    "django.middleware.clickjacking.XFrameOptionsMiddleware",
]
TEMPLATES = [
    {
        "BACKEND": "django.template.backends.django.DjangoTemplates",
        "APP_DIRS": True,
        "OPTIONS": {"context_processors": ["console.context.of_page"], "builtins": ["console.templatetags.words"]},
    }
]
# Forms of pages (console/security.py). The cookie is Secure where the visitor came by https.
CSRF_COOKIE_NAME = "penstock_csrf"
CSRF_COOKIE_PATH = "/console"
CSRF_COOKIE_HTTPONLY = True
CSRF_COOKIE_SAMESITE = "Lax"
CSRF_FAILURE_VIEW = "console.views.errors.form_expired"
X_FRAME_OPTIONS = "DENY"
# Set by console/security.py where a front end vouches for it, and by no client.
SECURE_PROXY_SSL_HEADER = ("HTTP_X_PENSTOCK_SCHEME", "https")
SECURE_REFERRER_POLICY = "same-origin"
DATABASES: dict[str, dict[str, Any]] = {
    "default": {
        "ENGINE": "django.db.backends.postgresql",
        "NAME": _database.name,
        "USER": _database.user,
        "PASSWORD": _database.password,
        "HOST": _database.host,
        "PORT": _database.port,
        # Requests run on short-lived threads under ASGI, so connections persist in a pool and not per thread.
        "CONN_MAX_AGE": 0,
        # One round trip per request, so that connections that died with a restart of PostgreSQL fail no call.
        "CONN_HEALTH_CHECKS": True,
        "OPTIONS": {
            **connection_settings(os.environ.get("PENSTOCK_PROCESS") == "manage"),
            "application_name": "penstock",
            **_database.options,
        },
    }
}
DEFAULT_AUTO_FIELD = "django.db.models.BigAutoField"
AUTH_USER_MODEL = "people.Person"
PASSWORD_HASHERS = ["api.people.passwords.PersonPasswordHasher"]
DEFAULT_FROM_EMAIL = _env.mail_from
globals().update(mail_settings(_env.mail_url, _env.mail_dir, _env.secrets_dir))
USE_TZ = True
TIME_ZONE = "UTC"
USE_I18N = False
APPEND_SLASH = False
DATA_UPLOAD_MAX_MEMORY_SIZE = limits.REQUEST_BYTES_MAX
STATIC_URL = "/static/"
# Static files are found in the applications themselves: nothing has to be collected before a start.
WHITENOISE_USE_FINDERS = True
WHITENOISE_AUTOREFRESH = False
LOGGING_CONFIG = None
configure_logging(_env.log_level)

REST_FRAMEWORK = {
    "DEFAULT_AUTHENTICATION_CLASSES": ["api.internal.rest.PrincipalAuthentication"],
    "DEFAULT_PERMISSION_CLASSES": ["api.iam.permission.MayDo"],
    "DEFAULT_RENDERER_CLASSES": ["rest_framework.renderers.JSONRenderer"],
    "DEFAULT_PARSER_CLASSES": ["api.parsing.StrictJSONParser"],
    "DEFAULT_SCHEMA_CLASS": "api.operation_schema.OperationSchema",
    "EXCEPTION_HANDLER": "api.problems.problem_handler",
    # No parameter that an operation does not declare.
    "URL_FORMAT_OVERRIDE": None,
    # OPTIONS is no operation of this interface.
    "DEFAULT_METADATA_CLASS": None,
    "UNAUTHENTICATED_USER": None,
    "UNAUTHENTICATED_TOKEN": None,
}
SPECTACULAR_SETTINGS = {
    "TITLE": "Penstock REST API",
    "DESCRIPTION": "Messages, queues, keys, the account, people, billing. Errors are RFC 9457 problems.",
    "VERSION": "1",
    "OAS_VERSION": "3.1.0",
    "SERVE_INCLUDE_SCHEMA": False,
    "POSTPROCESSING_HOOKS": ["api.schema.relax_lists", "api.schema.add_data_paths", "api.schema.add_problems"],
    "ENUM_GENERATE_CHOICE_DESCRIPTION": False,
}
