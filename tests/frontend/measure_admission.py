"""What admission of a request costs, stage by stage: `python -m tests.frontend.measure_admission [ROUNDS]`.

    pay         the buckets of quotas, by how many levels have one
    authorise   the queue at hand, and what the policies of the key and of the queue say, by what they look at
    count       the request in the series of its queue
    seal        for comparison: a message of 1 KiB, under the data key of its queue, or with a customer's encryption key

Microseconds of CPU for one request, median of the rounds, which take turns. Storage and wires are not in it:
`measure_calls.py` has the whole call, `./penstock bench authorisation` the whole installation.
"""

from __future__ import annotations

import asyncio
import json
import statistics
import sys
import time
from collections.abc import Callable
from typing import Any

import msgspec

from benchmarks.report import Report
from frontend.authn.principal import Principal
from frontend.authn.rights import rights_of
from frontend.crypto.envelope import Content, seal_all
from frontend.limits.quota_tree import QuotaTree
from frontend.limits.quotas import RATE_PER_S_MAX, AccountLimits, Rates, account_limits
from frontend.messages.admission import authorise, count_request, pay
from frontend.metadata.client import MetadataClient
from frontend.metadata.records import PolicyRecord
from frontend.queues.key_uses import DataKeyUses, EncryptionKeyUses
from frontend.queues.names import Address
from frontend.queues.resolver import ResolvedQueue
from tests.support.encrypted_queue import KEY_ID, encrypted
from tests.support.frontend_plane import ACCOUNT, Installation

ROUNDS = 15
CALLS = 4_000
ORDERS = Address(ACCOUNT, "orders")
BODY_BYTES = 1_024
# Never reached: the buckets are looked at, and refuse nothing.
WIDE = Rates(float(RATE_PER_S_MAX), 10.0 * RATE_PER_S_MAX, 1e12)

Stage = Callable[[], object]
Conditions = dict[str, Any]
CONDITIONS: dict[str, Conditions] = {
    "no condition": {},
    "address and transport": {"IpAddress": {"aws:SourceIp": "127.0.0.0/8"}, "Bool": {"aws:SecureTransport": "false"}},
    "time": {"DateGreaterThan": {"aws:CurrentTime": "2020-01-01T00:00:00Z"}},
    "tags of the queue": {"StringEquals": {"aws:ResourceTag/team": "shop"}},
    "time and tags": {
        "DateGreaterThan": {"aws:CurrentTime": "2020-01-01T00:00:00Z"},
        "StringEquals": {"aws:ResourceTag/team": "shop"},
    },
    "age of a session": {"NumericLessThanIfExists": {"aws:MultiFactorAuthAge": "3600"}},
}


def document(conditions: Conditions, **more: Any) -> str:
    """Eight statements about other queues, one that allows, one that denies from elsewhere."""
    others = [
        {"Effect": "Allow", "Action": "sqs:SendMessage", "Resource": f"arn:aws:sqs:*:*:team-{number}-*"}
        for number in range(8)
    ]
    allowed = {"Effect": "Allow", "Action": "sqs:*", "Resource": "*", "Condition": conditions}
    elsewhere = {"NotIpAddress": {"aws:SourceIp": ["127.0.0.0/8", "10.0.0.0/8"]}}
    denied = {"Effect": "Deny", "Action": "sqs:*", "Resource": "*", "Condition": elsewhere}
    statements = [{**one, **more} for one in (*([] if more else others), allowed, denied)]
    return json.dumps({"Version": "2012-10-17", "Statement": statements})


def installation(limits: AccountLimits, queue_policy: str = "", **rates: Any) -> Installation:
    front = Installation(quotas=QuotaTree(lambda _: limits, **rates))
    metadata = MetadataClient("localhost", 1, "test")
    record = front.metadata.queues[ACCOUNT, "orders"]
    attributes = {**record.attributes, **({"Policy": queue_policy} if queue_policy else {})}
    metadata._queues._put(
        (ACCOUNT, "orders"), msgspec.structs.replace(record, attributes=attributes, tags={"team": "shop"})
    )
    front.plane.queues._metadata = metadata
    front.plane.steady_s = time.monotonic
    front.plane.now_s = time.time
    return front


def principal(front: Installation, policy: str | None = None) -> Principal:
    key = front.key.access_key_id
    rights = None if policy is None else rights_of(ACCOUNT, key, [PolicyRecord("own", policy)], {})
    return Principal(ACCOUNT, key, rights=rights, source_ip="127.0.0.1", is_secure=False)


def stages() -> dict[str, Stage]:
    plain = account_limits({})
    lowered = AccountLimits(WIDE, Rates(*(one / 2 for one in WIDE)), Rates(*(one / 4 for one in WIDE)))  # type: ignore[operator]
    found: dict[str, Stage] = {}
    for name, limits in (("account", plain._replace(account=WIDE)), ("account, key and queue", lowered)):
        found[f"pay: {name}"] = paying(installation(limits))
    front = installation(plain)
    found["authorise: key without policies"] = authorising(front, principal(front))
    for name, conditions in CONDITIONS.items():
        found[f"authorise: key with policies, {name}"] = authorising(front, principal(front, document(conditions)))
    for name in ("address and transport", "time"):
        of_queue = document(CONDITIONS[name], Principal="*", Resource=f"arn:aws:sqs:us-east-1:{ACCOUNT}:orders")
        both = installation(plain, of_queue)
        found[f"authorise: key without, queue with a policy, {name}"] = authorising(both, principal(both))
        of_key = principal(both, document(CONDITIONS[name]))
        found[f"authorise: key and queue with policies, {name}"] = authorising(both, of_key)
    queue = front.plane.queues.cached(ORDERS)
    assert queue is not None
    who = principal(front)
    found["count"] = lambda: count_request(front.plane, who, queue)
    for name, key_id in (("data key of the queue", ""), ("encryption key of the customer", KEY_ID)):
        found[f"seal: {name}"] = sealing(Installation(), key_id)
    return found


def sealing(front: Installation, key_id: str) -> Stage:
    record = encrypted(front, key_id=key_id) if key_id else front.metadata.queues[ACCOUNT, "orders"]
    uses = EncryptionKeyUses()
    queue = ResolvedQueue(record, front.keyring, list(front.metadata.encryption_keys.values()), uses, DataKeyUses())
    sender, contents = front.key.access_key_id.encode(), [(Content("x" * BODY_BYTES), b"")]
    return lambda: (
        (queue.encryption and queue.encryption.require(ACCOUNT))
        or seal_all(queue.sealing_key(time.time()), sender, contents)
    )


def paying(front: Installation) -> Stage:
    who = principal(front)
    return lambda: pay(front.plane, who, ORDERS, 1, BODY_BYTES, True)


def authorising(front: Installation, who: Principal) -> Stage:
    return lambda: authorise(front.plane, who, "SendMessage", ORDERS)


async def run(report: Report, rounds: int) -> None:
    measured = stages()
    took: dict[str, list[float]] = {name: [] for name in measured}
    for _ in range(rounds):
        for name, stage in measured.items():
            began_s = time.process_time()
            for _ in range(CALLS):
                stage()
            took[name].append((time.process_time() - began_s) / CALLS * 1e6)
    for name, found in took.items():
        report.add(name, statistics.median(found), "us")


def main() -> None:
    report = Report("admission")
    asyncio.run(run(report, int(sys.argv[1]) if len(sys.argv) > 1 else ROUNDS))
    report.print()


if __name__ == "__main__":
    main()
