"""`spark install`: Spark's packages (the launcher has installed them before this runs), and Java where it may."""

from __future__ import annotations

import argparse

from deploy import output
from deploy.errors import CommandError
from deploy.java import install_java, look_for_spark


def run(options: argparse.Namespace) -> int:
    found = look_for_spark()
    why_not = ""
    if not found.java:
        output.say("installing Java")
        why_not = install_java()
        found = look_for_spark()
    if not found.ready:
        raise CommandError("\n".join([*([why_not] if why_not else []), *found.missing]))
    output.say(f"Spark is ready, with Java {found.java}")
    output.say("A running installation settles usage within minutes; at once: ./penstock report usage ... --now")
    return 0
