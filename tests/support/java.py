"""How tests have Java run."""

from __future__ import annotations

# Without the second compiler, which would take a core for code that runs a few times.
SOON_COMPILED = "-XX:TieredStopAtLevel=1"
# The environment that gives it to every JVM that a process starts.
OF_JVMS = {"JAVA_TOOL_OPTIONS": SOON_COMPILED}
