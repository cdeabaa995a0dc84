"""Metrics of group commits, as a scrape shows them."""

from __future__ import annotations

from prometheus_client import CollectorRegistry, generate_latest

from storage_nodes.node.plain_metrics import GroupMetrics


def test_scrape_shows_how_many_groups_how_large_and_how_slow() -> None:
    metrics, registry = GroupMetrics(), CollectorRegistry()
    registry.register(metrics)
    for elapsed_s in (0.0001, 0.0002, 0.0004, 0.5, 9.0):
        metrics.note(100, elapsed_s)
    text = generate_latest(registry).decode()
    assert "penstock_node_group_commits_total 5.0" in text
    assert "penstock_node_wal_bytes_total 500.0" in text
    assert 'penstock_node_sync_seconds_bucket{le="0.0002"} 2.0' in text
    assert 'penstock_node_sync_seconds_bucket{le="0.0005"} 3.0' in text
    assert 'penstock_node_sync_seconds_bucket{le="0.5"} 4.0' in text
    assert 'penstock_node_sync_seconds_bucket{le="+Inf"} 5.0' in text
    assert "penstock_node_sync_seconds_count 5.0" in text
    assert "penstock_node_sync_seconds_sum 9.50" in text
