"""An SQS client of a running installation, signed with the demo account's key."""

from __future__ import annotations

from typing import Any

from deploy import limits
from deploy.demo import ensure_demo_key, refused_text
from deploy.errors import EXIT_NOT_RUNNING, CommandError
from deploy.installation import Installation
from deploy.state import internal_endpoint

# Of a key that is not there, switched off, or expired.
KEY_REFUSED = "InvalidClientTokenId"


def connect(installation: Installation) -> Any:
    """A boto3 client; several threads may use it at once."""
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
