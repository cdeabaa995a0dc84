"""`python -m api`: the control plane on PENSTOCK_CONTROL_LISTEN, until SIGTERM."""

from __future__ import annotations

import gc
import importlib
import os
import signal
import sys
from types import ModuleType
from typing import Any, cast

import uvicorn
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from api.settings.environment import environment, split_listen
from api.settings.server_urls import SettingsError
from storage_nodes.trust.credentials import CredentialsRefused, own_credentials
from storage_nodes.trust.names import InnerRole
from storage_nodes.trust.port import NamedPort

GRACE_S = 10


def main() -> int:
    os.environ.setdefault("PENSTOCK_PROCESS", "api")
    # structlog loads rich, if it can, for its coloured console: 6 MB that a server process never uses. None makes the
    # import fail, as documented.
    cast(dict[str, ModuleType | None], sys.modules).setdefault("rich", None)
    try:
        env = environment()
        host, port = split_listen(env.control_listen)
        credentials = own_credentials(env.cluster_id)
    except (SettingsError, CredentialsRefused) as error:
        print(f"python -m api: {error}", file=sys.stderr)
        return 2
    gc.disable()  # what is imported stays
    from api.asgi import application  # reads the settings: only now it is known that they are whole

    importlib.import_module("api.urls")  # now, and not with the first request
    from api.observability import always_healthy, serve_operators_port_in_thread

    if env.metrics_listen:
        serve_operators_port_in_thread(*split_listen(env.metrics_listen), always_healthy)
    gc.freeze()
    gc.enable()
    config = uvicorn.Config(
        application,
        host=host,
        port=port,
        loop="uvloop",
        http="httptools",
        ws="none",
        lifespan="off",
        access_log=False,
        log_config=None,
        server_header=False,
        timeout_graceful_shutdown=GRACE_S,
    )
    if credentials is not None:
        port_of_names = NamedPort(credentials, InnerRole.CONTROL_PLANE, is_http=True)
        config.http = cast(Any, port_of_names.over(HttpToolsProtocol))
    # uvicorn raises the signal again once it has stopped; a clean stop shall end with status 0.
    signal.signal(signal.SIGTERM, lambda *_: None)
    server = uvicorn.Server(config)
    server.run()
    return 0 if server.started else 1


if __name__ == "__main__":
    sys.exit(main())
