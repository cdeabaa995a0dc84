"""Which tests run on one worker, in order, where the suite runs on several (pytest-xdist).

A file is a group of its own, unless `GROUPS` puts it into a bigger one: tests that share what is started once a session
(a running installation, Spark, a database), and those that judge times on processes of their own.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

import pytest


class LoadGroup(NamedTuple):
    """`prefixes` of paths, of which the longest decides. Tests that use one of `fixtures` (with the module that defines
    them) must be in such a group.

    `heavy`: it runs processes of its own beside the worker.
    """

    name: str
    prefixes: tuple[str, ...]
    fixtures: tuple[str, ...]
    heavy: bool = True


CLUSTERS = (
    "cluster", "small_cluster", "shared_cluster", "shared_small_cluster", "homing_cluster", "small_files_cluster",
)  # fmt: skip
DATABASE = "pytest_django.fixtures.django_db_setup"
# In the order in which they begin: what judges times first, then the longest first, so that workers end together.
GROUPS = (
    LoadGroup(
        "storage-nodes",
        (
            "tests/storage_nodes/node/test_acks_between_nodes.py",
            "tests/storage_nodes/node/test_leases_between_nodes.py",
            "tests/storage_nodes/node/test_older_directory.py",
            "tests/storage_nodes/node/test_clocks_of_nodes.py",
            "tests/storage_nodes/node/test_cluster_of_nodes.py",
            "tests/storage_nodes/node/test_consumer_groups_of_nodes.py",
            "tests/storage_nodes/node/test_contract_",
            "tests/storage_nodes/node/test_damage_repair.py",
            "tests/storage_nodes/node/test_disk_care.py",
            "tests/storage_nodes/node/test_failover.py",
            "tests/storage_nodes/node/test_fair_between_nodes.py",
            "tests/storage_nodes/node/test_fields_of_later_releases.py",
            "tests/storage_nodes/node/test_fifo_between_nodes.py",
            "tests/storage_nodes/node/test_idle_memory.py",
            "tests/storage_nodes/node/test_leader_that_stops.py",
            "tests/storage_nodes/node/test_leadership_moves.py",
            "tests/storage_nodes/node/test_many_partitions.py",
            "tests/storage_nodes/node/test_membership_of_nodes.py",
            "tests/storage_nodes/node/test_metrics_of_nodes.py",
            "tests/storage_nodes/node/test_mixed_versions_of_nodes.py",
            "tests/storage_nodes/node/test_moves_between_nodes.py",
            "tests/storage_nodes/node/test_repeats_between_nodes.py",
            "tests/storage_nodes/node/test_retired_partitions.py",
            "tests/storage_nodes/node/test_scheduled_between_nodes.py",
            "tests/storage_nodes/node/test_snapshots_between_nodes.py",
            "tests/storage_nodes/node/test_unreadable_in_nodes.py",
            "tests/storage_nodes/node/test_usage_between_nodes.py",
            "tests/blackbox/test_short_",
        ),
        tuple(f"tests.storage_nodes.node.conftest.{name}" for name in CLUSTERS),
    ),
    # Three groups have an installation each, which costs a tenth of what they would take one after the other.
    LoadGroup(
        "installation",
        (
            "tests/e2e/",
            "tests/clients/test_boto3.py",
            "tests/clients/test_celery.py",
        ),
        ("tests.support.installation.installation",),
    ),
    # Schedules, meters and rounds of workers: mostly waiting.
    LoadGroup(
        "schedules",
        (
            "tests/e2e/test_billing.py",
            "tests/e2e/test_broker_away.py",
            "tests/e2e/test_operations.py",
            "tests/e2e/test_scheduled.py",
            "tests/e2e/test_usage_to_invoice.py",
        ),
        ("tests.support.installation.installation",),
    ),
    LoadGroup(
        "browser",
        (
            "tests/console/test_accessibility.py",
            "tests/console/test_browser.py",
            "tests/console/test_browser_passkeys.py",
            "tests/console/test_browser_queues.py",
            "tests/console/test_browser_reference.py",
            "tests/console/test_browser_sign_up.py",
            "tests/console/test_browser_webhooks.py",
        ),
        # They stand in the folder of the console, where every test has a database.
        ("tests.support.installation.installation", DATABASE),
    ),
    LoadGroup("spark", ("tests/workers/spark_jobs/",), ("tests.workers.spark_jobs.conftest.spark", DATABASE)),
    # Each starts what it changes, and shares nothing.
    LoadGroup("own-installations", ("tests/e2e/test_front_ends.py", "tests/e2e/test_storage_nodes_change.py"), ()),
    # One group also because of the order: tests that roll back come before those that empty the tables.
    LoadGroup("database", ("tests/api/", "tests/console/", "tests/workers/"), (DATABASE,), heavy=False),
)
# Light files that take longest begin first, so that none of them is left for the end.
LONG_FILES = ("tests/tidy/test_tools.py", "tests/simulation/test_simulation.py")

_BY_PREFIX = {prefix: group.name for group in GROUPS for prefix in group.prefixes}
_HEAVY = {group.name for group in GROUPS if group.heavy}
_RANKS = {name: rank for rank, name in enumerate([*(group.name for group in GROUPS), *LONG_FILES])}


def group_of(node_id: str) -> str:
    """The name of the group of a test: the path of its file where no bigger group has it."""
    path = node_id.partition("::")[0]
    prefixes = [prefix for prefix in _BY_PREFIX if path.startswith(prefix)]
    return _BY_PREFIX[max(prefixes, key=len)] if prefixes else path


def is_heavy(group: str) -> bool:
    return group in _HEAVY


def rank_of(group: str) -> int:
    """Lower begins earlier."""
    return _RANKS.get(group, len(_RANKS))


def check_groups(items: Iterable[pytest.Item]) -> None:
    """Raises UsageError for a test that would start once more what another worker has."""
    allowed: dict[str, set[str]] = {}
    for group in GROUPS:
        for fixture in group.fixtures:
            allowed.setdefault(fixture, set()).add(group.name)
    for item in items:
        for fixture in allowed.keys() & fixtures_of(item):
            if group_of(item.nodeid) not in allowed[fixture]:
                raise pytest.UsageError(
                    f"{item.nodeid} uses {fixture}: name its file in tests/support/load_groups.py,"
                    f" in the group {' or '.join(sorted(allowed[fixture]))}"
                )


def fixtures_of(item: pytest.Item) -> set[str]:
    """By the module that defines them: tests have fixtures of the same name with another meaning."""
    known = item._fixtureinfo.name2fixturedefs if isinstance(item, pytest.Function) else {}
    return {f"{definitions[-1].func.__module__}.{name}" for name, definitions in known.items()}
