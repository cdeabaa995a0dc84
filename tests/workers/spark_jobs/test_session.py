"""A session starts only where it can be heard."""

from __future__ import annotations

import os
import resource

import pytest

from workers.spark_jobs.limits import SELECT_DESCRIPTORS_MAX, SESSION_DESCRIPTORS_MAX
from workers.spark_jobs.session import TooManyDescriptors, check_descriptors, settings, spark_session


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


@pytest.mark.parametrize("form", ["", "_FILE"])
def test_executors_are_given_the_certificate_under_either_name(monkeypatch: pytest.MonkeyPatch, form: str) -> None:
    for name in ("PENSTOCK_INNER_CA", "PENSTOCK_INNER_CERTIFICATE", "PENSTOCK_INNER_KEY"):
        monkeypatch.setenv(f"{name}{form}", f"/certificates/{name}")
        monkeypatch.delenv(f"{name}{'' if form else '_FILE'}", raising=False)
    given = settings("127.0.0.1", "/scratch", 768, 1)
    executors = {name.removeprefix("spark.executorEnv."): said for name, said in given.items() if "executorEnv" in name}
    assert executors["PENSTOCK_INNER_KEY" + form] == "/certificates/PENSTOCK_INNER_KEY"
    assert {name for name in executors if name.startswith("PENSTOCK_INNER_C")} == {
        f"PENSTOCK_INNER_CA{form}", f"PENSTOCK_INNER_CERTIFICATE{form}",
    }  # fmt: skip
