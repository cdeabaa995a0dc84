"""Feature levels: who can talk with whom, and who fits a cluster."""

from __future__ import annotations

import msgspec
import pytest

from storage_nodes.protocol.levels import FEATURE_LEVEL, FEATURE_LEVEL_MIN, Speaks, fits_cluster, spoken
from storage_nodes.protocol.messages import Hello
from storage_nodes.protocol.peer_messages import PeerHello


@pytest.mark.parametrize("other", [Speaks(1, 1, 1), Speaks(2, 3, 3), Speaks(1, 9, 9)])
def test_processes_whose_ranges_meet_talk(other: Speaks) -> None:
    assert Speaks(1, 2, 2).objection(other, "node 2") == ""


def test_processes_whose_ranges_do_not_meet_are_told_both_of_them() -> None:
    text = Speaks(1, 2, 2).objection(Speaks(3, 4, 4), "node 2")
    assert "node 2 speaks feature levels 3 to 4" in text and "1 to 2" in text


def test_node_below_the_level_of_its_cluster_is_told_what_to_start() -> None:
    assert fits_cluster(Speaks(1, 2, 1), 2, "node 3") == ""
    text = fits_cluster(Speaks(1, 1, 1), 2, "node 3")
    assert "the cluster is at feature level 2, and node 3 speaks 1 at most" in text and "start a release" in text
    assert "a release was skipped" in fits_cluster(Speaks(3, 4, 4), 2, "node 3")


def test_setting_of_operators_lowers_what_is_allowed_and_nothing_else() -> None:
    assert spoken() == Speaks(FEATURE_LEVEL_MIN, FEATURE_LEVEL, FEATURE_LEVEL)
    assert spoken(1) == Speaks(FEATURE_LEVEL_MIN, FEATURE_LEVEL, 1)
    assert spoken(99).allowed == FEATURE_LEVEL


def test_greeting_without_levels_is_one_of_the_first() -> None:
    peer = msgspec.msgpack.decode(msgspec.msgpack.encode(["c", 2, 5]), type=PeerHello)
    client = msgspec.msgpack.decode(msgspec.msgpack.encode(["c", "front end", 0]), type=Hello)
    assert peer.levels == (1, 1, 1) and client.levels == (1, 1)
