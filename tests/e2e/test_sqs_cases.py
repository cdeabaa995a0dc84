"""The compatibility suite's successes and errors once more, on a running installation: real storage and control plane.

Those whose scene is set with a fake's help are left out (no time passes here, no storage fails on demand), and those
that list all of an account. Each case has queues of its own, under names that stand for those of the suite.
"""

from __future__ import annotations

import base64
import json
import re
import uuid
from concurrent.futures import ThreadPoolExecutor
from types import SimpleNamespace
from typing import Any

import pytest
from botocore.exceptions import ClientError

from tests.frontend.compat.cases import CASES
from tests.frontend.compat.scene import Case, url_of
from tests.support.frontend_plane import ACCOUNT, HOST
from tests.support.installation import RunningInstallation

pytestmark = pytest.mark.slow
AT_ONCE = 6
NOTHING_BEFORE = Case._field_defaults["before"]
RUNNABLE = [case for case in CASES if case.before is NOTHING_BEFORE and case.action != "ListQueues"]


def handle_of_no_task(source_arn: str) -> str:
    """As the control plane makes them."""
    content = {"taskId": str(uuid.UUID(int=9)), "sourceArn": source_arn}
    return base64.b64encode(json.dumps(content).encode()).decode()


class Stage:
    """The queues of one case. `real` and `told` translate between the names of the suite and those that there are."""

    def __init__(self, sqs: Any, endpoint: str, account_id: str, number: int) -> None:
        self.sqs = sqs
        self._names = {name: f"case{number}{name}" for name in ("orders", "line.fifo", "dead", "new", "q.fifo", "q")}
        self._back = {real: name for name, real in self._names.items()}
        self._places = {
            f"http://{HOST}/{ACCOUNT}": f"{endpoint}/{account_id}",
            f"/{ACCOUNT}/": f"/{account_id}/",  # in URLs of other hosts
            f":{ACCOUNT}:": f":{account_id}:",
            "task-9": handle_of_no_task(f"arn:aws:sqs:us-east-1:{account_id}:{self._names['orders']}"),
        }

    def real(self, value: Any) -> Any:
        return self._translated(value, self._places, self._names)

    def told(self, value: Any) -> Any:
        return self._translated(value, {real: name for name, real in self._places.items()}, self._back)

    def make(self, name: str) -> tuple[str, str]:
        """(URL, receipt handle of a message in flight)."""
        fifo = name.endswith(".fifo")
        made = {"QueueName": self._names[name], "Attributes": {"FifoQueue": "true"} if fifo else {}}
        url = self.sqs.create_queue(**made)["QueueUrl"]
        text = {"DataType": "String", "StringValue": "x"}
        for number in range(3):
            of_group = {"MessageGroupId": "ghh"[number], "MessageDeduplicationId": f"d{number + 1}"} if fifo else {}
            attributes = {} if fifo else {"MessageAttributes": {"a": text}}
            self.sqs.send_message(QueueUrl=url, MessageBody=f"m{number}", **of_group, **attributes)
        (message,) = self.sqs.receive_message(QueueUrl=url, WaitTimeSeconds=5)["Messages"]
        return url, message["ReceiptHandle"]

    def _translated(self, value: Any, places: dict[str, str], names: dict[str, str]) -> Any:
        if isinstance(value, dict):
            return {name: self._translated(one, places, names) for name, one in value.items()}
        if isinstance(value, list):
            return [self._translated(one, places, names) for one in value]
        if not isinstance(value, str):
            return value
        for place, other in places.items():
            value = value.replace(place, other)
        # A name alone, at the end of a URL or an ARN, or of an ARN within JSON.
        known = "|".join(re.escape(name) for name in sorted(names, key=len, reverse=True))
        return re.sub(rf'(^|[/:])({known})(?=$|")', lambda found: found[1] + names[found[2]], value)


def ask(stage: Stage, case: Case) -> str:
    """What is wrong; empty where the case ends as the suite says."""
    scene = SimpleNamespace(url=url_of("orders"), fifo_url=url_of("line.fifo"), handle="", fifo_handle="")
    wanted = repr(case.params(scene))  # type: ignore[arg-type]
    if "/orders" in wanted or "'orders'" in wanted or ":orders" in wanted or "task-9" in wanted:
        scene.handle = stage.make("orders")[1]
    if "line.fifo" in wanted:
        scene.fifo_handle = stage.make("line.fifo")[1]
    if ":dead" in wanted:
        stage.make("dead")
    params = stage.real(case.params(scene))  # type: ignore[arg-type]
    try:
        result = stage.told(getattr(stage.sqs, re.sub("(?<!^)(?=[A-Z])", "_", case.action).lower())(**params))
    except ClientError as error:
        found = (error.response["Error"]["Code"], error.response["ResponseMetadata"]["HTTPStatusCode"])
        return "" if found == (case.code, case.status) else f"{found} for {case.code or 'success'}, {case.status}"
    failed = [one["Code"] for one in result.get("Failed", ())]
    if case.code or failed != [case.entry_code] * bool(case.entry_code):
        return f"{failed or 'success'} for {case.code or case.entry_code or 'success'}"
    return "" if case.check(result) else f"not so: {result}"


def test_cases_end_on_a_running_installation_as_in_the_suite(installation: RunningInstallation) -> None:
    sqs = installation.sqs(parameter_validation=False)
    endpoint = installation.key["endpoint"]
    account_id = sqs.create_queue(QueueName="whose")["QueueUrl"].split("/")[-2]
    stages = [Stage(sqs, endpoint, account_id, number) for number in range(len(RUNNABLE))]
    with ThreadPoolExecutor(AT_ONCE) as pool:
        found = list(pool.map(ask, stages, RUNNABLE))
    wrong = [f"{case.action}: {case.what}: {text}" for case, text in zip(RUNNABLE, found, strict=True) if text]
    assert not wrong, "\n".join(wrong)
    assert len(RUNNABLE) > len(CASES) * 2 / 3
