"""A session starts only where it can be heard."""

from __future__ import annotations

import os
import resource

import pytest

from workers.spark_jobs.limits import SELECT_DESCRIPTORS_MAX, SESSION_DESCRIPTORS_MAX
from workers.spark_jobs.session import TooManyDescriptors, check_descriptors, spark_session


def test_session_is_refused_where_its_jvm_would_wait_for_ever() -> None:
    """py4j's server of a process with many open files accepts no call, and says so nowhere."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (min(hard, 2 * SELECT_DESCRIPTORS_MAX), hard))
    held = [os.open(os.devnull, os.O_RDONLY)]
    try:
        while held[-1] < SELECT_DESCRIPTORS_MAX - SESSION_DESCRIPTORS_MAX - 1:
            held.append(os.open(os.devnull, os.O_RDONLY))
        check_descriptors()
        held.append(os.open(os.devnull, os.O_RDONLY))
        with pytest.raises(TooManyDescriptors, match="in a process of its own"), spark_session("refused"):
            pass
    finally:
        for descriptor in held:
            os.close(descriptor)
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
