#!/usr/bin/env python
"""Django's command line: migrations, `create_key`, `wait_database`.

Without a database a command ends with os.EX_UNAVAILABLE and one line on stderr, without its settings with os.EX_CONFIG.
"""

from __future__ import annotations

import gc
import os
import sys
from types import ModuleType
from typing import cast

# By default 700, 10, 10. What a command imports stays: with the default a fifth of its start goes to looking at it.
COLLECTOR_GENERATIONS = (50_000, 20, 20)


def main() -> None:
    os.environ.setdefault("DJANGO_SETTINGS_MODULE", "api.settings.project")
    os.environ.setdefault("PENSTOCK_PROCESS", "manage")
    gc.set_threshold(*COLLECTOR_GENERATIONS)
    # structlog loads rich, if it can, for its coloured console, which no command has.
    cast(dict[str, ModuleType | None], sys.modules).setdefault("rich", None)
    from django.core.management import execute_from_command_line
    from django.db import InterfaceError, OperationalError

    from api.settings.server_urls import SettingsError

    try:
        execute_from_command_line(sys.argv)
    except (InterfaceError, OperationalError) as error:
        reason = (str(error).strip() or type(error).__name__).splitlines()[0]
        sys.stderr.write(f"the database does not answer: {reason}\n")
        raise SystemExit(os.EX_UNAVAILABLE) from None
    except SettingsError as error:
        sys.stderr.write(f"{error}. The commands of ./penstock set this; else see docs/processes.md, Settings\n")
        raise SystemExit(os.EX_CONFIG) from None


if __name__ == "__main__":
    main()
