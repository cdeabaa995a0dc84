"""Any sequence of operations with power losses in between, against a model (docs/storage/log.md; R5, R20, R22)."""

from __future__ import annotations

import random

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.storage_nodes.log.faulty_disk import PowerLost
from tests.storage_nodes.log.modelled_log import OPERATIONS, PARTITIONS, ModelledLog

STEPS = st.lists(
    st.tuples(st.sampled_from(OPERATIONS), st.integers(1, PARTITIONS), st.integers(0, 400)), min_size=20, max_size=150
)


@settings(max_examples=60, deadline=None, suppress_health_check=list(HealthCheck))
@given(STEPS, st.integers(0, 2**32))
def test_log_any_operations_and_crashes_equals_the_model_at_the_last_synced_group(
    steps: list[tuple[str, int, int]], seed: int
) -> None:
    modelled = ModelledLog(random.Random(seed))
    for partition in range(1, PARTITIONS + 1):
        modelled.create(partition, 0)
    for operation, partition, n in steps:
        if operation == "crash":
            modelled.disk.crash_after = 1 + n % 25
            continue
        try:
            getattr(modelled, operation)(partition, n)
        except PowerLost:
            modelled.restart(power_loss=bool(n % 3), crash_after=1 + n % 12)
    modelled.disk.crash_after = None
    modelled.commit(1, 0)
    modelled.restart(power_loss=True)
