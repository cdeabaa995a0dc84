"""Async client of a Penstock queue: publishes and consumes in batches over one websocket. README.md shows how."""

from penstock_client.errors import ClientError, ConnectionRefused, NotConnected, PublishRefused
from penstock_client.messages import Batch, Delivery, Failure, Message, Published
from penstock_client.queue import Queue, connect

__all__ = [
    "Batch",
    "ClientError",
    "ConnectionRefused",
    "Delivery",
    "Failure",
    "Message",
    "NotConnected",
    "PublishRefused",
    "Published",
    "Queue",
    "connect",
]
