"""The quota tree: what refuses, who pays, what is paid afterwards. Pure; the clock is a parameter."""

from __future__ import annotations

from typing import Any

import pytest

from frontend.limits import QUOTA_RECHECK_S
from frontend.limits.quota_tree import AccountShare, QuotaRefusal, QuotaTree
from frontend.limits.quotas import (
    ACCOUNT_QUOTAS,
    INSTALLATION,
    INSTALLATION_QUOTAS,
    SINGLE_QUOTAS,
    AccountLimits,
    QuotaError,
    Rates,
    account_limits,
    check_quota,
    check_single_quota,
)


def tree(burst_s: float = 1.0, installation: Rates | None = None, **levels: Any) -> QuotaTree:
    limits = AccountLimits(levels.pop("account", Rates()), **levels)
    return QuotaTree(lambda _: limits, lambda: installation or Rates(), burst_s)


def pay(tree: QuotaTree, now_s: float = 0.0, **more: Any) -> QuotaRefusal | None:
    return tree.pay("a", more.pop("key", "k"), more.pop("queue", "q"), now_s, **more)


def test_requests_pass_up_to_the_burst_and_then_at_the_rate() -> None:
    quotas = tree(account=Rates(10))
    assert [pay(quotas) for _ in range(10)] == [None] * 10
    refused = pay(quotas)
    assert refused is not None and (refused.quota, refused.limit_per_s) == ("requests_per_s", 10)
    passed = sum(pay(quotas, now / 100) is None for now in range(1, 1001))
    assert 99 <= passed <= 101, "ten seconds at ten a second"


def test_wait_that_is_told_is_the_wait_that_is_needed() -> None:
    quotas = tree(account=Rates(10, 10, 1_000))
    assert pay(quotas, messages=25) is None
    refused = pay(quotas, messages=1)
    assert refused is not None and refused.quota == "messages_per_s" and refused.wait_s == pytest.approx(1.5)
    assert pay(quotas, refused.wait_s - 0.01) is not None
    assert pay(quotas, refused.wait_s + 0.01) is None


@pytest.mark.parametrize(
    ("quota", "cost"),
    [("requests_per_s", {}), ("messages_per_s", {"messages": 10}), ("bytes_per_s", {"size_bytes": 1_000})],
)
def test_each_kind_holds_over_a_minute(quota: str, cost: dict[str, int]) -> None:
    quotas = tree(account=Rates(**{quota: 10 * (cost.get("messages") or cost.get("size_bytes") or 1)}))
    passed = sum(pay(quotas, now / 100, **cost) is None for now in range(6_000))
    assert 600 <= passed <= 612


def test_batch_larger_than_the_burst_passes_and_is_paid_off() -> None:
    quotas = tree(account=Rates(messages_per_s=1))
    assert pay(quotas, messages=10) is None
    assert pay(quotas, 8.0, messages=1) is not None
    assert pay(quotas, 9.5, messages=1) is None


@pytest.mark.parametrize(
    ("quota", "cost"), [("messages_per_s", {"messages": 100}), ("bytes_per_s", {"size_bytes": 100})]
)
def test_what_is_owed_is_paid_off_at_a_raised_quota_and_at_once_without_one(quota: str, cost: dict[str, int]) -> None:
    """A hundred seconds' worth of the old quota were granted; nobody waits a hundred seconds for the new one."""
    for raised, wait_s in ((10.0, 9.0), (100.0, 0.0), (None, 0.0)):
        rates = [Rates(**{quota: 1.0})]
        quotas = QuotaTree(lambda _, now=rates: AccountLimits(now[0]), Rates, 1.0)
        assert pay(quotas, **cost) is None and pay(quotas, 2.0, **cost) is not None
        rates[0] = Rates(**{quota: raised})
        refused = pay(quotas, 2.0 + QUOTA_RECHECK_S, **cost)
        waits_s = 0.0 if refused is None else refused.wait_s
        assert waits_s == pytest.approx(max(0.0, wait_s - (2.0 + QUOTA_RECHECK_S) / 10), abs=0.5)


def test_lowered_quota_makes_nobody_wait_longer_for_what_was_granted() -> None:
    rates = [Rates(messages_per_s=100.0)]
    quotas = QuotaTree(lambda _: AccountLimits(rates[0]), Rates, 1.0)
    assert pay(quotas, messages=400) is None
    rates[0] = Rates(messages_per_s=1.0)
    assert pay(quotas, 1.5 + QUOTA_RECHECK_S, messages=1) is not None
    assert pay(quotas, 3.5 + QUOTA_RECHECK_S, messages=1) is None


