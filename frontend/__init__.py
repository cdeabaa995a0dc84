"""The stateless data plane: see `docs/processes.md`. Start reading at `send.py` and `receive.py`."""
