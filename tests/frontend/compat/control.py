"""A control plane for the compatibility suite: its own rules (`api/queues`, the pure parts), over a dictionary.

What it does with rows (move tasks, dead-letter relations) is done here in few words, with the same refusals; the real
thing is tested in `tests/api` and `tests/workers`.
"""

from __future__ import annotations

import base64
import json
from typing import Any

import httpx2

from api.queues import attributes as rules
from api.queues.attributes import QueueArn, QueueProblem
from api.queues.permissions import check_label, check_permission, with_permission, without_permission
from tests.support.frontend_plane import REGION, Installation

_STATUS = {"OverLimit": 403, "ResourceNotFoundException": 404}


class ControlPlaneInMemory:
    """Keeps the attributes of queues in the metadata of the front end's fake, where the front end reads them."""

    def __init__(self, front: Installation) -> None:
        self._front = front
        self.deleted: set[tuple[str, str]] = set()
        self.tags: dict[tuple[str, str], dict[str, str]] = {}
        self.tasks: dict[str, dict[str, Any]] = {}
        self.noted: list[dict[str, Any]] = []  # entries of the audit trail
        front.control_answer = self.answer

    def answer(self, request: httpx2.Request) -> httpx2.Response:
        assert self._front.mac_is_right(request)
        asked = json.loads(request.content)
        if request.url.path == "/internal/audit":
            self.noted.append(asked)
            return httpx2.Response(200, json={})
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
        self._check_redrive(account_id, name, asked)
        self._store(account_id, name, rules.merged(rules.defaults_of(name), asked))
        self.tags[queue] = tags
        return {"name": name}

    def _SetQueueAttributes(self, account_id: str, params: dict[str, Any]) -> dict[str, Any]:
        name = params["QueueName"]
        change = rules.check_change(params.get("Attributes"), name)
        rules.check_together(rules.merged(self._attributes(account_id, name), change))
        self._check_redrive(account_id, name, change)
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
        return self._page(self._sources(params["QueueOwner"], params["QueueName"]), params)

    def _TagQueue(self, account_id: str, params: dict[str, Any]) -> dict[str, Any]:
        queue = (account_id, params["QueueName"])
        self.tags[queue] = rules.merged_tags(
            self.tags.get(queue, {}), rules.check_tags(params["Tags"]), params["QueueName"]
        )
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

    # --- move tasks ---

    def _StartMessageMoveTask(self, account_id: str, params: dict[str, Any]) -> dict[str, Any]:
        source = self._named(account_id, params, "SourceArn")
        if not self._sources(account_id, source):
            raise _invalid("Source queue must be configured as a Dead Letter Queue.")
        if "DestinationArn" in params and self._named(account_id, params, "DestinationArn") == source:
            raise _invalid("Source queue arn and destination queue arn must be different.")
        if any(task["SourceArn"] == params["SourceArn"] for task in self._running()):
            raise _invalid("There is already a task running.")
        handle = f"task-{len(self.tasks)}"
        self.tasks[handle] = {
            **params,
            "TaskHandle": handle,
            "Status": "RUNNING",
            "ApproximateNumberOfMessagesMoved": 0,
            "StartedTimestamp": 1_700_000_000_000,
        }
        return {"TaskHandle": handle}

    def _ListMessageMoveTasks(self, account_id: str, params: dict[str, Any]) -> dict[str, Any]:
        self._named(account_id, params, "SourceArn")
        found = [task for task in self.tasks.values() if task["SourceArn"] == params["SourceArn"]]
        return {"Results": found[::-1][: params.get("MaxResults", 1)]}

    def _CancelMessageMoveTask(self, account_id: str, params: dict[str, Any]) -> dict[str, Any]:
        if not params["TaskHandle"].startswith("task-"):
            raise _invalid("Value for parameter TaskHandle is invalid.")
        task = self.tasks.get(params["TaskHandle"])
        if task is None:
            raise QueueProblem("ResourceNotFoundException", "Task does not exist.")
        if task not in self._running():
            raise _invalid("Only active tasks can be cancelled")
        task["Status"] = "CANCELLING"
        return {"ApproximateNumberOfMessagesMoved": 0}

    def _running(self) -> list[dict[str, Any]]:
        return [task for task in self.tasks.values() if task["Status"] == "RUNNING"]

    def _named(self, account_id: str, params: dict[str, Any], parameter: str) -> str:
        arn = rules.parse_arn(params[parameter])
        if arn is None or arn[:2] != (REGION, account_id) or arn.name not in self._names(account_id):
            raise QueueProblem("ResourceNotFoundException", f"The resource for {parameter} doesn't exist.")
        return arn.name

    # --- what is stored ---

    def _names(self, account_id: str) -> list[str]:
        return sorted(name for owner, name in self._front.metadata.queues if owner == account_id)

    def _sources(self, account_id: str, target: str) -> list[str]:
        found = []
        for name in self._names(account_id):
            redrive = rules.redrive_of(self._attributes(account_id, name))
            if redrive is not None and redrive.target == QueueArn(REGION, account_id, target):
                found.append(name)
        return found

    def _check_redrive(self, account_id: str, name: str, change: dict[str, str]) -> None:
        redrive = rules.redrive_of(change)
        if redrive is None:
            return
        target = redrive.target
        there = target[:2] == (REGION, account_id) and target.name in self._names(account_id)
        if not there or rules.is_fifo(target.name) != rules.is_fifo(name):
            raise QueueProblem("InvalidParameterValueException", "Dead letter target does not exist.")
        source_arn = rules.format_arn(REGION, account_id, name)
        if not rules.allows_source(self._attributes(account_id, target.name), source_arn):
            raise QueueProblem("InvalidParameterValueException", "The dead letter target does not allow this source.")

    def _attributes(self, account_id: str, name: str) -> dict[str, str]:
        record = self._front.metadata.queues.get((account_id, name))
        if record is None:
            raise QueueProblem("QueueDoesNotExist", "The specified queue does not exist.")
        return {**rules.defaults_of(name), **record.attributes}

    def _store(self, account_id: str, name: str, attributes: dict[str, str]) -> None:
        record = self._front.metadata.queues.get((account_id, name))
        fresh = (max(self._front.storage.contents()) + 1,) if rules.is_fifo(name) else (1,)
        partitions = fresh if record is None else tuple(record.partitions)
        self._front.add_queue(name, partitions, account_id=account_id, attributes=attributes)

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


def _invalid(message: str) -> QueueProblem:
    return QueueProblem("InvalidParameterValueException", message)


def _after(token: str) -> str:
    try:
        return base64.b64decode(token, validate=True).decode()
    except ValueError:
        raise QueueProblem("InvalidParameterValueException", "Invalid or expired next token.") from None