@pytest.mark.parametrize(
    ("levels", "quota"),
    [
        ({"key": Rates(1)}, "key_requests_per_s"),
        ({"queue": Rates(1)}, "queue_requests_per_s"),
        ({"queue": Rates(messages_per_s=1)}, "queue_messages_per_s"),
        ({"key": Rates(bytes_per_s=1)}, "key_bytes_per_s"),
    ],
)
def test_refusal_on_one_level_costs_nothing_on_the_others(levels: dict[str, Rates], quota: str) -> None:
    quotas = tree(account=Rates(10), **levels)
    assert pay(quotas, messages=1, size_bytes=1) is None
    for _ in range(50):
        refused = pay(quotas, messages=1, size_bytes=1)
        assert refused is not None and refused.quota == quota
    others = [pay(quotas, key=f"k{n}", queue=f"q{n}", messages=1, size_bytes=1) for n in range(9)]
    assert others == [None] * 9
    refused = pay(quotas, key="k9", queue="q9")
    assert refused is not None and refused.quota == "requests_per_s", "the account's ten are used up"
    assert quotas.pay("b", "l", "r", 0.0) is None, "neighbours are not touched"


def test_installation_refuses_all_accounts_together() -> None:
    quotas = tree(account=Rates(10), installation=Rates(15))
    assert sum(quotas.pay(account, account, "", 0.0) is None for account in "ab" for _ in range(10)) == 15
    refused = quotas.pay("b", "b", "", 0.0)
    assert refused is not None and refused.quota == "installation_requests_per_s"


def test_limit_above_that_of_the_account_is_none() -> None:
    limits = account_limits({"requests_per_s": 10, "key_requests_per_s": 10, "queue_requests_per_s": 9})
    assert limits.key.requests_per_s is None and limits.queue.requests_per_s == 9


# --- one key, one queue ---


def single_tree(keys: dict[str, Rates], queues: dict[str, Rates | None], **levels: Any) -> QuotaTree:
    limits = AccountLimits(levels.pop("account", Rates(10)), queues_differ=bool(queues), **levels)
    return QuotaTree(
        lambda _: limits,
        burst_s=1.0,
        key_rates_of=lambda key: keys.get(key, Rates()),
        queue_rates_of=lambda _, name: queues.get(name, Rates()),
    )


@pytest.mark.parametrize(("level", "others"), [("key", {"key": "k2"}), ("queue", {"queue": "q2"})])
@pytest.mark.parametrize(
    ("quota", "cost"), [("requests_per_s", {}), ("messages_per_s", {"messages": 2}), ("bytes_per_s", {"size_bytes": 2})]
)
def test_rate_of_one_key_or_queue_holds_for_it_alone(
    level: str, others: dict[str, str], quota: str, cost: dict[str, int]
) -> None:
    own = {"k" if level == "key" else "q": Rates(**{quota: 2 if cost else 1})}
    quotas = single_tree(own, {}) if level == "key" else single_tree({}, dict(own))
    assert pay(quotas, **cost) is None
    refused = pay(quotas, **cost)
    assert refused is not None and (refused.quota, refused.limit_per_s) == (f"{level}_{quota}", 2 if cost else 1)
    assert [pay(quotas, **others, **cost) for _ in range(9)] == [None] * 9


@pytest.mark.parametrize(("own", "each", "holds"), [(3, 5, 3), (5, 3, 3), (20, None, None), (10, None, None)])
def test_lowest_of_the_levels_holds(own: int, each: int | None, holds: int | None) -> None:
    for quotas, name in (
        (single_tree({"k": Rates(own)}, {}, key=Rates(each)), "key_requests_per_s"),
        (single_tree({}, {"q": Rates(own)}, queue=Rates(each)), "queue_requests_per_s"),
    ):
        passed = [pay(quotas) for _ in range(11)]
        refused = next(one for one in passed if one is not None)
        assert (refused.quota, passed.index(refused)) == ((name, holds) if holds else ("requests_per_s", 10))


def test_each_unit_has_its_own_lowest_level() -> None:
    quotas = single_tree({}, {"q": Rates(None, 3, None)}, queue=Rates(2))
    assert pay(quotas, messages=3) is None
    refused = pay(quotas)
    assert refused is not None and refused.quota == "queue_messages_per_s"
    assert pay(quotas, queue="q2") is None and pay(quotas, queue="q2") is None
    refused = pay(quotas, queue="q2")
    assert refused is not None and refused.quota == "queue_requests_per_s"


