"""What `status` makes of the answers of several nodes that do not all know the same."""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import json
import time
from types import SimpleNamespace
from typing import Any, cast

import msgspec
import psycopg
import pytest

from deploy.commands import cluster_view, disk_levels, node, quarantine_view, status, usage_view
from deploy.errors import CommandError
from deploy.installation import Installation
from deploy.java import SparkFound
from deploy.state import State
from storage_nodes.ids import make_node_id
from storage_nodes.node.replicas.stopped_replicas import StopKind
from storage_nodes.protocol.messages import ClusterInfo, NodeInfo, PartitionInfo, StoppedReplica

SOUND = {"certificate_trouble": None}
NOW_MS = int(time.time() * 1000)
UP = [NodeInfo(node, "h", node, f"zone-{node}", True, NOW_MS - 60_000, "", 2**30) for node in (1, 2, 3)]


def row(partition: int, leader: int, epoch: int, since_ms: int = NOW_MS - 4_000, reason: str = "x") -> PartitionInfo:
    return PartitionInfo(partition, 1, [1, 2, 3], f"queue:{partition}", leader, epoch, since_ms, reason)


def view(*rows: PartitionInfo, nodes: list[NodeInfo] = UP) -> ClusterInfo:
    return ClusterInfo("c", 1, nodes, list(rows))


def test_row_of_the_leader_itself_counts_before_all_others() -> None:
    views = {1: view(row(7, 2, 3)), 2: view(row(7, 2, 3, reason="elected by nodes 2, 3")), 3: view(row(7, 0, 4))}
    assert cluster_view.merge_partitions(views)[0]["leader_reason"] == "elected by nodes 2, 3"


def test_row_of_a_follower_that_still_believes_in_a_dead_leader_counts_less() -> None:
    views = {1: view(row(7, 3, 3)), 2: view(row(7, 1, 3, reason="who leads answers"))}
    assert cluster_view.merge_partitions(views)[0]["leader_reason"] == "who leads answers"
    views = {2: view(row(7, 3, 3)), 4: view(row(7, 0, 0, since_ms=0))}
    assert cluster_view.merge_partitions(views)[0]["leader"] == 3


def test_node_that_does_not_answer_is_shown_as_the_others_see_it() -> None:
    seen = [UP[0], NodeInfo(2, "h", 2, "zone-2", False, NOW_MS - 9_000, "went silent for 700 ms")]
    views = {1: view(row(7, 1, 3), row(8, 0, 3), nodes=seen)}
    nodes = cluster_view.merge_nodes(views, cluster_view.merge_partitions(views))
    assert [(node["alive"], node["why"], node["leads"], node["replicas"]) for node in nodes] == [
        (True, "", [7], 2), (False, "went silent for 700 ms", [], 2),
    ]  # fmt: skip
    assert cluster_view.node_rows({"nodes": nodes, "partitions": [1, 2]})[1][2] == "DOWN: went silent for 700 ms"


def test_node_that_dies_again_and_again_is_shown_as_its_supervisor_sees_it() -> None:
    """Others saw it being stopped once; its process was started since then."""
    seen = [NodeInfo(node, "h", node, "z", node == 1, NOW_MS, "was stopped") for node in (1, 2, 3)]
    nodes = cluster_view.merge_nodes({1: view(nodes=seen)}, [])
    not_up = {"since": 1.0, "last_end": "ended with status 78", "log": "x.log", "last_words": []}
    rows = [
        {"role": "storage-node", "id": 1, "health": "starting", "not_up": {**not_up, "last_end": ""}},
        {"role": "storage-node", "id": 2, "health": "failing", "not_up": not_up},
        {"role": "storage-node", "id": 3, "health": "stopped", "not_up": None},
        {"role": "frontend", "id": 3, "health": "failing", "not_up": not_up},
    ]
    shown = cluster_view.node_rows({"nodes": cluster_view.with_processes(nodes, rows), "partitions": []})
    assert [row[2] for row in shown] == [
        "alive", "DOWN: dies again and again (ended with status 78)", "DOWN: was stopped",
    ]  # fmt: skip


def test_partitions_without_a_leader_come_with_what_they_wait_for() -> None:
    rows = cluster_view.merge_partitions({1: view(row(7, 1, 3), *(row(n, 0, 3, reason="needs") for n in range(8, 30)))})
    lines = cluster_view.leaderless_lines(rows)
    assert lines[0].startswith("partition 8 (queue:8): NO LEADER since ") and lines[0].endswith(": needs")
    assert lines[-1] == "and 12 partitions more without a leader"


