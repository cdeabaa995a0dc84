"""The stateless data plane: see `docs/processes.md`. Start reading at `messages/send.py` and `messages/receive.py`."""

from __future__ import annotations

VERSION = "0.1.0"
