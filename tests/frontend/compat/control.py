"""A control plane for the compatibility suite: its own rules (`api/queues`, the pure parts), over a dictionary."""

from __future__ import annotations

import base64
import json
from typing import Any

import httpx2

from api.queues import attributes as rules
from api.queues.attributes import QueueArn, QueueProblem
from api.queues.permissions import check_label, check_permission, with_permission, without_permission
from tests.support.frontend_plane import REGION, Installation

_STATUS = {"OverLimit": 403}


class ControlPlaneInMemory:
    """Keeps the attributes of queues in the metadata of the front end's fake, where the front end reads them."""

    def __init__(self, front: Installation) -> None:
        self._front = front
        self.deleted: set[tuple[str, str]] = set()
        self.tags: dict[tuple[str, str], dict[str, str]] = {}
        front.control_answer = self.answer

    def answer(self, request: httpx2.Request) -> httpx2.Response:
        assert self._front.mac_is_right(request)
        asked = json.loads(request.content)
        run = getattr(self, "_" + request.url.path.rpartition("/")[2])
        try:
            return httpx2.Response(200, json=run(asked["account_id"], asked["params"]))
        except QueueProblem as problem:
            content = {"code": problem.code, "message": problem.message}
            return httpx2.Response(_STATUS.get(problem.code, 400), json=content)

    def _CreateQueue(self, account_id: str, params: dict[str, Any]) -> dict[str, Any]:
        name = rules.check_name(params.get("QueueName"))
        asked = rules.check_new(params.get("Attributes"), name)
        tags = rules.check_tags(params.get("tags"))
        queue = (account_id, name)
        if queue in self.deleted:
            raise QueueProblem("QueueDeletedRecently", "You must wait 60 seconds.")
        if queue in self._front.metadata.queues:
            different = rules.first_difference(self._attributes(account_id, name), asked)
            if different is not None:
                raise QueueProblem("QueueNameExists", f"A different value for attribute {different}")
            return {"name": name}
        self._store(account_id, name, rules.merged(rules.defaults_of(name), asked))
        self.tags[queue] = tags
        return {"name": name}

    def _SetQueueAttributes(self, account_id: str, params: dict[str, Any]) -> dict[str, Any]:
        name = params["QueueName"]
        change = rules.check_change(params.get("Attributes"), name)
        rules.check_together(rules.merged(self._attributes(account_id, name), change))
        self._store(account_id, name, rules.merged(self._attributes(account_id, name), change))
        return {}

    def _DeleteQueue(self, account_id: str, params: dict[str, Any]) -> dict[str, Any]:
        self._attributes(account_id, params["QueueName"])
        del self._front.metadata.queues[(account_id, params["QueueName"])]
        self.deleted.add((account_id, params["QueueName"]))
        return {}

    def _ListQueues(self, account_id: str, params: dict[str, Any]) -> dict[str, Any]:
        prefix = params.get("QueueNamePrefix", "")
        return self._page([name for name in self._names(account_id) if name.startswith(prefix)], params)

    def _ListDeadLetterSourceQueues(self, account_id: str, params: dict[str, Any]) -> dict[str, Any]:
        found = []
        for name in self._names(account_id):
            redrive = rules.redrive_of(self._attributes(account_id, name))
            if redrive is not None and redrive.target == QueueArn(REGION, account_id, params["QueueName"]):
                found.append(name)
        return self._page(found, params)

    def _TagQueue(self, account_id: str, params: dict[str, Any]) -> dict[str, Any]:
        queue = (account_id, params["QueueName"])
        self.tags[queue] = rules.merged_tags(self.tags.get(queue, {}), rules.check_tags(params["Tags"]))
        return {}

    def _UntagQueue(self, account_id: str, params: dict[str, Any]) -> dict[str, Any]:
        for key in rules.check_tag_keys(params["TagKeys"]):
            self.tags.get((account_id, params["QueueName"]), {}).pop(key, None)
        return {}

    def _ListQueueTags(self, account_id: str, params: dict[str, Any]) -> dict[str, Any]:
        return {"Tags": self.tags.get((account_id, params["QueueName"]), {})}

    def _AddPermission(self, account_id: str, params: dict[str, Any]) -> dict[str, Any]:
        name = params["QueueName"]
        attributes = self._attributes(account_id, name)
        permission = check_permission(params["Label"], params["AWSAccountIds"], params["Actions"])
        policy = with_permission(attributes, QueueArn(REGION, account_id, name), permission)
        self._store(account_id, name, rules.merged(attributes, {"Policy": policy}))
        return {}

    def _RemovePermission(self, account_id: str, params: dict[str, Any]) -> dict[str, Any]:
        name = params["QueueName"]
        attributes = self._attributes(account_id, name)
        policy = without_permission(attributes, check_label(params["Label"]))
        self._store(account_id, name, rules.merged(attributes, {"Policy": policy}))
        return {}

    # --- what is stored ---

    def _names(self, account_id: str) -> list[str]:
        return sorted(name for owner, name in self._front.metadata.queues if owner == account_id)

    def _attributes(self, account_id: str, name: str) -> dict[str, str]:
        record = self._front.metadata.queues.get((account_id, name))
        if record is None:
            raise QueueProblem("QueueDoesNotExist", "The specified queue does not exist.")
        return {**rules.defaults_of(name), **record.attributes}

    def _store(self, account_id: str, name: str, attributes: dict[str, str]) -> None:
        self._front.add_queue(name, account_id=account_id, attributes=attributes)

    def _page(self, names: list[str], params: dict[str, Any]) -> dict[str, Any]:
        most, token = params.get("MaxResults"), params.get("NextToken")
        if token is not None and most is None:
            raise QueueProblem("InvalidParameterValueException", "NextToken is only valid together with MaxResults.")
        if token is not None:
            names = [name for name in names if name > _after(token)]
        page = names[: most or 1000]
        result: dict[str, Any] = {"names": page}
        if most is not None and len(names) > len(page):
            result["NextToken"] = base64.b64encode(page[-1].encode()).decode()
        return result


def _after(token: str) -> str:
    try:
        return base64.b64decode(token, validate=True).decode()
    except ValueError:
        raise QueueProblem("InvalidParameterValueException", "Invalid or expired next token.") from None
