"""A queue of a running installation, over the bulk socket, with the demo account's key."""

from __future__ import annotations

import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

from deploy.demo import ensure_demo_key
from deploy.errors import EXIT_NOT_RUNNING, CommandError
from deploy.installation import PYTHON_CLIENT, Installation
from deploy.state import internal_endpoint

if TYPE_CHECKING:
    from penstock_client import Queue


@asynccontextmanager
async def open_queue(installation: Installation, name: str) -> AsyncIterator[Queue]:
    """Raises CommandError, also for what the client raises while it is open."""
    if str(PYTHON_CLIENT) not in sys.path:
        sys.path.append(str(PYTHON_CLIENT))  # it stands in the repository, and is not installed
    from penstock_client import ClientError, NotConnected, connect

    state = installation.load_state()
    key = ensure_demo_key(installation, state)
    try:
        async with connect(internal_endpoint(state), key["bearer_token"], name, proxy=None) as queue:
            yield queue
    except NotConnected as error:
        raise CommandError(f"the endpoint does not answer ({error}); see ./penstock status", EXIT_NOT_RUNNING) from None
    except ClientError as error:
        raise CommandError(f"the service refused: {error}") from None
