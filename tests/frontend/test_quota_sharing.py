"""One quota over several front ends: shares by demand, with the clock, the reports and the front ends simulated."""

from __future__ import annotations

import asyncio

import pytest

from api.metadata.demands import DemandTable
from frontend.limits import QUOTA_SINGLE_NOTES_MAX
from frontend.limits.quota_tree import QuotaTree
from frontend.limits.quotas import AccountLimits, Rates
from frontend.limits.sharing import KEPT, divide
from frontend.metadata.interface import MetadataUnavailable
from frontend.metadata.messages import AccountUse, UseReport, UseShares
from frontend.metadata.quota_reports import QuotaReporter

QUOTA = 200


@pytest.mark.parametrize(
    ("demands", "shares"),
    [
        ([5.0], [1.0]),
        ([5.0, 5.0], [0.5, 0.5]),
        ([0.0, 0.0], [0.5, 0.5]),
        ([5.0, 0.0], [1 - KEPT / 2, KEPT / 2]),
        ([5.0, 0.25], [0.7, 0.3]),
        ([0.25, 0.25, 9.0], [0.3, 0.3, 0.4]),
        ([0.5, 0.25], [0.65, 0.35]),
    ],
)
def test_quota_is_divided_by_what_is_asked_for(demands: list[float], shares: list[float]) -> None:
    assert divide(demands) == pytest.approx(shares)


def test_shares_add_up_to_the_quota_whatever_is_asked_for() -> None:
    for demands in ([0.1 * n for n in range(1, 30)], [0.0, 9.0, 0.01], [1e9, 1e-9], [0.3] * 7):
        assert sum(divide(demands)) == pytest.approx(1.0) and min(divide(demands)) > 0


