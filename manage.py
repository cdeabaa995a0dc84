#!/usr/bin/env python
"""Django's command line: migrations, `create_key`, `wait_database`.

Without a database a command ends with os.EX_UNAVAILABLE and one line on stderr.
"""

from __future__ import annotations

import os
import sys


def main() -> None:
    os.environ.setdefault("DJANGO_SETTINGS_MODULE", "api.settings.project")
    os.environ.setdefault("PENSTOCK_PROCESS", "manage")
    from django.core.management import execute_from_command_line
    from django.db import InterfaceError, OperationalError

    try:
        execute_from_command_line(sys.argv)
    except (InterfaceError, OperationalError) as error:
        reason = (str(error).strip() or type(error).__name__).splitlines()[0]
        sys.stderr.write(f"the database does not answer: {reason}\n")
        raise SystemExit(os.EX_UNAVAILABLE) from None


if __name__ == "__main__":
    main()
