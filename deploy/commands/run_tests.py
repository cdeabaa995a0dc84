"""`test [pytest arguments]`: the whole suite, or what the arguments choose; what CI runs."""

from __future__ import annotations

import os
import sys

from deploy import system_packages
from deploy.installation import ROOT


def run(arguments: list[str]) -> int:
    system_packages.ensure(system_packages.OF_TESTS)
    sys.stdout.flush()
    os.chdir(ROOT)
    os.execv(sys.executable, [sys.executable, "-m", "pytest", *arguments])
