"""I4, log matching: logs of one partition that share an entry (epoch, offset) share everything before it.

The verdict depends on the logs and on how much of them is committed, and on nothing else. So logs that have not changed
since they were found to match are not compared again: `Mirror.version` grows with every change of a log.
"""

from __future__ import annotations

from itertools import combinations

from storage_nodes.log.record_batch import read_header
from tests.simulation.ledger import Mirror

# Before the end of what all logs hold and what is committed: `I4 committed logs match` looks at the rest.
SETTLED_ENTRIES = 50


class LogMatching:
    def __init__(self) -> None:
        # partition -> what matched: (node, its log, version) of every log, and how many entries were committed.
        self._matched: dict[int, tuple[list[tuple[int, Mirror, int]], int]] = {}

    def look(self, partition: int, mirrors: list[tuple[int, Mirror]], committed: int) -> str:
        """What does not match in `mirrors`, (node, its log); empty when all is well. `committed` is in entries."""
        inputs = [(node_id, mirror, mirror.version) for node_id, mirror in mirrors], committed
        if self._matched.get(partition) == inputs:
            return ""
        settled = min(committed, *(len(mirror.batches) for _, mirror in mirrors)) if mirrors else 0
        for (a, mine), (b, theirs) in combinations(mirrors, 2):
            shared = _shared_beyond_a_difference(mine.batches, theirs.batches, max(0, settled - SETTLED_ENTRIES))
            if shared:
                return f"nodes {a} and {b}, partition {partition}, at {sorted(shared)}"
        self._matched[partition] = inputs
        return ""


def _shared_beyond_a_difference(mine: list[bytes], theirs: list[bytes], at: int) -> set[tuple[int, int]]:
    """Places that both logs have an entry for from their first difference on, which is looked for from `at` on."""
    end = min(len(mine), len(theirs))
    if mine[at:end] == theirs[at:end]:
        return set()  # one is the beginning of the other
    while mine[at] == theirs[at]:
        at += 1
    return {_place(batch) for batch in mine[at:]} & {_place(batch) for batch in theirs[at:]}


def _place(batch: bytes) -> tuple[int, int]:
    header = read_header(batch)
    return header.epoch, header.end_offset
