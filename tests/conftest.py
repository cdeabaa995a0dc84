"""What all tests share: a running installation for those that ask for one, workers, and how hypothesis draws.

The suite draws the same examples every time, so that what fails failed before, too. To look for new ones:

    ./penstock test --hypothesis-profile=explore --hypothesis-seed=N tests/storage_nodes
"""

from __future__ import annotations

import os
import sys
from typing import Any

import pytest
import structlog
from hypothesis import settings

from tests.support import garbage
from tests.support.control_plane import VARIABLES
from tests.support.failures import FailuresAtOnce
from tests.support.installation import installation, webhook_receiver
from tests.support.load_groups import check_groups
from tests.support.postgres import start_database

__all__ = ["installation", "webhook_receiver"]

# The suite starts hundreds of interpreters, here and in its children: each would compile all that it imports.
os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
sys.dont_write_bytecode = False

# Nodes and clients of unit tests do without certificates, as they have to say. Whole installations have them.
os.environ.setdefault("PENSTOCK_INNER_TLS", "off")

garbage.leave_off()

GIVEN = {name: os.environ[name] for name in VARIABLES if name in os.environ}

settings.register_profile("suite", deadline=None, derandomize=True)
settings.register_profile("explore", deadline=None)
settings.load_profile("suite")


@pytest.hookimpl(trylast=True)
def pytest_configure(config: pytest.Config) -> None:
    """Behind the plugin that makes the reporter."""
    reporter = config.pluginmanager.get_plugin("terminalreporter")
    if reporter is not None:
        config.pluginmanager.register(FailuresAtOnce(reporter))


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Told and not refused: such a test is right, it only costs more than it need."""
    try:
        check_groups(items)
    except pytest.UsageError as error:
        config.issue_config_time_warning(pytest.PytestWarning(str(error)), 2)


def pytest_collection_finish() -> None:
    garbage.keep_what_is_there()


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup() -> None:
    """A module's logger that keeps what the settings of Django configured would write past a later `capture_logs`."""
    structlog.configure(cache_logger_on_first_use=False)


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_setupnodes() -> None:
    """Workers inherit what was given, and not what the conftest of a folder has put into the environment here."""
    for name in VARIABLES:
        os.environ.pop(name, None)
    os.environ.update(GIVEN)


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> Any:
    """None, which means the plugin's own, where another way of sharing tests is asked for (`load` is `-n` alone)."""
    if config.getoption("dist") not in ("load", "loadgroup"):
        return None
    from tests.support.scheduler import HeavyGroupsApart

    return HeavyGroupsApart(config, log)


@pytest.fixture(scope="session")
def django_db_modify_db_settings(django_db_modify_db_settings_parallel_suffix: None) -> None:
    """The server is there for the first test that needs a database, and not before."""
    if start_database():
        from django.test import TransactionTestCase

        from tests.support.emptying import empty_tables

        TransactionTestCase._fixture_teardown = empty_tables  # type: ignore[attr-defined]
