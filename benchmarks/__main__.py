"""Runs one benchmark: `python -m benchmarks NAME [ARGUMENTS]`.

One that is ended early, also by SIGTERM, takes down what it has started: processes of an installation would go on, and
be measured by the next one.
"""

from __future__ import annotations

import runpy
import signal
import sys
from types import FrameType

EXIT_ENDED = 128 + signal.SIGTERM


def main() -> int:
    name = sys.argv.pop(1)
    signal.signal(signal.SIGTERM, _interrupt)
    try:
        runpy.run_module(f"benchmarks.{name}", run_name="__main__", alter_sys=True)
    except KeyboardInterrupt:
        return EXIT_ENDED
    return 0


def _interrupt(number: int, frame: FrameType | None) -> None:
    """As by the keyboard, which asyncio and every `with` know; once, so that a repeat does not cut that short."""
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    signal.raise_signal(signal.SIGINT)


if __name__ == "__main__":
    sys.exit(main())