def test_change_of_a_single_rate_is_seen_within_a_second() -> None:
    keys: dict[str, Rates] = {}
    queues: dict[str, Rates | None] = {"other": Rates(5)}
    quotas = single_tree(keys, queues, account=Rates(100))
    assert [pay(quotas) for _ in range(50)] == [None] * 50
    keys["k"], queues["q"] = Rates(3), Rates(2)
    assert [pay(quotas, 1.0) is None for _ in range(4)] == [True, True, False, False]
    assert [pay(quotas, 1.0, queue="q2") is None for _ in range(2)] == [True, False], "three of the key in all"
    del keys["k"], queues["q"]
    assert [pay(quotas, 2.5) for _ in range(50)] == [None] * 50


def test_queue_that_is_not_at_hand_is_held_to_what_it_had() -> None:
    queues: dict[str, Rates | None] = {"q": None}
    quotas = single_tree({}, queues)
    assert pay(quotas) is None and pay(quotas) is None, "nothing is known of it yet"
    queues["q"] = Rates(1)
    assert pay(quotas) is None
    assert pay(quotas) is not None, "from the moment on at which it is known"
    queues["q"] = None
    refused = pay(quotas, 1.0)
    assert refused is None and pay(quotas, 1.0) is not None


def test_names_of_no_queue_are_not_kept() -> None:
    quotas = QuotaTree(
        lambda _: AccountLimits(Rates(10**6), queues_differ=True), burst_s=1.0, queue_rates_of=lambda _, __: None
    )
    for number in range(1_000):
        assert pay(quotas, queue=f"absent-{number}") is None
    path = quotas._paths["k"]
    assert path.by_queue == {} and not quotas._queues


def test_without_single_quotas_no_queue_is_looked_at() -> None:
    asked: list[str] = []
    quotas = QuotaTree(lambda _: AccountLimits(Rates(10)), queue_rates_of=lambda _, name: asked.append(name))
    pay(quotas)
    quotas.pay_later("a", "k", "q", 0.0, 1, 1)
    assert asked == [] and quotas._paths["k"].by_queue is None


def test_what_is_paid_afterwards_counts_for_the_single_queue() -> None:
    quotas = single_tree({}, {"q": Rates(messages_per_s=5)})
    assert pay(quotas) is None
    quotas.pay_later("a", "k", "q", 0.0, 6, 0)
    refused = pay(quotas)
    assert refused is not None and refused.quota == "queue_messages_per_s"


def test_what_a_receive_gave_is_paid_afterwards() -> None:
    quotas = tree(account=Rates(100, 10, 1_000))
    assert pay(quotas) is None
    quotas.pay_later("a", "k", "q", 0.0, 20, 100)
    refused = pay(quotas)
    assert refused is not None and refused.quota == "messages_per_s" and refused.wait_s == pytest.approx(1.0, abs=1e-5)


def test_what_the_service_failed_to_take_is_given_back() -> None:
    quotas = tree(account=Rates(100, 10), queue=Rates(messages_per_s=5))
    for _ in range(20):
        assert pay(quotas, messages=5) is None
        quotas.pay_later("a", "k", "q", 0.0, -5, 0)


def test_sending_that_is_stopped_refuses_sends_alone() -> None:
    quotas = tree(stopped="spend cap")
    assert pay(quotas) is None
    refused = pay(quotas, is_send=True)
    assert refused is not None and refused.stopped == "spend cap"


def test_change_of_limits_is_seen_within_a_second_and_forgives_nothing() -> None:
    given = AccountLimits(Rates(10))
    quotas = QuotaTree(lambda _: given, burst_s=1.0)
    assert [pay(quotas) is None for _ in range(11)] == [True] * 10 + [False]
    given = AccountLimits(Rates(1), stopped="x")
    assert pay(quotas, 1.0) is None
    assert pay(quotas, 1.0) is not None
    assert getattr(pay(quotas, 5.0, is_send=True), "stopped", None) == "x"


def test_share_of_a_front_end_is_what_it_grants() -> None:
    quotas = tree(account=Rates(100))
    quotas.share_out(2, {})
    assert sum(pay(quotas) is None for _ in range(200)) == 50
    quotas.share_out(2, {"a": AccountShare(0.9, 0.5, 0.5)})
    passed = sum(pay(quotas, 10 + now / 1_000) is None for now in range(10_000))
    assert 900 <= passed <= 990 + 1


