"""The cluster as operators see it: alarms, lag, quarantine, heat, moves; drains and moves, and who may ask for them."""

from __future__ import annotations

import html
import json
import re
from datetime import timedelta
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from storage_nodes.ids import CLUSTER_NUMBER_MAX, make_node_id, make_partition_id
from tests.console.browsing import Browser, queue_row
from tests.console.test_operators import operator
from tests.support.certificates import DAY, CertificateAuthority

__all__ = ["operator"]

MOVE = SimpleNamespace(number=3, source=1, target=4, undo=False, match=25, log_end=100)


class ClusterScript:
    """Stands in for the client of the storage nodes: what it was asked for, and what it refuses."""

    def __init__(self) -> None:
        self.asked: list[tuple[Any, ...]] = []
        self.refuses = ""

    def __call__(self, *_: Any, **__: Any) -> ClusterScript:
        return self

    async def start(self) -> None: ...

    async def close(self) -> None: ...

    async def set_node_state(self, *asked: Any) -> None:
        self._ask("state", *asked)

    async def move_replica(self, *asked: Any) -> None:
        self._ask("move", *asked)

    async def cancel_move(self, *asked: Any) -> None:
        self._ask("cancel", *asked)

    def _ask(self, *asked: Any) -> None:
        from storage_nodes.protocol.errors import ErrorCode, StorageError

        self.asked.append(asked)
        if self.refuses:
            raise StorageError(ErrorCode.INVALID_REQUEST, self.refuses)


@pytest.fixture
def script(monkeypatch: pytest.MonkeyPatch) -> ClusterScript:
    from api.cluster import actions

    script = ClusterScript()
    env = SimpleNamespace(cluster_id="c", nodes=lambda: ["somewhere"])
    monkeypatch.setattr(actions, "environment", lambda: env)
    monkeypatch.setattr(actions, "StorageClient", script)
    return script


@pytest.fixture
def look(monkeypatch: pytest.MonkeyPatch) -> Any:
    """Sets what the nodes say."""
    from console.views import cluster

    def set_view(view: Any) -> None:
        async def look() -> Any:
            return view

        monkeypatch.setattr(cluster, "look_at_cluster", look)

    return set_view


def shown(operator: Browser) -> str:
    answer = operator.get("/console/operators/now")
    assert answer.status_code == 200
    return str(answer.content.decode())


def test_cluster_is_shown_as_the_nodes_tell(operator: Browser, look: Any) -> None:
    from api.cluster.selectors import view_of

    look(view_of({1: info(1, leader=1, epoch=5), 2: info(2, leader=2, epoch=4)}, [3]))
    text = shown(operator)
    assert "Node 3 does not answer" in text and "orders/0" in text and "The clock of node 2 is off" in text
    assert "Every replica has all that its leader has" in text and "No replica is moving" in text
    look(None)
    assert "No storage node answers" in shown(operator)


def test_leader_of_a_partition_is_who_the_newest_epoch_says() -> None:
    from api.cluster.selectors import view_of

    view = view_of({1: info(1, leader=1, epoch=5), 2: info(2, leader=1, epoch=4)}, [])
    assert [(row.leader, row.epoch) for row in view.recent] == [(1, 5)]
    assert [(node.node_id, node.leads, node.replicas) for node in view.nodes] == [(1, 1, 1), (2, 0, 1)]


def test_lag_quarantine_and_moves_are_shown(operator: Browser, look: Any) -> None:
    from api.cluster.selectors import view_of

    views = {1: info(1, leader=1, epoch=5, lag=12_345, move=MOVE), 2: info(2, leader=1, epoch=5, quarantined=[7, 9])}
    look(view_of(views, []))
    text = shown(operator)
    assert "12,345 records" in text and "25 %" in text and "Cancel the move of partition 7" in text
    assert "Node 2 has 2 quarantined partitions: 7, 9" in text
    assert "Replicas of 1 partition are far behind: 7" in text


