"""What Spark needs beside this program: Java, and the packages of requirements/reports.txt. Says what is missing.

    python -m workers.spark_jobs.java      one JSON line: {"ready": ..., "java": ..., "missing": [...]}

Imports nothing of Spark, so that it can say that Spark is not there.
"""

from __future__ import annotations

import importlib.util
import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from workers.spark_jobs.limits import JAVA_VERSION_MIN

PACKAGES = ("pyspark", "pyarrow")
JAVA_PLACES = "/usr/lib/jvm/*/bin/java"
VERSION_TIMEOUT_S = 20
INSTALL_JAVA = (
    f"Java {JAVA_VERSION_MIN} or newer is missing: sudo apt-get install -y default-jre-headless "
    "(or name its place in JAVA_HOME)"
)
INSTALL_PACKAGES = "the packages of Spark are missing: ./penstock spark install"


class JavaFound(NamedTuple):
    path: str
    version: int

    @property
    def home(self) -> str:
        return str(Path(self.path).resolve().parent.parent)


def find_java() -> JavaFound | None:
    """The first Java that is new enough: JAVA_HOME, then PATH, then where distributions put it."""
    for path in _candidates():
        version = java_version(path)
        if version is not None and version >= JAVA_VERSION_MIN:
            return JavaFound(path, version)
    return None


def java_version(path: str) -> int | None:
    try:
        answer = subprocess.run([path, "-version"], capture_output=True, text=True, timeout=VERSION_TIMEOUT_S)
    except (OSError, subprocess.TimeoutExpired):
        return None
    # `version "17.0.15"`; before Java 9 it was "1.8.0".
    match = re.search(r'version "(\d+)', answer.stderr + answer.stdout)
    return int(match[1]) if match and answer.returncode == 0 else None


def missing_parts() -> list[str]:
    """One sentence for each part that is missing, with what installs it. Empty: Spark can run."""
    found = [] if find_java() else [INSTALL_JAVA]
    if any(importlib.util.find_spec(name) is None for name in PACKAGES):
        found.append(INSTALL_PACKAGES)
    return found


def _candidates() -> Iterator[str]:
    if home := os.environ.get("JAVA_HOME"):
        yield f"{home}/bin/java"
    if found := shutil.which("java"):
        yield found
    yield from sorted(map(str, Path("/").glob(JAVA_PLACES.lstrip("/"))), reverse=True)


def main() -> int:
    java, missing = find_java(), missing_parts()
    finding = {"ready": not missing, "java": java and {"path": java.path, "version": java.version}, "missing": missing}
    sys.stdout.write(json.dumps(finding) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
