"""A purge that is written to the audit trail before it is done, as all that the message browser does."""

from __future__ import annotations

import asyncio

from frontend.errors import RequestError
from frontend.message_browser.actions import BrowserRequest
from frontend.message_browser.audit import PURGE, note, note_failure
from frontend.messages.admission import admit
from frontend.messages.storage_errors import explain_storage_error
from storage_nodes.protocol.errors import StorageError


async def purge(request: BrowserRequest) -> None:
    """Every message that the queue holds now is gone. Raises RequestError."""
    services, caller = request.services, request.caller
    queue = await admit(services, caller, "PurgeQueue", request.address)
    entry: dict[str, object] = {"action": PURGE, "queue": queue.record.name}
    await note(services, caller, request.request_id, entry)
    with services.storage_calls:
        try:
            await asyncio.gather(*(services.storage.purge(partition) for partition in queue.partitions))
        except StorageError as error:
            refusal: RequestError = await explain_storage_error(services, queue, error)
            raise await note_failure(services, caller, request.request_id, entry, refusal) from None
