"""`python -m api.metadata`: settings from the environment (docs/processes.md), stop on SIGTERM.

Reads the environment itself: the control plane's loader would double this process.
"""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from types import ModuleType
from typing import TYPE_CHECKING, cast

import uvloop

from api.settings.server_urls import DATABASE_URL, SettingsError, server_url
from storage_nodes.trust.credentials import CredentialsRefused, own_credentials

if TYPE_CHECKING:
    from api.metadata.process import MetadataSettings


def main() -> int:
    os.environ.setdefault("PENSTOCK_PROCESS", "metadata")
    # structlog loads rich, if it can, for its coloured console: 6 MB that a server process never uses. None makes the
    # import fail, as documented.
    cast(dict[str, ModuleType | None], sys.modules).setdefault("rich", None)
    from api.observability import configure_logging

    configure_logging(os.environ.get("PENSTOCK_LOG_LEVEL", "info"))
    try:
        settings = _settings()
    except (KeyError, ValueError, OSError, SettingsError, CredentialsRefused) as error:
        print(f"python -m api.metadata: setting missing or wrong: {error}", file=sys.stderr)
        return 2
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(_run(settings))
    return 0


async def _run(settings: MetadataSettings) -> None:
    from api.metadata.process import MetadataProcess

    if settings.credentials is not None:
        settings.credentials.tell()
    process = MetadataProcess(settings)
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stop.set)
    await process.start()
    try:
        await stop.wait()
    finally:
        await process.close()


def _settings() -> MetadataSettings:
    from api.metadata.process import MetadataSettings

    environ = os.environ
    host, port = _listen(environ.get("PENSTOCK_METADATA_LISTEN", "127.0.0.1:7201"))
    metrics = environ.get("PENSTOCK_METRICS_LISTEN", "")
    metrics_host, metrics_port = _listen(metrics) if metrics else ("", None)
    database_url = server_url(DATABASE_URL)
    cluster_id = environ["PENSTOCK_CLUSTER_ID"]
    credentials = own_credentials(cluster_id)
    return MetadataSettings(database_url, cluster_id, host, port, metrics_host, metrics_port, credentials)


def _listen(text: str) -> tuple[str, int]:
    host, colon, port = text.rpartition(":")
    if not (colon and host and port.isdigit()):
        raise ValueError(f"{text!r} is not of the form HOST:PORT")
    return host.strip("[]"), int(port)


if __name__ == "__main__":
    sys.exit(main())
