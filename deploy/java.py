"""Java for Spark: what is there (asked of `workers.spark_jobs.java`), and its installation where that is possible.

Only the counting of usage needs it. No other command waits for it, and none fails without it.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from typing import NamedTuple

from deploy.errors import CommandError
from deploy.installation import ROOT

JAVA_PACKAGE = "default-jre-headless"
LOOK_TIMEOUT_S = 60
APT_TIMEOUT_S = 900


class SparkFound(NamedTuple):
    """`missing`: one sentence for each part, with what installs it."""

    ready: bool
    java: str
    missing: list[str]


def look_for_spark() -> SparkFound:
    """Raises CommandError where the look itself fails."""
    command = [sys.executable, "-P", "-m", "workers.spark_jobs.java"]
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    try:
        answer = subprocess.run(
            command, cwd=ROOT, env=environment, capture_output=True, text=True, timeout=LOOK_TIMEOUT_S, check=True
        )
        found = json.loads(answer.stdout)
    except (subprocess.SubprocessError, ValueError) as error:
        raise CommandError(f"cannot tell what Spark has: {error}") from None
    java = found["java"]
    return SparkFound(found["ready"], f"{java['version']} ({java['path']})" if java else "", list(found["missing"]))


def install_java() -> str:
    """Asks the distribution's package manager. Empty, or why it could not be done."""
    if shutil.which("apt-get") is None:
        return "there is no apt-get here"
    if os.geteuid() == 0:
        as_root: list[str] = []
    elif shutil.which("sudo"):
        as_root = ["sudo", "-n"]
    else:
        return "only root may install it"
    environment = {**os.environ, "DEBIAN_FRONTEND": "noninteractive"}
    steps = (["update", "-qq"], ["install", "-y", "-qq", "--no-install-recommends", JAVA_PACKAGE])
    for step in steps:
        try:
            subprocess.run(
                [*as_root, "apt-get", *step], env=environment, stdout=sys.stderr, timeout=APT_TIMEOUT_S, check=True
            )
        except (OSError, subprocess.SubprocessError) as error:
            return f"apt-get {step[0]} failed: {error}"
    return ""
