"""`manage.py grant_application ROLE [--password-from VARIABLE] [--migrate]`: what the processes need.

Gives it to a database role. Run it as the owner of the schema, after `migrate` or with `--migrate`. The role reads and
writes rows, makes no tables, and may only add to tables that are append-only, but that the oldest entries of the audit
trail go by a function of the owner. Rights that the role was given on such
tables before are taken back.
"""

from __future__ import annotations

import os
from typing import Any

from django.apps import apps
from django.core.management import call_command
from django.core.management.base import BaseCommand, CommandError, CommandParser
from django.db import connection, transaction
from psycopg import sql

from api.audit.models import AuditEntry

APPEND_ONLY = (AuditEntry,)


class Command(BaseCommand):
    help = "Grant a database role what the application needs."

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("role")
        parser.add_argument(
            "--password-from", metavar="VARIABLE", help="make the role, with the password that this variable holds"
        )
        parser.add_argument("--migrate", action="store_true", help="bring the schema up to date first")

    def handle(self, *args: Any, **options: Any) -> None:
        if options["migrate"]:
            call_command("migrate", interactive=False, verbosity=0)
        role = sql.Identifier(options["role"])
        with transaction.atomic(), connection.cursor() as cursor:
            if options["password_from"]:
                make_role(cursor, options["role"], options["password_from"])
            cursor.execute("SELECT rolsuper, current_user FROM pg_roles WHERE rolname = %s", [options["role"]])
            found = cursor.fetchone()
            if found is None:
                raise CommandError(f"there is no database role {options['role']!r}; make it with CREATE ROLE ... LOGIN")
            is_superuser, current_role = found
            if is_superuser or current_role == options["role"]:
                why = "a superuser" if is_superuser else "the owner of the schema"
                raise CommandError(
                    f"role {options['role']!r} is {why}: nothing would keep it from what is not granted. Let the "
                    "application connect as another one"
                )
            for statement in statements():
                cursor.execute(sql.SQL(statement).format(role=role))
            check_append_only(cursor, options["role"])


def check_append_only(cursor: Any, role: str) -> None:
    """Rights that come from elsewhere (a role that it is a member of, PUBLIC) are not taken back by REVOKE."""
    for model in APPEND_ONLY:
        table = model._meta.db_table
        cursor.execute("SELECT has_table_privilege(%s, %s, 'UPDATE, DELETE, TRUNCATE')", [role, table])
        if cursor.fetchone()[0]:
            raise CommandError(
                f"role {role!r} may still change {table}: by a role that it is a member of, or because everybody may. "
                "Take that right away, or let the application connect as another role"
            )


def make_role(cursor: Any, role: str, variable: str) -> None:
    """Make the role, or give it this password."""
    password = os.environ.get(variable)
    if not password:
        raise CommandError(f"{variable} holds no password")
    cursor.execute("SELECT 1 FROM pg_roles WHERE rolname = %s", [role])
    verb = "CREATE" if cursor.fetchone() is None else "ALTER"
    text = sql.SQL(verb + " ROLE {} LOGIN PASSWORD {}")
    cursor.execute(text.format(sql.Identifier(role), sql.Literal(password)))


def statements() -> list[str]:
    """SQL with a place for the role."""
    append_only = ", ".join(model._meta.db_table for model in APPEND_ONLY)
    rows = ", ".join(sorted(model._meta.db_table for model in apps.get_models(include_auto_created=True)))
    return [
        "GRANT USAGE ON SCHEMA public TO {role}",
        f"GRANT SELECT, INSERT, UPDATE, DELETE ON {rows} TO {{role}}",
        f"REVOKE UPDATE, DELETE, TRUNCATE ON {append_only} FROM {{role}}",
        "GRANT USAGE, SELECT ON ALL SEQUENCES IN SCHEMA public TO {role}",
        "GRANT SELECT ON django_migrations TO {role}",
        "GRANT EXECUTE ON FUNCTION audit_remove_old(integer, integer) TO {role}",
    ]
