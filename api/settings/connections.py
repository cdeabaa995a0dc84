"""How a process connects to PostgreSQL: through a pool, but for a command, which uses one connection and ends."""

from __future__ import annotations

from typing import Any

from api import limits


def connection_settings(is_command: bool) -> dict[str, Any]:
    """Options of Django's database. A pool would make a command wait for the pool, and again for its end."""
    if is_command:
        return {"connect_timeout": limits.COMMAND_CONNECT_TIMEOUT_S}
    pool = {
        "min_size": limits.DATABASE_POOL_MIN,
        "max_size": limits.DATABASE_POOL_MAX,
        "num_workers": 1,
        "timeout": limits.DATABASE_POOL_WAIT_MS_MAX / 1000,
        "reconnect_timeout": limits.DATABASE_RECONNECT_S_MAX,
    }
    return {"pool": pool, "connect_timeout": limits.DATABASE_CONNECT_TIMEOUT_S}
