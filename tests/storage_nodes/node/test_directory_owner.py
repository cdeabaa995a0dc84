"""A directory is used by the node that made it, and by no other."""

from __future__ import annotations

import errno
import os
import subprocess
import sys
import threading
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from storage_nodes import __main__ as storage_node
from storage_nodes.__main__ import EXIT_CONFIG
from storage_nodes.ids import make_node_id
from storage_nodes.log.disk import OsDisk
from storage_nodes.log.errors import DirectoryInUseError, UnreadableError
from storage_nodes.node.directory_owner import OWNER_NAME, NotOurDirectory, claim_directory

ROOT = Path(__file__).parents[3]


def test_new_directory_is_taken_and_found_again(tmp_path: Path) -> None:
    directory = tmp_path / "nodes" / "3"
    for _ in range(2):
        claim_directory(OsDisk(), str(directory), "c", 3)
    assert (directory / OWNER_NAME).read_text() == "c/3\n" and sorted(os.listdir(directory)) == ["LOCK", OWNER_NAME]


@pytest.mark.parametrize("cluster_id, node_id", [("c", 2), ("d", 3), ("c", make_node_id(2, 3)), ("c/3", 3)])
def test_directory_of_another_node_is_refused_and_left_alone(tmp_path: Path, cluster_id: str, node_id: int) -> None:
    """Volumes that were swapped, another cluster, a cluster that got another number."""
    claim_directory(OsDisk(), str(tmp_path), "c", 3)
    with pytest.raises(NotOurDirectory, match=r"holds the data of node c/3, and this is node"):
        claim_directory(OsDisk(), str(tmp_path), cluster_id, node_id)
    assert (tmp_path / OWNER_NAME).read_text() == "c/3\n"


def test_data_of_nobody_are_refused_until_somebody_says_whose_they_are(tmp_path: Path) -> None:
    (tmp_path / "manifest-0000000000000001").write_bytes(b"")
    with pytest.raises(NotOurDirectory, match=r"write the line c/3 into"):
        claim_directory(OsDisk(), str(tmp_path), "c", 3)
    assert OWNER_NAME not in os.listdir(tmp_path)
    (tmp_path / OWNER_NAME).write_text("c/3")
    claim_directory(OsDisk(), str(tmp_path), "c", 3)


def test_process_with_the_directory_of_another_node_stops_before_it_opens_it(tmp_path: Path) -> None:
    claim_directory(OsDisk(), str(tmp_path), "c", 1)
    environment = {
        "PENSTOCK_CLUSTER_ID": "c", "PENSTOCK_NODE_ID": "2.1", "PENSTOCK_NODE_DIR": str(tmp_path),
        "PENSTOCK_NODE_LISTEN": "127.0.0.1:1", "PENSTOCK_STORAGE_NODES": "2.1=127.0.0.1:1", "PENSTOCK_INNER_TLS": "off",
    }  # fmt: skip
    command = [sys.executable, "-m", "storage_nodes"]
    ended = subprocess.run(command, env=os.environ | environment, cwd=ROOT, capture_output=True, timeout=60)
    assert ended.returncode == EXIT_CONFIG and b"holds the data of node c/1, and this is node c/2.1" in ended.stderr
    assert sorted(os.listdir(tmp_path)) == ["LOCK", OWNER_NAME]


def configure(directory: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in {
        "CLUSTER_ID": "c", "NODE_ID": "1", "NODE_DIR": str(directory), "NODE_LISTEN": "127.0.0.1:1",
        "STORAGE_NODES": "1=127.0.0.1:1", "INNER_TLS": "off",
    }.items():  # fmt: skip
        monkeypatch.setenv(f"PENSTOCK_{name}", value)
    monkeypatch.setattr(storage_node, "configure_logging", lambda *_: None)
    monkeypatch.setattr(storage_node, "serve_metrics", lambda *_: None)


def test_owner_that_cannot_be_read_stops_the_process_with_the_next_step(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def claim(*_: object) -> None:
        raise UnreadableError(str(tmp_path / OWNER_NAME), 0, OSError(errno.EIO, "Input/output error"))

    configure(tmp_path, monkeypatch)
    monkeypatch.setattr(storage_node, "claim_directory", claim)
    assert storage_node.main() == storage_node.EXIT_DATA
    assert "give the node an empty directory" in capsys.readouterr().out


@pytest.mark.parametrize("number", [errno.ENOSPC, errno.EDQUOT])
@pytest.mark.parametrize("where", ["claim_directory", "StorageNode"])
def test_full_disk_stops_the_start_with_a_line_and_a_status_of_its_own(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], where: str, number: int
) -> None:
    """Where its log is on the same disk, the status alone says it."""

    def full(*_: object) -> None:
        raise OSError(number, os.strerror(number))

    configure(tmp_path, monkeypatch)
    monkeypatch.setattr(storage_node, where, full)
    assert storage_node.main() == storage_node.EXIT_DISK_FULL
    said = capsys.readouterr().out
    assert "disk full, cannot start" in said and str(tmp_path) in said and "free_bytes" in said
    monkeypatch.setattr(storage_node, "_log", SimpleNamespace(critical=lambda *_, **__: full()))
    assert storage_node.main() == storage_node.EXIT_DISK_FULL


@pytest.mark.parametrize("error, status", [(ValueError("bug"), 70), (UnreadableError("f", 0, OSError(5, "x")), 65)])
def test_process_that_must_end_does_also_where_its_log_takes_nothing_more(
    monkeypatch: pytest.MonkeyPatch, error: Exception, status: int
) -> None:
    def full(*_: object, **__: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    ended: list[int] = []
    monkeypatch.setattr(os, "_exit", ended.append)
    monkeypatch.setattr(storage_node, "_log", SimpleNamespace(critical=full))
    with pytest.raises(OSError, match="No space"):
        storage_node._stop_on_bug(cast("Any", None), {"exception": error})
    assert ended == [status]


def test_other_failure_of_the_disk_is_not_taken_for_a_full_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def failed(*_: object) -> None:
        raise OSError(errno.EIO, "Input/output error")

    configure(tmp_path, monkeypatch)
    monkeypatch.setattr(storage_node, "StorageNode", failed)
    with pytest.raises(OSError, match="Input/output"):
        storage_node.main()


@pytest.mark.parametrize("turn", range(20))
def test_of_two_that_come_at_once_one_has_it(tmp_path: Path, turn: int) -> None:
    start, refused = threading.Barrier(2), []

    def claim(node_id: int) -> None:
        start.wait()
        try:
            claim_directory(OsDisk(), str(tmp_path / "node"), "c", node_id)
        except (NotOurDirectory, DirectoryInUseError):
            refused.append(node_id)

    threads = [threading.Thread(target=claim, args=(node_id,)) for node_id in (1, 2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(refused) == 1 and (tmp_path / "node" / OWNER_NAME).read_text() == f"c/{3 - refused[0]}\n"
