"""Storage nodes with other bounds than in earnest, so that tests that wait for one, or fill one, take seconds."""

from __future__ import annotations

from storage_nodes.limits import MIB


def node_with(**bounds: int) -> str:
    """A program for `python -c`: a node whose limits of these names are set before anything reads them."""
    settings = "\n".join(f"limits.{name} = {value}" for name, value in bounds.items())
    run = 'runpy.run_module("storage_nodes", run_name="__main__")'
    return f"import runpy\nfrom storage_nodes import limits\n{settings}\n{run}\n"


# Leadership goes home that soon.
HOMING_MS = 1_500
HOMING_NODE = node_with(BALANCE_INTERVAL_MS=250, BALANCE_LEVEL_MS_MIN=HOMING_MS)
# A follower that was away is soon too far behind for the log.
SMALL_WAL_FILE_BYTES = 16 * MIB
SMALL_LAGGARD_BYTES_MAX = 2 * SMALL_WAL_FILE_BYTES
SMALL_FILES_NODE = node_with(
    WAL_FILE_BYTES=SMALL_WAL_FILE_BYTES,
    SEGMENT_BYTES_MAX=SMALL_WAL_FILE_BYTES,
    LAGGARD_BYTES_MAX=SMALL_LAGGARD_BYTES_MAX,
)
