"""Whatever fits the model's shapes, nearly fits them, or is only bytes: an answer of the protocol, never a 500.

And nothing of another tenant's, who has a queue and a message in the same installation."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable
from typing import Any
from urllib.parse import quote
from xml.etree import ElementTree

import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

from tests.frontend.compat.control import ControlPlaneInMemory
from tests.frontend.compat.query_model import json_model
from tests.frontend.compat.scene import GRANTABLE, POLICY, REDRIVE, arn_of, url_of
from tests.frontend.compat.wire import FORM, form_fields, speak
from tests.support.frontend_plane import ACCOUNT, OTHER_ACCOUNT, Installation, Reply, sign

ANSWER_S_MAX = 5.0
SECRET = "what another tenant has sent"
SHAPES: dict[str, Any] = json_model()["shapes"]
OPERATIONS: dict[str, Any] = json_model()["operations"]
# No shrinking: a failure is told as it is found, within the time that the tests have.
bounded = settings(
    max_examples=250,
    deadline=None,
    derandomize=True,
    database=None,
    phases=(Phase.generate,),
    suppress_health_check=list(HealthCheck),
)

_PLAUSIBLE = (
    "", "x", "a b", "0", "1", "-1", "99999999999", "true", "null", "orders", "new", "old.fifo", "All", ".*", "String",
    "Number", "Binary", "AWSTraceHeader", "DelaySeconds", "VisibilityTimeout", "Policy", "RedrivePolicy", "QueueArn",
    url_of("orders"), url_of("secret", OTHER_ACCOUNT), url_of("old.fifo"), url_of("line.fifo"), arn_of("dead"),
    "FifoQueue", "DeduplicationScope", "messageGroup", "ContentBasedDeduplication", "RedriveAllowPolicy", "task-0", "g",
    OTHER_ACCOUNT, ACCOUNT, POLICY, REDRIVE,
    "{", "[]", "\x00", "\r", "<&>]]>", "\ufffe", "𝄞", "x" * 300, *GRANTABLE,
)  # fmt: skip
texts = st.sampled_from(_PLAUSIBLE) | st.text(st.characters(exclude_categories=["Cs"]), max_size=12)
integers = st.integers(-2, 12) | st.sampled_from((900, 901, 43_200, 43_201, 2**31, 2**63, -(2**64)))
anything = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | texts,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(texts, inner, max_size=3),
    max_leaves=5,
)


def of_shape(name: str) -> st.SearchStrategy[Any]:
    """Values that botocore's serializers take for a shape."""
    shape = SHAPES[name]
    kind = shape["type"]
    if kind == "structure":
        members = {member: of_shape(one["shape"]) for member, one in shape["members"].items()}
        if "QueueUrl" in members:
            members["QueueUrl"] = st.sampled_from((url_of("orders"), url_of("line.fifo"))) | members["QueueUrl"]
        return st.fixed_dictionaries({}, optional=members)
    if kind == "list":
        return st.lists(of_shape(shape["member"]["shape"]), max_size=12)
    if kind == "map":
        return st.dictionaries(texts, of_shape(shape["value"]["shape"]), max_size=12)
    if kind in ("integer", "long"):
        return integers
    if kind == "boolean":
        return st.booleans()
    return st.binary(max_size=8) if kind == "blob" else texts


calls = st.sampled_from(sorted(OPERATIONS)).flatmap(
    lambda action: st.tuples(st.just(action), of_shape(OPERATIONS[action]["input"]["shape"]))
)


