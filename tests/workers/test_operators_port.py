"""A process of the workers whose operators' port is taken ends and says so; if it lived on, it would never be ready."""

from __future__ import annotations

import socket

import pytest
from celery.signals import beat_init

from workers import application


def test_process_whose_operators_port_is_taken_ends_with_the_reason(monkeypatch: pytest.MonkeyPatch) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        listen = f"127.0.0.1:{taken.getsockname()[1]}"
        monkeypatch.setenv("PENSTOCK_PROCESS", "schedule")
        monkeypatch.setenv("PENSTOCK_METRICS_LISTEN", listen)
        assert application._start_schedule in [receiver() for _, receiver in beat_init.receivers]
        with pytest.raises(SystemExit, match=f"nothing can listen on {listen}, the operators' port"):
            beat_init.send(sender=None)