class Fleet:
    """Front ends with one metadata service."""

    def __init__(self, count: int) -> None:
        self.now_s = 0.0
        self.table = DemandTable()
        self.is_away = False
        self.noted: list[tuple[str, str, str, int, str]] = []
        self.limits = AccountLimits(Rates(QUOTA, QUOTA))
        self.keys: dict[str, Rates] = {}
        self.queues: dict[str, Rates] = {}
        self.trees = [self._tree() for _ in range(count)]
        self.reporters = [self._reporter(number, tree) for number, tree in enumerate(self.trees)]

    def _tree(self) -> QuotaTree:
        return QuotaTree(
            lambda _: self.limits,
            key_rates_of=lambda key: self.keys.get(key, Rates()),
            queue_rates_of=lambda _, name: self.queues.get(name, Rates()),
        )

    def _reporter(self, number: int, tree: QuotaTree) -> QuotaReporter:
        async def report(use: UseReport) -> UseShares:
            if self.is_away:
                raise MetadataUnavailable("away")
            return self.table.report(number, use, self.now_s)

        async def note(*told: object) -> None:
            self.noted.append(told)  # type: ignore[arg-type]

        return QuotaReporter(tree, lambda _: self.limits, report, note, lambda: self.now_s)

    async def run(self, seconds: int, per_s: dict[str, list[int]], queue: str = "") -> dict[str, int]:
        """How many requests of each account passed, by what it asks each front end for in a second. The key of an
        account is called as the account with `-key` behind it."""
        passed = dict.fromkeys(per_s, 0)
        for tick in range(seconds * 100):
            self.now_s += 0.01
            for account, rates in per_s.items():
                for tree, rate in zip(self.trees, rates, strict=True):
                    for _ in range((tick + 1) * rate // 100 - tick * rate // 100):
                        passed[account] += tree.pay(account, f"{account}-key", queue, self.now_s, 1) is None
            if tick % 100 == 99:
                for reporter in self.reporters[: len(self.trees)]:
                    await reporter.step()
                await asyncio.sleep(0)  # notes are told beside the reports
        return passed


@pytest.mark.parametrize("rates", [[1_000, 1_000], [2_000, 0], [1_900, 100], [1_980, 20]])
async def test_customer_at_ten_times_its_quota_gets_its_quota(rates: list[int]) -> None:
    fleet = Fleet(2)
    await fleet.run(10, {"greedy": rates, "neighbour": [50, 50]})
    passed = await fleet.run(60, {"greedy": rates, "neighbour": [50, 50]})
    assert passed["greedy"] == pytest.approx(60 * QUOTA, rel=0.1)
    assert passed["neighbour"] == pytest.approx(60 * 100, rel=0.01), "its neighbour loses nothing"


@pytest.mark.parametrize("rates", [[200, 200], [400, 0], [380, 20]])
@pytest.mark.parametrize("level", ["key", "queue"])
async def test_rate_of_one_key_or_queue_is_divided_as_that_of_an_account(level: str, rates: list[int]) -> None:
    fleet = Fleet(2)
    fleet.limits = AccountLimits(Rates(100_000, 100_000), queues_differ=True)
    if level == "key":
        fleet.keys["greedy-key"] = Rates(40)
    else:
        fleet.queues["slow"] = Rates(messages_per_s=40)
    asked = {"greedy": rates, "other": [10, 0]}
    await fleet.run(10, asked, "slow")
    passed = await fleet.run(60, asked, "slow")
    assert passed["greedy"] == pytest.approx(60 * 40, rel=0.1)
    assert passed["other"] == 60 * 10, "the same name in another account is another queue"
    subject = "key:greedy-key" if level == "key" else "queue:slow"
    unit = "requests" if level == "key" else "messages"
    assert {told[:3] + told[4:] for told in fleet.noted} == {
        ("greedy", f"{level}_{unit}_per_s", "exceeded", subject),
    }, "the account is far from its own quota"


async def test_requests_of_a_limited_key_count_for_its_account() -> None:
    fleet = Fleet(2)
    fleet.keys["a-key"] = Rates(QUOTA - 1)
    await fleet.run(5, {"a": [95, 95]})
    near = ("a", "key_requests_per_s", "warning", "key:a-key")
    assert {told[:3] + told[4:] for told in fleet.noted} == {("a", "requests_per_s", "warning", ""), near}


async def test_customer_within_its_quota_is_not_refused_wherever_it_asks() -> None:
    fleet = Fleet(3)
    await fleet.run(5, {"a": [150, 10, 10]})
    assert (await fleet.run(30, {"a": [150, 10, 10]}))["a"] == 30 * 170
    await fleet.run(5, {"a": [10, 150, 10]})
    assert (await fleet.run(30, {"a": [10, 150, 10]}))["a"] == 30 * 170, "the unused share has moved"


async def test_front_end_that_goes_leaves_its_share_to_the_others() -> None:
    fleet = Fleet(2)
    await fleet.run(10, {"a": [1_000, 1_000]})
    fleet.trees.pop()
    await fleet.run(10, {"a": [2_000]})
    assert (await fleet.run(30, {"a": [2_000]}))["a"] == pytest.approx(30 * QUOTA, rel=0.1)


async def test_shares_stay_while_the_metadata_service_is_away() -> None:
    fleet = Fleet(2)
    await fleet.run(10, {"a": [1_000, 1_000]})
    fleet.is_away = True
    assert (await fleet.run(30, {"a": [1_000, 1_000]}))["a"] == pytest.approx(30 * QUOTA, rel=0.1)


async def test_use_near_and_over_a_quota_is_told_once() -> None:
    fleet = Fleet(2)
    await fleet.run(5, {"near": [90, 90], "over": [300, 300], "far": [50, 50]})
    assert {(account, level) for account, _, level, *_ in fleet.noted} == {("near", "warning"), ("over", "exceeded")}
    assert len(fleet.noted) <= 2 * 2, "once by each front end"
    percents = {account: percent for account, _, _, percent, _ in fleet.noted}
    assert percents["near"] == pytest.approx(90, abs=6) and percents["over"] == pytest.approx(300, abs=20)


async def test_accounts_are_told_of_first_and_a_few_queues_of_each_after_a_report() -> None:
    fleet = Fleet(1)
    names = [f"q{number}" for number in range(QUOTA_SINGLE_NOTES_MAX + 5)]
    fleet.limits = AccountLimits(Rates(QUOTA, QUOTA), queues_differ=True)
    fleet.queues = dict.fromkeys(names, Rates(1))
    (tree,), (reporter,) = fleet.trees, fleet.reporters

    async def ask(account: str, queues: list[str], times: int) -> None:
        for queue in queues:
            for _ in range(times):
                tree.pay(account, f"{account}-key", queue, fleet.now_s, 1)

    for second in (1, 2):
        fleet.now_s = float(second)
        await ask("many", names, 12)
        await ask("few", names[:1], 300)
        await reporter.step()
        assert reporter._telling is not None
        await reporter._telling
        told = [(account, subject) for account, _, _, _, subject in fleet.noted]
        if second == 1:
            assert {account for account, _ in told[:2]} == {"many", "few"} and {subject for _, subject in told[:2]} == {
                ""
            }
            assert len([1 for account, subject in told if account == "many" and subject]) == QUOTA_SINGLE_NOTES_MAX
    assert {subject for account, subject in told if account == "many" and subject} == {f"queue:{one}" for one in names}
    assert len(told) == len(set(told)), "each once an hour"


async def test_reports_do_not_wait_for_an_audit_trail_that_hangs() -> None:
    fleet = Fleet(1)
    told = asyncio.Event()

    async def hang(*_: object) -> None:
        told.set()
        await asyncio.Event().wait()

    fleet.reporters[0]._note = hang
    async with asyncio.timeout(5):
        await fleet.run(3, {"over": [300]})
    assert told.is_set()


def test_report_of_a_front_end_that_went_is_forgotten() -> None:
    table = DemandTable()
    table.report("a", UseReport([]), 0.0)
    assert table.report("b", UseReport([AccountUse("x", 5, 5, 5)]), 1.0).front_ends == 2
    assert table.report("b", UseReport([]), 4.0).front_ends == 1
    table.forget("b")
    assert len(table) == 0
