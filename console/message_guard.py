"""What is looked at before a page asks a front end for messages.

A page looks at one act of the member; a request may ask for more, also on the queue that a message goes to: all of it
is weighed here, by the member's role and policies. What an operator asks for who acts as the member is noted.
"""

from __future__ import annotations

from collections.abc import Callable

from api.iam.authorisation import Targets
from api.iam.member_rights import MemberRights
from api.queues.selectors import queue_of
from frontend.authz.actions import ROUTE_OPERATIONS

# What follows the queue's name in the address -> the operation of the route.
_OPERATIONS = {
    "messages": "send",
    "messages/peek": "peek",
    "messages/find": "find",
    "messages/delete": "browser_delete",
    "messages/dead-letter": "browser_dead_letter",
    "messages/resend": "browser_resend",
    "messages/purge": "browser_purge",
    "scheduled": "list_scheduled",
    "scheduled/cancel": "cancel_scheduled",
    "scheduled/reschedule": "reschedule",
}
_COUNTS = "sqs:GetQueueAttributes"


class MessageGuard:
    """`note` is told the operation and the queue."""

    def __init__(self, account_id: str, rights: MemberRights, note: Callable[[str, str], None] | None = None) -> None:
        self._account_id = account_id
        self._rights = rights
        self._note = note

    def check(self, queue: str, what: str, content: object | None) -> None:
        """Raises AccessDenied."""
        operation = _OPERATIONS[what.partition("?")[0]]
        destination = content.get("destination") if isinstance(content, dict) else None
        targets = Targets(queue, (destination or queue,), item=self._dead_letter_queue(operation, queue))
        self._rights.require(ROUTE_OPERATIONS[operation], targets)
        if self._note is not None:
            self._note(operation, queue)

    def countable(self, queues: list[str]) -> list[str]:
        """Those whose counts the member may see."""
        return [name for name in queues if self._rights.may_on_queue(name, _COUNTS)]

    def _dead_letter_queue(self, operation: str, queue: str) -> str:
        """Without one there is nothing to send to: the front end says so."""
        if operation != "browser_dead_letter":
            return ""
        found = queue_of(self._account_id, queue)
        return found.dead_letter_target or queue if found is not None else queue
