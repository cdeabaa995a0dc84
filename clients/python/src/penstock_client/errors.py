"""What goes wrong, as exceptions."""

from __future__ import annotations


class ClientError(Exception):
    """Base of all errors of this package."""


class ConnectionRefused(ClientError):
    """The service does not take this connection, and will not take the next one either: the key, the queue, a frame.

    code  the HTTP status of the upgrade, or the code that closed the websocket
    """

    def __init__(self, code: int, reason: str) -> None:
        super().__init__(f"{code}: {reason}")
        self.code = code
        self.reason = reason


class NotConnected(ClientError):
    """No connection came about in time, or the queue was closed. What was published may or may not be stored."""


class PublishRefused(ClientError):
    """A frame of a publish was refused whole, for good. `code` is the service's name of the problem."""

    def __init__(self, code: str, detail: str) -> None:
        super().__init__(f"{code}: {detail}")
        self.code = code
        self.detail = detail