def test_node_that_does_not_answer_is_not_said_to_be_sound(operator: Browser, look: Any) -> None:
    from api.cluster.selectors import view_of

    view = view_of({1: info(1, leader=1, epoch=5)}, [2])
    assert [node.quarantined for node in view.nodes] == [[], None]


def test_alarms_name_what_is_wrong_the_severe_ones_first() -> None:
    from api.cluster.selectors import view_of
    from api.cluster.system_alarms import system_alarms

    sound = view_of({1: info(1, leader=1, epoch=5, clocks_off=())}, [])
    assert system_alarms(sound, []) == []
    first = info(1, leader=0, epoch=5, read_only=True, slow=True, unrepaired=1)
    tired = SimpleNamespace(work="usage", troubled_rounds=3, trouble="no Java")
    texts = [(one.is_severe, one.text) for one in system_alarms(view_of({1: first}, [2]), [tired])]
    assert texts == [
        (True, "Node 2 does not answer"),
        (True, "The disk of node 1 is nearly full"),
        (True, "Node 1 found damage that is not repaired (1)"),
        (True, "1 partition without a leader: 7"),
        (False, "The background work usage failed in its last 3 rounds"),
        (False, "The disk of node 1 is slow"),
        (False, "The clock of node 2 is off by 9 ms"),
    ]
    assert [one.is_severe for one in system_alarms(None, [SimpleNamespace(work="x", troubled_rounds=1)])] == [True]


@pytest.mark.parametrize(
    ("left_days", "told"),
    [
        (None, []), (14.5, []), (4.5, [(False, "The certificate of the public port ends in 4 days")]),
        (-0.1, [(True, "The certificate of the public port has expired")]),
    ],
)  # fmt: skip
def test_certificate_that_ends_soon_is_an_alarm(left_days: float | None, told: list[tuple[bool, str]]) -> None:
    from api.cluster.selectors import view_of
    from api.cluster.system_alarms import CERTIFICATE_DAYS_LEFT_MIN, system_alarms
    from deploy import limits

    sound = view_of({1: info(1, leader=1, epoch=5, clocks_off=())}, [])
    found = system_alarms(sound, [], None if left_days is None else left_days * 86_400)
    assert [(one.is_severe, one.text) for one in found] == told
    assert CERTIFICATE_DAYS_LEFT_MIN == limits.CERTIFICATE_DAYS_LEFT_MIN


