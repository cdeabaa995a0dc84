"""What the simulation skips or does in a shorter way, to be quick, changes no verdict and no draw."""

from __future__ import annotations

import random

import pytest

from storage_nodes.log.record_batch import build_batch, configuration_body, read_header
from storage_nodes.node.replicas.local_replicas import LocalReplicas
from storage_nodes.protocol.configuration import Configuration
from tests.simulation import touched
from tests.simulation.cases import Case, run_case, verdict
from tests.simulation.clockwork import Scheduler, SimLoop
from tests.simulation.ledger import CommittedLog, Mirror
from tests.simulation.log_matching import LogMatching
from tests.simulation.network import between


def _batch(offset: int, epoch: int, body: bytes = b"body") -> bytes:
    return build_batch(offset, epoch, 0, [body])


def _configuration(offset: int, voters: tuple[int, ...]) -> bytes:
    body = configuration_body(Configuration(voters))
    return build_batch(offset, 1, 0, [body], control=True, configuration=True)


def _mirror(*batches: bytes) -> Mirror:
    mirror = Mirror()
    for batch in batches:
        mirror.append(batch, read_header(batch))
    return mirror


class _Owner:
    def unhandled(self, error: BaseException) -> None:
        raise error

    def entered(self) -> None:
        pass

    def turned(self) -> None:
        pass


@pytest.mark.parametrize("low, high", [(0, 0), (1, 2), (100, 1_000), (300, 80_000)])
def test_between_draws_what_randint_draws(low: int, high: int) -> None:
    one, other = random.Random("7"), random.Random("7")
    assert [between(one, low, high) for _ in range(200)] == [other.randint(low, high) for _ in range(200)]
    assert one.getstate() == other.getstate()


def test_logs_that_share_an_entry_after_a_difference_do_not_match() -> None:
    mine = _mirror(_batch(0, 1), _batch(1, 1, b"mine"), _batch(2, 1))
    theirs = _mirror(_batch(0, 1), _batch(1, 1, b"theirs"), _batch(2, 1))
    assert LogMatching().look(5, [(1, mine), (2, theirs)], 0) == "nodes 1 and 2, partition 5, at [(1, 2), (1, 3)]"


def test_logs_that_part_for_good_match() -> None:
    mine = _mirror(_batch(0, 1), _batch(1, 1), _batch(2, 1))
    theirs = _mirror(_batch(0, 1), _batch(1, 2), _batch(2, 2))
    assert LogMatching().look(5, [(1, mine), (2, theirs), (3, _mirror())], 0) == ""


@pytest.mark.parametrize("change", ["append", "truncate and append", "replace", "commit"])
def test_logs_that_changed_since_they_matched_are_compared_again(change: str) -> None:
    matching = LogMatching()
    mine = _mirror(*(_batch(n, 1, b"mine" if n == 1 else b"body") for n in range(60)))
    theirs = _mirror(_batch(0, 1), _batch(1, 1, b"theirs"))
    if change != "append":
        theirs = _mirror(*mine.batches)
    committed = 60 if change == "commit" else 0
    if change == "append":
        mine.truncate(1)
        assert matching.look(5, [(1, mine), (2, theirs)], committed) == ""
        again = _batch(1, 1, b"mine")
        mine.append(again, read_header(again))
    elif change == "truncate and append":
        assert matching.look(5, [(1, mine), (2, theirs)], committed) == ""
        theirs.truncate(59)
        other = _batch(59, 1, b"other")
        theirs.append(other, read_header(other))
    elif change == "replace":
        assert matching.look(5, [(1, mine), (2, theirs)], committed) == ""
        theirs = _mirror(*(_batch(n, 1) for n in range(60)))
    else:
        # A difference before what is settled is not looked for: `I4 committed logs match` is there for that.
        theirs.batches[1] = _batch(1, 1)
        assert matching.look(5, [(1, mine), (2, theirs)], committed) == ""
        committed = 40
    assert matching.look(5, [(1, mine), (2, theirs)], committed)


def test_voters_of_a_log_are_those_of_its_latest_configuration() -> None:
    mirror = _mirror(_configuration(0, (1, 2)), _configuration(1, (1, 2, 3)))
    assert mirror.voters == (1, 2, 3)
    assert mirror.copy().voters == (1, 2, 3)
    mirror.truncate(1)
    assert mirror.voters == (1, 2)
    mirror.truncate(0)
    assert mirror.voters is None


def test_the_committed_configuration_is_the_last_one_as_the_log_grows() -> None:
    log = CommittedLog()
    assert log.configuration((7,)) == Configuration((7,))
    log.batches += [_configuration(0, (1, 2)), _batch(1, 1)]
    assert log.configuration((7,)) == Configuration((1, 2))
    log.batches += [_configuration(2, (1, 2, 3)), _batch(3, 1)]
    assert log.configuration((7,)) == Configuration((1, 2, 3))


@pytest.mark.parametrize("is_dead", [False, True])
def test_a_task_that_never_had_its_turn_is_closed_with_its_loop(is_dead: bool) -> None:
    began: list[str] = []

    async def work(name: str) -> None:
        began.append(name)

    loop = SimLoop(Scheduler("1"), _Owner())  # type: ignore[abstract]
    first, second = work("first"), work("second")
    loop.post(lambda: loop.create_task(first))
    loop.scheduler.step()
    loop.dead = is_dead
    loop.create_task(second)
    loop.end()
    assert began == ["first"]
    assert second.cr_frame is None


@pytest.mark.parametrize("seed", [7, 11, 1_800_000_003])
def test_what_is_looked_at_where_something_changed_is_all_that_changed(seed: int) -> None:
    assert run_case(Case(seed, 2_000, check_all=True)) == run_case(Case(seed, 2_000))


@pytest.mark.parametrize("plant", ["B1", "B3", "B10", "B20", "B26", "B32"])
def test_planted_bug_is_noticed_at_the_same_step_where_all_is_looked_at(plant: str) -> None:
    cases = (Case(seed, plant=plant) for seed in range(50_000, 50_020))
    case, found = next((case, found) for case in cases if (found := verdict(case))[0])
    assert verdict(case._replace(check_all=True)) == found


def test_change_of_a_replica_without_a_mark_is_noticed_where_all_is_looked_at(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(touched, "OF_RAFT", frozenset())
    assert verdict(Case(7, 2_000, check_all=True))[0] == "NO MARK"


class _FirstMarks(set[int]):
    """Takes one mark of each partition."""

    def __init__(self) -> None:
        super().__init__()
        self._marked: set[int] = set()

    def add(self, partition: int) -> None:
        if partition not in self._marked:
            self._marked.add(partition)
            super().add(partition)


def test_change_of_a_state_without_a_mark_is_noticed_where_all_is_looked_at(monkeypatch: pytest.MonkeyPatch) -> None:
    real_follow = touched.Touched.follow_all

    def follow_all(self: touched.Touched, replicas: LocalReplicas) -> None:
        real_follow(self, replicas)
        self.states = _FirstMarks()

    monkeypatch.setattr(touched.Touched, "follow_all", follow_all)
    assert verdict(Case(7, 2_000, check_all=True))[0] == "NO MARK"
