"""Clients of the queues of a running installation, with the demo account's key: of SQS, and of the bulk socket."""

from __future__ import annotations

import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any

from deploy import limits
from deploy.demo import ensure_demo_key, refused_text
from deploy.errors import EXIT_NOT_RUNNING, CommandError
from deploy.installation import PYTHON_CLIENT, Installation
from deploy.state import internal_endpoint

if TYPE_CHECKING:
    from penstock_client import Queue

# Of a key that is not there, switched off, or expired.
KEY_REFUSED = "InvalidClientTokenId"


def sqs_client(installation: Installation) -> Any:
    """Of boto3, signed with the key; several threads may use it at once."""
    import boto3
    from botocore.config import Config

    state = installation.load_state()
    key = ensure_demo_key(installation, state)
    config = Config(
        max_pool_connections=limits.BATCHES_IN_FLIGHT,
        retries={"mode": "standard", "max_attempts": limits.SEND_ATTEMPTS_MAX},
        parameter_validation=False,  # the service validates; done twice it is a third of the client's time
    )
    return boto3.client(
        "sqs",
        endpoint_url=internal_endpoint(state),
        region_name=key["region"],
        aws_access_key_id=key["access_key_id"],
        aws_secret_access_key=key["secret_access_key"],
        config=config,
    )


def queue_url(installation: Installation, client: Any, name: str, create: bool) -> str:
    """The queue's address; made when it is not there and `create` says so."""
    from botocore.exceptions import BotoCoreError, ClientError

    try:
        return str(client.get_queue_url(QueueName=name)["QueueUrl"])
    except client.exceptions.QueueDoesNotExist:
        if not create:
            raise CommandError(f"there is no queue {name!r}; `./penstock send {name}` creates it") from None
    except ClientError as error:
        if error.response["Error"]["Code"] == KEY_REFUSED:
            key = ensure_demo_key(installation, installation.load_state())
            raise CommandError(refused_text(installation, key["access_key_id"])) from None
        raise CommandError(f"the service refused: {error}") from None
    except BotoCoreError as error:
        raise CommandError(f"the endpoint does not answer ({error}); see ./penstock status", EXIT_NOT_RUNNING) from None
    try:
        return str(client.create_queue(QueueName=name)["QueueUrl"])
    except ClientError as error:
        raise CommandError(f"queue {name!r} could not be created: {error}") from None


@asynccontextmanager
async def open_queue(installation: Installation, name: str) -> AsyncIterator[Queue]:
    """Over the bulk socket. Raises CommandError, also for what the client raises while it is open."""
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
