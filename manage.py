#!/usr/bin/env python
"""Django's command line: migrations, `create_key`, `wait_database`."""

from __future__ import annotations

import os
import sys


def main() -> None:
    os.environ.setdefault("DJANGO_SETTINGS_MODULE", "api.settings.project")
    os.environ.setdefault("PENSTOCK_PROCESS", "manage")
    from django.core.management import execute_from_command_line

    execute_from_command_line(sys.argv)


if __name__ == "__main__":
    main()