class Endurance:
    """A front end that is asked one thing after the other, and must answer each in time."""

    def __init__(self) -> None:
        self.runner = asyncio.Runner()
        self.front = self.runner.run(self._start())

    async def _start(self) -> Installation:
        front = Installation()
        ControlPlaneInMemory(front)
        front.plane.drain()  # polls answer at once
        secret = {"QueueUrl": url_of("secret", OTHER_ACCOUNT), "MessageBody": SECRET}
        assert (await front.sqs("SendMessage", secret, key=front.other_key)).status == 200
        return front

    def answers(self, ask: Callable[[Installation], Awaitable[Reply]]) -> Reply:
        async def run() -> Reply:
            # Whatever was changed or deleted: every question finds the same.
            self.front.add_queue("orders", attributes={"RedrivePolicy": REDRIVE})
            self.front.add_queue("line.fifo", (2,), attributes={"ContentBasedDeduplication": "true"})
            self.front.add_queue("dead", (3,))
            async with asyncio.timeout(ANSWER_S_MAX):
                return await ask(self.front)

        # The bucket of requests is full again.
        self.front.clock.now_s += 1
        reply = self.runner.run(run())
        assert reply.status in (200, 400, 403, 404, 413, 415), reply
        assert SECRET not in reply.body.decode()
        assert [one.delivery for one in self.front.storage.messages(50)] == [0], "another's queue"
        if reply.headers["content-type"] == "text/xml":
            ElementTree.fromstring(reply.body)
        else:
            json.loads(reply.body)
        return reply


@pytest.fixture(scope="module")
def endurance() -> Any:
    made = Endurance()
    yield made
    made.runner.close()


@pytest.mark.parametrize("protocol", ["json", "query"])
def test_call_of_the_models_shape_is_answered(endurance: Endurance, protocol: str) -> None:
    seen: set[int] = set()

    @bounded
    @given(calls)
    def ask(call: tuple[str, dict[str, Any]]) -> None:
        async def speaking(front: Installation) -> Reply:
            return (await speak(front, protocol, *call)).reply

        seen.add(endurance.answers(speaking).status)

    ask()
    assert {200, 400} <= seen, "the questions reach both ends"


@bounded
@given(st.sampled_from(sorted(OPERATIONS)), st.data())
def test_json_of_wrong_types_is_answered(endurance: Endurance, action: str, data: st.DataObject) -> None:
    members = SHAPES[OPERATIONS[action]["input"]["shape"]]["members"]
    params = data.draw(st.fixed_dictionaries({}, optional=dict.fromkeys(members, anything)) | anything)
    if isinstance(params, dict) and "QueueUrl" in members:
        params.setdefault("QueueUrl", url_of("orders"))
    endurance.answers(lambda front: front.sqs(action, params))


parts = st.sampled_from(("Attribute", "AttributeName", "MessageAttribute", "Tag", "1", "01", "", "Name", "Value"))
extra_fields = st.lists(st.tuples(st.lists(parts, min_size=1, max_size=6).map(".".join), texts), max_size=1)
changes = st.lists(st.tuples(st.integers(0, 8), texts), max_size=3)
noise = st.sampled_from((b"", b"", b"", b"&&=", b"%", b"%zz", b"\xff", b"a=b&a=c", b"a.b=c&a=d", b"%2e.%2E=+"))


@bounded
@given(calls, changes, extra_fields, noise, st.sampled_from(("GET", "POST")))
def test_form_with_fields_changed_is_answered(
    endurance: Endurance,
    call: tuple[str, dict[str, Any]],
    changed: list[tuple[int, str]],
    more: list[tuple[str, str]],
    tail: bytes,
    method: str,
) -> None:
    """Fields as botocore writes them, then some values replaced, some fields added, and bytes at the end."""
    pairs = list(form_fields(*call).items())
    numbers = [place for place, (_, value) in enumerate(pairs) if isinstance(value, int)]
    for place, value in changed:
        # Numbers are few among texts, and more is done with them: half of the changes go there.
        where = numbers[place % len(numbers)] if numbers and place % 2 else place % len(pairs)
        pairs[where] = (pairs[where][0], value)
    raw = "&".join(f"{quote(name)}={quote(str(value))}" for name, value in [*pairs, *more]).encode()

    async def asking(front: Installation) -> Reply:
        if method == "GET":
            path = "/?" + (raw + b"&" + quote(tail, safe="&=").encode()).decode()
            return await front.call("GET", path, sign(front.key, "GET", path, b"", "", front.clock.now_s, FORM))
        body = raw + b"&" + tail
        return await front.call("POST", "/", sign(front.key, "POST", "/", body, "", front.clock.now_s, FORM), body)

    endurance.answers(asking)
