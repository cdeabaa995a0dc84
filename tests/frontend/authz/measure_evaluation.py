"""What one decision costs: the policies of a caller are compiled and joined, as a front end keeps them.

python -m tests.frontend.authz.measure_evaluation

The best of many short rounds, so that other programs on the machine are not measured.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable

from frontend.authz import NO_POLICY, CompiledPolicy, RequestContext, evaluate, join_policies
from frontend.authz.policy_limits import FLOATING_PATTERNS_MAX, QUEUE_POLICY_BYTES_MAX, SEVERAL_VALUES_WILDCARDS_MAX
from frontend.limits import TAG_KEY_CHARS_MAX, TAGS_MAX
from tests.frontend.authz.scene import ACCOUNT, ALICE, BOB, REGION, asked, document, identity, queue, statement

ROUNDS, CALLS_PER_ROUND = 400, 200
POLICIES, QUEUES = 5, f"arn:aws:sqs:{REGION}:{ACCOUNT}"
OFFICE = {"IpAddress": {"aws:SourceIp": ["10.0.0.0/8", "192.168.0.0/16"]}}
CLEAR = {"Bool": {"aws:SecureTransport": "false"}}


def typical(number: int) -> CompiledPolicy:
    return identity(
        statement(Action=["sqs:SendMessage", "sqs:Get*"], Resource=f"arn:aws:sqs:*:{ACCOUNT}:team{number}-*"),
        statement(Action="sqs:ReceiveMessage", Resource=f"{QUEUES}:orders-{number}", Condition=OFFICE),
        statement("Deny", Action="sqs:*", Resource="*", Condition=CLEAR),
        name=f"policy{number}",
    )


def request(action: str, name: str, **more: object) -> RequestContext:
    given = {"source_ip": "10.2.3.4", "secure_transport": True, **more}
    return asked(ALICE, action, f"{QUEUES}:{name}", **given)


def hostile() -> CompiledPolicy:
    """A queue policy as long as one may be, all of it patterns that nearly match."""
    empty = document(statement(Principal="*", Condition={"StringLike": {"aws:UserAgent": ["@"]}}))
    room = QUEUE_POLICY_BYTES_MAX - len(empty)
    length = room // FLOATING_PATTERNS_MAX
    patterns = ["*" + "a?" * (length // 2 - 5) + "b*"] * FLOATING_PATTERNS_MAX
    return queue(statement(Principal="*", Condition={"StringLike": {"aws:UserAgent": patterns}}))


def hostile_of_tags() -> CompiledPolicy:
    """As many patterns of tag keys as a policy may have, none of which fits a key of `k`."""
    patterns = [f"*z{number}*" for number in range(SEVERAL_VALUES_WILDCARDS_MAX // 2)]
    return queue(statement(Principal="*", Condition={"ForAllValues:StringNotLike": {"aws:TagKeys": patterns}}))


def best_us(call: Callable[[], object], rounds: int = ROUNDS, calls: int = CALLS_PER_ROUND) -> float:
    best_s = float("inf")
    for _ in range(rounds):
        started_s = time.perf_counter()
        for _ in range(calls):
            call()
        best_s = min(best_s, time.perf_counter() - started_s)
    return best_s / calls * 1e6


def main() -> None:
    policies = join_policies([typical(number) for number in range(POLICIES)])
    shared = queue(statement(Principal={"AWS": BOB.arn}, Action="sqs:*"))
    worst, nearly = hostile(), request("sqs:SendMessage", "orders", user_agent="a" * 8_000)
    send, receive = request("sqs:SendMessage", "team4-x"), request("sqs:ReceiveMessage", "orders-4")
    other, plain = request("sqs:SendMessage", "other"), request("sqs:SendMessage", "team4-x", secure_transport=False)
    keys = tuple("k" * (TAG_KEY_CHARS_MAX - 2) + f"{number:02}" for number in range(TAGS_MAX))
    tags, tagging = hostile_of_tags(), request("sqs:SendMessage", "orders", tag_keys=keys)
    rows: list[tuple[str, float]] = [
        ("send, allowed by the last policy", best_us(lambda: evaluate(send, policies))),
        ("receive, with an address", best_us(lambda: evaluate(receive, policies))),
        ("send, not allowed", best_us(lambda: evaluate(other, policies))),
        ("send, denied", best_us(lambda: evaluate(plain, policies))),
        ("send, by a queue policy alone", best_us(lambda: evaluate(other, policies, shared))),
        ("making the request", best_us(lambda: request("sqs:SendMessage", "team4-x"))),
        ("compiling a policy of 3 statements", best_us(lambda: typical(1), 20, 20)),
        ("hostile patterns", best_us(lambda: evaluate(nearly, NO_POLICY, worst), 3, 1)),
        ("hostile patterns of 50 tag keys", best_us(lambda: evaluate(tagging, NO_POLICY, tags), 3, 1)),
    ]
    sys.stdout.writelines(f"{what:<36} {cost_us:>10.2f} us\n" for what, cost_us in rows)


if __name__ == "__main__":
    main()
