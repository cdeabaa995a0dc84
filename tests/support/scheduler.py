"""What runs beside what: the scheduler of `--dist loadgroup`, over the groups of `tests/support/load_groups.py`.

A heavy group runs processes of its own. While a worker is on such a group the others take light ones, so that times are
not judged on cores that another cluster keeps busy. Heavy groups meet only when no light one is left.
"""

from __future__ import annotations

from collections.abc import Iterable

from xdist.scheduler import LoadGroupScheduling
from xdist.workermanage import WorkerController

from tests.support.load_groups import group_of, is_heavy, rank_of


class HeavyGroupsApart(LoadGroupScheduling):
    def _split_scope(self, nodeid: str) -> str:
        return group_of(nodeid)

    def _assign_work_unit(self, node: WorkerController) -> None:
        """The parent hands out what is first in `workqueue`."""
        self.workqueue.move_to_end(next_group(self.workqueue, self._has_heavy_company(node)), last=False)
        super()._assign_work_unit(node)

    def _has_heavy_company(self, node: WorkerController) -> bool:
        return any(
            is_heavy(group) and False in done.values()
            for other, groups in self.assigned_work.items()
            if other is not node
            for group, done in groups.items()
        )


def next_group(waiting: Iterable[str], heavy_company: bool) -> str:
    """Beside a heavy group a light one, where there is one; else a heavy one first. Then by rank, then as they came."""
    return min(waiting, key=lambda group: (is_heavy(group) == heavy_company, rank_of(group)))