def test_asked_for_counts_what_was_refused_too() -> None:
    quotas = tree(account=Rates(1))
    for _ in range(10):
        pay(quotas, messages=2, size_bytes=3)
    asked = quotas.take_asked()["a"]
    assert (asked.requests, asked.messages, asked.bytes) == (10, 20, 30)
    assert not quotas.take_asked(), "and forgets it"
    pay(quotas, 1.0)
    pay(quotas, 1.5)
    assert quotas.take_asked()["a"].requests == 2


def test_buckets_are_bounded_and_the_busy_account_is_kept() -> None:
    quotas = QuotaTree(lambda _: AccountLimits(Rates(10)), burst_s=1.0, buckets_max=100)
    for _ in range(10):
        assert pay(quotas) is None
    for number in range(1_000):
        quotas.pay(f"x{number}", f"y{number}", "", 0.0)
    assert len(quotas) <= 100
    assert pay(quotas) is not None


def test_buckets_of_invented_queues_are_bounded() -> None:
    limits = AccountLimits(Rates(), queue=Rates(10))
    quotas = QuotaTree(lambda _: limits, burst_s=1.0, buckets_max=100)
    for _ in range(10):
        assert pay(quotas) is None
    for number in range(1_000):
        pay(quotas, queue=f"absent-{number}")
        quotas.pay_later("a", "k", f"other-{number}", 0.0, 1, 1)
    assert len(quotas) <= 100
    assert pay(quotas) is not None, "the queue that is used most is kept"


@pytest.mark.parametrize("debt", [{"messages": 50}, {"size_bytes": 50}])
def test_debt_of_any_kind_is_kept_where_there_are_too_many_buckets(debt: dict[str, int]) -> None:
    quotas = QuotaTree(lambda _: AccountLimits(Rates(10, 10, 10)), burst_s=1.0, buckets_max=100)
    assert pay(quotas, **debt) is None
    for number in range(1_000):
        for _ in range(2):
            quotas.pay(f"x{number}", f"y{number}", "", 0.0)
    refused = pay(quotas)
    assert refused is not None and refused.quota != "requests_per_s"


def test_small_costs_count_however_late_it_is() -> None:
    quotas = tree(account=Rates(bytes_per_s=100_000_000))
    start_s = 1_700_000_000.0
    assert pay(quotas, start_s) is None
    for _ in range(10_000):
        pay(quotas, start_s + 86_400 * 300, size_bytes=10_000)
    assert pay(quotas, start_s + 86_400 * 300, size_bytes=1) is not None


# --- values ---


@pytest.mark.parametrize("name", SINGLE_QUOTAS)
def test_value_of_one_key_or_queue_lies_between_its_bounds(name: str) -> None:
    kind = SINGLE_QUOTAS[name]
    for value in (kind.least, kind.most):
        assert check_single_quota(name, value) is kind
    for wrong in (kind.least - 1, kind.most + 1, -1, 1.5, "5", None, True, [1], {}, 10**30):
        with pytest.raises(QuotaError, match=name):
            check_single_quota(name, wrong)


@pytest.mark.parametrize("name", ["queues", "key_requests_per_s", "", None, 5])
def test_one_key_or_queue_has_rates_alone(name: object) -> None:
    with pytest.raises(QuotaError, match="no such quota"):
        check_single_quota(name, 5)


@pytest.mark.parametrize("name", ACCOUNT_QUOTAS)
def test_value_lies_between_its_bounds(name: str) -> None:
    kind = ACCOUNT_QUOTAS[name]
    for value in (kind.least, kind.most):
        assert check_quota("123456789012", name, value) is kind
    for wrong in (kind.least - 1, kind.most + 1, -1, 0 if kind.least else -1, 1.5, "5", None, True, [1], {}, 10**30):
        with pytest.raises(QuotaError, match=name):
            check_quota("123456789012", name, wrong)


@pytest.mark.parametrize("name", ["", "nothing", None, 5, "requests_per_s\0", "REQUESTS_PER_S"])
def test_name_must_be_that_of_a_quota(name: object) -> None:
    for holder in ("123456789012", INSTALLATION):
        with pytest.raises(QuotaError, match="no such quota"):
            check_quota(holder, name, 5)


def test_installation_has_rates_alone() -> None:
    assert set(INSTALLATION_QUOTAS) == {"requests_per_s", "messages_per_s", "bytes_per_s"}
    with pytest.raises(QuotaError):
        check_quota(INSTALLATION, "queues", 5)


def test_quota_that_is_not_known_here_is_left_out() -> None:
    assert account_limits({"of_a_later_release": 5}) == account_limits({})
