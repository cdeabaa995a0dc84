"""The stateless data plane: see `docs/processes.md`. Start reading at `send.py` and `receive.py`."""

from __future__ import annotations

VERSION = "0.1.0"