def test_recent_changes_are_grouped_where_there_are_many_and_old_ones_left_out(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(time, "time", lambda: NOW_MS / 1000)
    old = row(1, 1, 3, since_ms=NOW_MS - 3_600_000)
    many = [row(n, 1 + n % 2, 3, reason=f"node 3 went down; elected in epoch {n}") for n in range(2, 102)]
    lines = cluster_view.recent_lines(cluster_view.merge_partitions({1: view(old, *many)}))
    assert len(lines) == 2 and all(line.startswith("50 partitions: node ") for line in lines)
    assert all(line.endswith(": node 3 went down") for line in lines)
    lines = cluster_view.recent_lines(cluster_view.merge_partitions({1: view(old, many[0])}))
    assert len(lines) == 1 and "node 1 leads since" in lines[0] and "(4 s)" in lines[0]


def stopped(partition: int, since_ms: int = NOW_MS - 4_000, kind: str = "entry") -> StoppedReplica:
    return StoppedReplica(partition, f"queue:{partition}", kind, 5, "ValueError: no such color", since_ms, "a1")


def nodes_with(node_id: int, *replicas: StoppedReplica) -> list[NodeInfo]:
    return [msgspec.structs.replace(one, stopped=list(replicas)) if one.node_id == node_id else one for one in UP]


def test_quarantined_replicas_are_told_by_partition_with_queue_reason_and_who_leads() -> None:
    views = {
        1: view(row(7, 0, 3), row(8, 2, 3), nodes=nodes_with(1, stopped(7), stopped(8))),
        2: view(row(7, 0, 3), row(8, 2, 3), nodes=nodes_with(2, stopped(7, NOW_MS - 9_000))),
    }
    rows = cluster_view.stopped_rows(views)
    assert [(row["partition"], row["nodes"], row["since"]) for row in rows] == [
        (7, [2, 1], (NOW_MS - 9_000) / 1000), (8, [1], (NOW_MS - 4_000) / 1000),
    ]  # fmt: skip
    partitions = cluster_view.merge_partitions(views)
    first, second = quarantine_view.quarantine_lines(rows, partitions, lambda: {"queue:7": ("acme", "orders")})
    assert first.startswith("partition 7 (queue orders of account acme): QUARANTINED on nodes 2, 1 since ")
    assert first.endswith(
        ": the entry at offset 5 cannot be folded: ValueError: no such color; "
        "no node leads it, its requests are refused"
    )
    assert second.startswith("partition 8 (queue:8, account a1): QUARANTINED on node 1 since ")
    assert second.endswith("; node 2 leads it")


def test_database_is_asked_for_names_only_where_something_is_quarantined() -> None:
    assert quarantine_view.quarantine_lines([], [], lambda: pytest.fail("asked")) == []


def test_many_quarantined_partitions_are_counted() -> None:
    rows = cluster_view.stopped_rows({1: view(nodes=nodes_with(1, *map(stopped, range(7, 30))))})
    lines = quarantine_view.quarantine_lines(rows, [], dict)
    assert len(lines) == 11 and lines[-1] == "and 13 partitions more with quarantined replicas"


def test_every_kind_of_stop_has_words() -> None:
    assert set(quarantine_view.KINDS) == set(StopKind)


def test_names_are_done_without_where_the_database_is_away(monkeypatch: pytest.MonkeyPatch) -> None:
    rows = cluster_view.stopped_rows({1: view(nodes=nodes_with(1, stopped(7)))})
    state = State("c", "h", 1, 2)
    monkeypatch.setattr(Installation, "settings", lambda *_: {"DATABASE_URL": "postgresql://nobody@127.0.0.1:1/none"})
    assert quarantine_view.names_of(Installation(), state, rows) == {}
    monkeypatch.setattr(psycopg, "connect", lambda *_, **__: contextlib.nullcontext(SimpleNamespace(cursor=tuple)))
    monkeypatch.setattr(quarantine_view, "names_by", lambda _, tags: dict.fromkeys(tags, ("acme", "orders")))
    assert quarantine_view.names_of(Installation(), state, rows) == {"queue:7": ("acme", "orders")}


def test_partitions_are_told_by_their_queues_where_the_database_knows_them(capsys: pytest.CaptureFixture[str]) -> None:
    lately_ms = int(time.time() * 1000) - 4_000
    rows = (row(7, 0, 3, lately_ms), row(8, 1, 3, lately_ms), row(9, 1, 3, lately_ms))
    partitions = cluster_view.merge_partitions({1: view(*rows)})
    shown: dict[str, Any] = {
        "endpoint": "e",
        "console": "c",
        **{name: [] for name in LISTS},
        "usage_round": None,
        **SOUND,
    }
    shown["partitions"] = partitions
    known = {"queue:7": ("acme", "orders"), "queue:8": ("acme", "bills")}
    asked: list[list[int]] = []

    def names(rows: list[dict[str, Any]]) -> dict[str, tuple[str, str]]:
        asked.append([one["partition"] for one in rows])
        return known

    status.print_status(shown, names)
    said = capsys.readouterr().out
    assert asked == [[7, 8, 9]]
    assert "partition 7 (queue orders of acme): NO LEADER" in said
    assert "partition 8 (queue bills of acme): node 1 leads" in said and "partition 9 (queue:9): node 1 leads" in said
    status.show_partition(shown, 8, False, names)
    said = capsys.readouterr().out
    assert "partition 8 (queue bills of acme): node 1 leads" in said and "tag queue:8" in said
    status.show_partition(shown, 8, True, names)
    told = json.loads(capsys.readouterr().out)
    assert (told["queue"], told["account"], told["tag"]) == ("bills", "acme", "queue:8")
    status.print_status({**shown, "partitions": []}, lambda rows: pytest.fail("nothing is to be named"))


def test_quarantined_partition_is_told_once_and_not_as_leaderless_too(capsys: pytest.CaptureFixture[str]) -> None:
    views = {1: view(row(7, 0, 3), row(9, 0, 3), nodes=nodes_with(1, stopped(7)))}
    partitions = cluster_view.merge_partitions(views)
    shown: dict[str, Any] = {
        "endpoint": "e", "console": "c", "processes": [], "partitions": partitions, "nodes": [],
        "quarantined": cluster_view.stopped_rows(views), "usage_round": None, **SOUND,
    }  # fmt: skip
    status.print_status(shown, lambda rows: {})
    said = capsys.readouterr().out
    assert said.count("partition 7 ") == 1 and "QUARANTINED" in said and "partition 9 (queue:9): NO LEADER" in said
    partitions[0]["replicas"] = [make_node_id(2, 1), make_node_id(2, 3)]
    status.show_partition(shown, 7, False, lambda rows: {})
    said = capsys.readouterr().out
    assert "QUARANTINED" in said and "replicas on nodes 2.1, 2.3 (home: the first)" in said


LISTS = ("processes", "partitions", "nodes", "quarantined")


def usage_said(capsys: pytest.CaptureFixture[str], note: usage_view.UsageRoundNote | None) -> str:
    shown: dict[str, Any] = {
        "endpoint": "e",
        "console": "c",
        **{name: [] for name in LISTS},
        "usage_round": note,
        **SOUND,
    }
    status.print_status(shown, lambda rows: {})
    return capsys.readouterr().out.splitlines()[-1]


def test_status_says_what_the_last_round_of_the_usage_worker_said_and_not_what_this_shell_has(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(usage_view, "look_for_spark", lambda: pytest.fail("this shell was looked at"))
    ended_at = time.time() - 240
    well: usage_view.UsageRoundNote = {"ended_at": ended_at, "troubled_rounds": 0, "trouble": ""}
    assert usage_said(capsys, well).startswith("the last round of the usage worker went well, ")
    said = usage_said(capsys, {**well, "troubled_rounds": 3, "trouble": "ingest ended with 5: no master\nstart it\n"})
    assert said.startswith("usage is not settled; the last round of the usage worker, ")
    assert said.endswith(" (4 min), as 2 before it, said: ingest ended with 5: no master; start it")
    assert usage_said(capsys, None) == usage_view.NOT_KNOWN
    monkeypatch.setattr(usage_view, "look_for_spark", lambda: SparkFound(False, "", ["Java is missing"]))
    said = usage_said(capsys, {**well, "ended_at": None})
    assert said.startswith("no round of the usage worker has ended yet; ") and said.endswith(": Java is missing")


def test_last_round_is_not_known_where_the_database_is_away(monkeypatch: pytest.MonkeyPatch) -> None:
    state = State("c", "h", 1, 2)
    monkeypatch.setattr(Installation, "settings", lambda *_: {"DATABASE_URL": "postgresql://nobody@127.0.0.1:1/none"})
    assert usage_view.last_round(Installation(), state) is None


def test_durations_are_said_in_the_unit_that_fits() -> None:
    said = [cluster_view.duration(seconds) for seconds in (4, 119, 240, 7_300, 200_000)]
    assert said == ["4 s", "119 s", "4 min", "2 h", "2 d"]


def test_process_row_of_one_that_never_started() -> None:
    process = {"role": "frontend", "id": None, "pid": None, "address": None, "health": "down", "restarts": 0}
    assert status.process_row({**process, "started_at": None})[-1] == "-"


def test_node_whose_clock_is_off_is_shown_with_how_far_and_what_to_do() -> None:
    off = NodeInfo(2, "h", 2, "zone-2", True, NOW_MS, "", clock_offset_ms=86_400_000, clock_off=True)
    near = NodeInfo(3, "h", 3, "zone-3", True, NOW_MS, "", clock_offset_ms=-40)
    nodes = cluster_view.merge_nodes({1: view(nodes=[UP[0], off, near])}, [])
    clocks = [row[-1] for row in cluster_view.node_rows({"nodes": nodes, "partitions": []})]
    assert clocks == ["-", "OFF +86,400.0 s", "-0.04 s"]
    (line,) = cluster_view.clock_lines(nodes)
    assert line.startswith("node 2: CLOCK OFF by +86,400.0 s") and "NTP" in line
    assert len(status.NODE_COLUMNS) == len(cluster_view.node_rows({"nodes": nodes, "partitions": []})[0])


def test_disks_and_replicas_that_need_an_operator_are_told() -> None:
    full = [NodeInfo(node, "h", node, "z", True, NOW_MS, "", 2**30, read_only=True) for node in (1, 2)]
    stopped = StoppedReplica(7, "queue:7", 3, "entry", "x", NOW_MS)
    worn = NodeInfo(3, "h", 3, "z", True, NOW_MS, slow=True, unrepaired=2, quarantined=[7, 8, 9], stopped=[stopped])
    assert cluster_view.disk_lines(cluster_view.merge_nodes({1: view()}, [])) == []
    lines = cluster_view.disk_lines(cluster_view.merge_nodes({1: view(nodes=[*full, worn])}, []))
    assert [line.partition(",")[0].partition(": ")[::2] for line in lines[:2]] == [
        ("node 1", "DISK NEARLY FULL"), ("node 2", "DISK NEARLY FULL"),
    ]  # fmt: skip
    assert "SLOW DISK" in lines[2] and "DAMAGE NOT REPAIRED, 2" in lines[3]
    assert "node 3: 2 replicas" in lines[4] and "stop no other node" in lines[4]
    assert len(lines) == 5
    lines = cluster_view.disk_lines(cluster_view.merge_nodes({1: view(nodes=full)}, []))
    assert lines[-1].startswith("no node has room: sends are refused with 503")


def test_status_prints_what_disks_need(capsys: pytest.CaptureFixture[str]) -> None:
    full = NodeInfo(make_node_id(1, 2), "h", 2, "z", True, NOW_MS, "", 2**30, read_only=True)
    shown: dict[str, Any] = {
        "endpoint": "e",
        "console": "c",
        **{name: [] for name in LISTS},
        "usage_round": None,
        **SOUND,
    }
    shown |= {"nodes": cluster_view.merge_nodes({1: view(nodes=[full])}, []), "feature_level": 2}
    status.print_status(shown, lambda rows: {})
    said = capsys.readouterr().out
    assert "node 2: DISK NEARLY FULL, 1.0 GiB free" in said and "no node has room" in said


async def test_node_that_is_closed_says_so_itself_and_what_that_costs() -> None:
    """Others know only that it has less than its reserve."""
    short = [NodeInfo(node, "h", node, "z", True, NOW_MS, "", 42 * 2**20, read_only=node < 3) for node in (1, 2, 3)]
    nodes = cluster_view.merge_nodes({1: view(nodes=short)}, [])
    told = {1: "penstock_node_disk_level 2.0", 2: "x_penstock_node_disk_level 2.0\npenstock_node_disk_level 1.0"}
    servers = [await metrics_server(text) for text in told.values()]
    ports = {f"node-{number}-metrics": port for number, (_, port) in enumerate(servers, 1)}
    await disk_levels.note_closed(State("c", "h", 1, 2, ports=ports), nodes)
    assert [node["disk_closed"] for node in nodes] == [True, False, False]
    lines = cluster_view.disk_lines(nodes)
    assert lines[0].startswith("node 1: DISK FULL, 42 MiB free") and "has a copy less" in lines[0]
    assert lines[1].startswith("node 2: DISK NEARLY FULL, 42 MiB free") and len(lines) == 2
    assert cluster_view.node_rows({"nodes": nodes, "partitions": []})[0][6] == "42 MiB"
    for server, _ in servers:
        server.close()
    await disk_levels.note_closed(State("c", "h", 1, 2), nodes)
    assert not any(node["disk_closed"] for node in nodes)


async def metrics_server(text: str) -> tuple[asyncio.Server, int]:
    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(f"HTTP/1.0 200 OK\r\n\r\n{text}\n".encode())
        await writer.drain()
        writer.close()

    server = await asyncio.start_server(answer, "127.0.0.1", 0)
    return server, server.sockets[0].getsockname()[1]


def test_disk_without_any_room_is_shown_as_one() -> None:
    full = NodeInfo(1, "h", 1, "z", True, NOW_MS, "", 0, read_only=True)
    unknown = NodeInfo(2, "h", 2, "z", True, NOW_MS)
    nodes = cluster_view.merge_nodes({1: view(nodes=[full, unknown])}, [])
    assert [row[6] for row in cluster_view.node_rows({"nodes": nodes, "partitions": []})] == ["0 MiB", "-"]


def levels_shown(level: int, *speaks: tuple[int, int], down: int = 0) -> list[str]:
    nodes = [
        NodeInfo(node, "h", node, "z", node != down, NOW_MS, levels=(1, highest, allowed))
        for node, (highest, allowed) in enumerate(speaks, 1)
    ]
    return cluster_view.level_lines(
        {"feature_level": level, "nodes": cluster_view.merge_nodes({9: view(nodes=nodes)}, [])}
    )


def test_level_of_the_cluster_comes_with_the_nodes_that_hold_it_and_why() -> None:
    assert levels_shown(2, (2, 2), (2, 2)) == ["feature level 2"]
    first, older, held = levels_shown(1, (2, 2), (1, 1), (2, 1))
    assert first == "feature level 1 of 2" and "node 2 speaks level 1 at most: upgrade it" in older
    assert "node 3 is held at level 1 by its operator: PENSTOCK_FEATURE_LEVEL_MAX=1" in held
    assert "node 1 is down: start it, or decommission it" in levels_shown(1, (2, 2), (2, 2), down=1)[1]
    (_, below) = levels_shown(2, (2, 2), (1, 1))
    assert "node 2 speaks level 1 at most and serves nobody: start a release of level 2" in below
    assert cluster_view.level_lines({"feature_level": None, "nodes": []}) == []


async def test_node_list_counts_replicas_and_leads_as_status_does(capsys: pytest.CaptureFixture[str]) -> None:
    rows = [
        PartitionInfo(0, 1, [1, 2], "cluster", 1, 1, NOW_MS, ""),
        PartitionInfo(7, 1, [2], "queue:7", 2, 1, NOW_MS, ""),
    ]
    info = ClusterInfo("c", 1, UP[:2], rows)
    views = {1: info, 2: info}
    shown = cluster_view.merge_nodes(views, cluster_view.merge_partitions(views))

    class Client:
        async def describe(self) -> ClusterInfo:
            return info

    state = State("c", "h", 1, 2)
    cluster: Any = node.Cluster(Installation(), state, cast("Any", Client()))
    assert await node.show(cluster, argparse.Namespace(json=True)) == 0
    listed = json.loads(capsys.readouterr().out)["nodes"]
    assert [(one["replicas"], one["leads"]) for one in listed] == [
        (one["replicas"], len(one["leads"])) for one in shown
    ] == [(1, 1), (2, 1)]  # fmt: skip


async def test_node_list_without_a_cluster_is_an_error_and_no_empty_table() -> None:
    """As after a majority was stopped: nodes that were started again know nobody yet."""

    class Client:
        async def describe(self) -> ClusterInfo:
            return ClusterInfo("c", 0, [], [])

    cluster: Any = node.Cluster(Installation(), State("c", "h", 1, 2), cast("Any", Client()))
    with pytest.raises(CommandError, match=r"is a majority up\? See ./penstock status"):
        await node.show(cluster, argparse.Namespace(json=True))


def test_last_words_come_with_when_they_were_written() -> None:
    not_up = {"log": "x.log", "last_words": ["told"], "last_words_at": time.time() - 300}
    assert (
        "(5 min), in x.log:" in status.last_words_lines(not_up)[0] and status.last_words_lines(not_up)[1] == "    told"
    )
    assert status.last_words_lines({**not_up, "last_words": []}) == [
        "  it has said nothing since it was started, in x.log"
    ]