def test_page_shows_the_alarm_of_the_certificate_that_the_launcher_serves(
    operator: Browser, look: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from api.cluster.selectors import view_of
    from console.views import cluster

    look(view_of({1: info(1, leader=1, epoch=5, clocks_off=())}, []))
    monkeypatch.setattr(cluster, "_data", lambda: tmp_path)
    assert "The certificate of the public port" not in shown(operator)
    certificate, _ = CertificateAuthority(tmp_path / "tls").issue(ends_in=4.5 * DAY)
    (tmp_path / "run").mkdir()
    state = tmp_path / cluster.STATE_FILE
    state.write_text(json.dumps({"tls_certificate": str(certificate)}))
    assert "The certificate of the public port ends in 4 days" in shown(operator)
    for text in (json.dumps({"tls_certificate": ""}), json.dumps({"tls_certificate": str(tmp_path / "absent")}), "{"):
        state.write_text(text)
        assert "The certificate of the public port" not in shown(operator)


def test_busiest_queues_are_named_with_the_nodes_that_lead_them(ann: Browser, operator: Browser, look: Any) -> None:
    from api import clock
    from api.cluster.selectors import view_of
    from api.series.collecting import OF_ACCOUNT
    from api.series.models import SeriesMinute

    queue, idle = queue_row(ann.account_id, "orders"), queue_row(ann.account_id, "idle")
    type(queue).objects.filter(pk=queue.pk).update(partitions=[7])
    now = clock.now()
    for uuid, sent, minutes in ((queue.uuid, 40, 1), (queue.uuid, 2, 2), (OF_ACCOUNT, 42, 1), (idle.uuid, 99, 30)):
        at = now - timedelta(minutes=minutes)
        SeriesMinute.objects.create(
            account_id=ann.account_id, queue_uuid=uuid, at=at, messages_sent=sent, requests=sent, throttled=1
        )
    look(view_of({2: info(2, leader=2, epoch=5)}, []))
    text = shown(operator).partition("Busiest queues")[2].partition("</section>")[0]
    cells = re.findall(r'<td class="num" data-label="[A-Z][a-z]+">([^<]*)</td>', text)
    assert cells == ["42", "42", "2"] and "Node 2" in text and "idle" not in text


def hot(operator: Browser) -> list[list[str]]:
    """The cells of the busiest partitions."""
    text = shown(operator).partition("Busiest partitions")[2].partition("</section>")[0]
    rows = re.findall(r"<tr><td.*?</tr>", text)
    return [[re.sub(r"<[^>]*>", "", cell) for cell in re.findall(r"<td[^>]*>(.*?)</td>", row)] for row in rows]


def test_busiest_partitions_are_those_of_busy_queues_by_their_share_of_the_hour(
    ann: Browser, operator: Browser, look: Any
) -> None:
    from api import clock
    from api.billing.models import ProvisionalUsage
    from api.billing.pricing.periods import floor_hour
    from api.cluster.selectors import view_of
    from api.series.models import SeriesMinute
    from api.settings.environment import environment

    now, cluster = clock.now(), environment().cluster_id
    for name, partitions, sent in (("orders", [7, 8, 9], 100), ("mail", [10], 60), ("idle", [11], 0)):
        queue = queue_row(ann.account_id, name)
        type(queue).objects.filter(pk=queue.pk).update(partitions=partitions)
        SeriesMinute.objects.create(account_id=ann.account_id, queue_uuid=queue.uuid, at=now, messages_sent=sent)
        for partition, share in ((7, 900), (8, 100)) if name == "orders" else ():
            ProvisionalUsage.objects.create(
                account_id=ann.account_id, queue_uuid=queue.uuid, hour=floor_hour(now), origin="client",
                source=f"{cluster}/{partition}", messages_delivered=share,
            )  # fmt: skip
    look(view_of({2: info(2, leader=2, epoch=5)}, []))
    found = hot(operator)
    assert [(row[0], row[1], row[3]) for row in found] == [
        ("7", "orders", "90"),
        ("10", "mail", "60"),
        ("8", "orders", "10"),
    ]
    assert found[0][2] == ann.account_id and found[0][4:] == ["Node 2", "1 2", "Move"]
    assert found[1][4:6] == ["–", "–"], "of what no node told"
    look(None)
    assert len(hot(operator)) == 0, "the cluster does not answer"


def test_move_of_a_busy_partition_begins_with_who_holds_it_and_who_could(operator: Browser, look: Any) -> None:
    from api.cluster.selectors import view_of

    first = info(1, leader=2, epoch=5)
    first.nodes.append(SimpleNamespace(**{**vars(first.nodes[0]), "node_id": 5}))
    first.nodes.append(SimpleNamespace(**{**vars(first.nodes[0]), "node_id": 6, "alive": False}))
    first.nodes.append(SimpleNamespace(**{**vars(first.nodes[0]), "node_id": 4, "state": 1}))
    look(view_of({1: first}, []))
    text = operator.get("/console/operators/?partition=7").content.decode()
    form = text.partition('id="move"')[2].partition("</form>")[0]
    assert 'value="7"' in form and re.findall(r"<option[^>]*>([^<]*)</option>", form) == ["2, leads", "1", "5"]
    look(view_of({1: info(1, leader=1, epoch=5)}, []))
    assert "Every active node holds partition 7" in operator.get("/console/operators/?partition=7").content.decode()
    assert "does not know partition 8" in operator.get("/console/operators/?partition=8").content.decode()
    assert "does not know" not in operator.get("/console/operators/?partition=x").content.decode()


def test_command_that_adds_a_node_names_the_installation(
    operator: Browser, monkeypatch: pytest.MonkeyPatch, tmp_path: Any
) -> None:
    from console.views import cluster

    data = tmp_path / "my data"
    (data / "run").mkdir(parents=True)
    monkeypatch.setattr(cluster, "environment", lambda: SimpleNamespace(secrets_dir=str(data / "secrets")))
    page = "/console/operators/"
    assert "<code>./penstock node add</code>" in operator.get(page).content.decode(), "not of the launcher"
    (data / "run" / "state.json").write_text("{}")
    text = html.unescape(operator.get(page).content.decode())
    assert f"<code>./penstock node add --data-dir '{data}'</code>" in text
    assert f"<code>./penstock node decommission ID --data-dir '{data}'</code>" in text


def test_node_that_joins_is_shown_until_it_has_its_share(operator: Browser, look: Any) -> None:
    from api.cluster.selectors import NewNode, new_nodes, view_of

    def joined(held: int, alive: bool = True, moving: bool = False) -> Any:
        """Nodes 1 and 2 hold twelve partitions; node 5 has joined and holds some."""
        one = info(1, leader=1, epoch=5)
        one.nodes.append(SimpleNamespace(**{**vars(one.nodes[0]), "node_id": 5, "alive": alive}))
        row = vars(one.partitions[0])
        one.partitions = [
            SimpleNamespace(**{**row, "partition": number, "replicas": [1, 5] if number < held else [1, 2]})
            for number in range(12)
        ]
        if moving:
            one.partitions[11].move = SimpleNamespace(number=1, source=2, target=5, undo=False, match=1, log_end=2)
        return view_of({1: one}, [])

    assert new_nodes(joined(0, alive=False)) == [NewNode(5, False, 0, 0, 8)]
    assert new_nodes(joined(2, moving=True)) == [NewNode(5, True, 2, 1, 8)] and NewNode(5, True, 2, 1, 8).percent == 25
    assert [node.node_id for node in new_nodes(joined(4))] == []
    look(joined(0, alive=False))
    text = shown(operator)
    assert "Nodes that join" in text and "Not yet" in text and "0 of about 8" in text and "?target=5#move" in text
    look(joined(4))
    assert "Nodes that join" not in shown(operator)


def test_partition_of_a_queue_is_shown_with_the_name_of_the_queue(ann: Browser, operator: Browser, look: Any) -> None:
    from api.cluster.selectors import queue_scopes, view_of

    queue, tag = queue_row(ann.account_id, "orders"), f"queue:{'0' * 32}:0"
    tag_of_queue = f"queue:{queue.uuid.hex}:3"
    views = {1: info(1, leader=1, epoch=5)}
    views[1].partitions[0].tag = tag_of_queue
    view = view_of(views, [])
    assert queue_scopes(view) == {tag_of_queue: (ann.account_id, "orders", "3")}
    look(view)
    text = shown(operator)
    assert "orders:3" in text and f"/console/operators/accounts/{ann.account_id}" in text
    views[1].partitions[0].tag = tag
    look(view_of(views, []))
    assert tag in shown(operator), "of no queue that is there"


def test_node_is_drained_and_taken_back_and_the_trail_says_so(operator: Browser, script: ClusterScript) -> None:
    from api.audit.models import AuditEntry

    for verb in ("drain", "activate"):
        assert operator.post(f"/console/operators/nodes/2/{verb}").status_code == 302
    assert script.asked == [("state", 2, 1), ("state", 2, 0)]
    assert operator.post("/console/operators/nodes/2/decommission").status_code == 404
    move = {"partition": "7", "source": "1", "target": "4"}
    assert operator.post("/console/operators/moves", move).status_code == 302
    assert operator.post("/console/operators/moves/cancel", {"partition": "7", "number": "3"}).status_code == 302
    assert script.asked[2:] == [("move", 7, 1, 4), ("cancel", 7, 3)]
    rows = AuditEntry.objects.filter(action__regex="^(node|replica)[.]").order_by("id")
    assert [(row.action, row.subject) for row in rows] == [
        ("node.drain", "node:2"),
        ("node.activate", "node:2"),
        ("replica.move", "partition:7"),
        ("replica.cancel_move", "partition:7"),
    ]
    assert all(row.actor.startswith("person:") for row in rows)


def test_nodes_and_partitions_of_a_later_cluster_are_named_and_understood(
    operator: Browser, script: ClusterScript
) -> None:
    partition, first, second = make_partition_id(CLUSTER_NUMBER_MAX, 7), make_node_id(2, 1), make_node_id(2, 4)
    for source in ("2.1", str(first)):
        move = {"partition": str(partition), "source": source, "target": "2.4"}
        assert operator.post("/console/operators/moves", move).status_code == 302
    assert script.asked == [("move", partition, first, second)] * 2
    assert operator.post(f"/console/operators/nodes/{first}/drain").status_code == 302
    assert script.asked[2:] == [("state", first, 1)]
    page = operator.get(f"/console/operators/?target={second}").content.decode()
    assert 'value="2.4"' in page


@pytest.mark.parametrize("node_id", [0, 1 << 16, 10**22])
def test_what_is_no_node_id_is_not_found(operator: Browser, script: ClusterScript, node_id: int) -> None:
    assert operator.post(f"/console/operators/nodes/{node_id}/drain").status_code == 404
    assert script.asked == []


def test_refusal_of_the_cluster_is_told_in_its_words(operator: Browser, script: ClusterScript) -> None:
    script.refuses = "no other node has room for its replicas"
    answer = operator.post("/console/operators/nodes/2/drain")
    assert answer.status_code == 409 and b"No other node has room for its replicas." in answer.content
    for wrong in ({"partition": "x", "source": "1", "target": "2"}, {"partition": "7", "source": "1"}):
        assert operator.post("/console/operators/moves", wrong).status_code == 400
    assert len(script.asked) == 1


def test_change_of_the_cluster_wants_an_operator_with_a_recent_sign_in(
    ann: Browser, operator: Browser, script: ClusterScript
) -> None:
    from django.db.models import F

    from api.people.models import PersonSession

    paths = ("nodes/2/drain", "nodes/2/activate", "moves", "moves/cancel")
    form = {"partition": "7", "source": "1", "target": "4", "number": "3"}
    for path in paths:
        assert ann.post(f"/console/operators/{path}", form).status_code == 404, path
        assert operator.client.post(f"/console/operators/{path}", form).status_code == 403, "a form of another site"
    PersonSession.objects.update(authenticated_at=F("authenticated_at") - timedelta(hours=1))
    for path in paths:
        answer = operator.post(f"/console/operators/{path}", form)
        assert answer.status_code == 302 and answer["Location"].startswith("/console/again"), path
    assert script.asked == []


def info(
    node_id: int,
    leader: int,
    epoch: int,
    lag: int = 0,
    move: Any = None,
    clocks_off: tuple[int, ...] = (2,),
    **own: Any,
) -> Any:
    row = SimpleNamespace(
        partition=7, tag="orders/0", leader=leader, epoch=epoch, replicas=[1, 2], leader_since_ms=1, leader_reason="r",
        lag=lag, move=move,
    )  # fmt: skip
    told = {"read_only": False, "slow": False, "unrepaired": 0, "quarantined": [], **own}
    nodes = [
        SimpleNamespace(
            node_id=one, zone="a", alive=True, why="", since_ms=1, disk_free_bytes=2**30, clock_offset_ms=9,
            clock_off=one in clocks_off, state=0, **told,
        )
        for one in (1, 2)
    ]  # fmt: skip
    return SimpleNamespace(nodes=nodes, partitions=[row], manager=node_id)
