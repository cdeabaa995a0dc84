"""Work without the broker: each worker finds rows with work due by itself, and does it.

    heard    an announcement of the database (api/changes.py): a look after WATCH_GRACE_MS, so that a hint which the
             broker carries comes first where there is one
    polled   a look every WATCH_INTERVAL_MS or so, for what makes no announcement: retries, moves, ticks of schedules
    done     a look when a piece of work has ended: the row may have a next step that is due

A look hands due rows to work pools (`Lane`), one for each kind of work, with threads of their own: long moves hold up
no new queue. That several workers see the same row is harmless: the row's claim lets one of them work
(api/queues/lifecycle.py).
"""

from __future__ import annotations

import random
import threading
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from datetime import datetime
from time import monotonic

import structlog

from workers import limits

_log = structlog.get_logger(__name__)

# (rows with work due, when the next of the others is due)
Due = tuple[list[int], datetime | None]


class Lane:
    """Work of one kind: each row at most once at a time in this process, by a few threads.

    In turns: rows come in an order that is fair to those who wait, so no more of them are taken on than begin at once.
    """

    def __init__(
        self,
        name: str,
        threads: int,
        due: Callable[[], Due],
        work: Callable[[int], object],
        ended: Callable[[], None],
        in_turns: bool = False,
    ) -> None:
        self.name = name
        self._in_turns = in_turns
        self._rows_max = threads if in_turns else limits.LANE_ROWS_MAX
        self.due = due
        self._work = work
        self._ended = ended
        self._pool = ThreadPoolExecutor(threads, thread_name_prefix=name)
        self._lock = threading.Lock()
        self._taken: set[int] = set()

    def submit(self, row_ids: Iterable[int]) -> None:
        """Those that are not at work already, as many as the pool takes. The others are for other workers, or later."""
        chosen = list(row_ids)
        if not self._in_turns:
            random.shuffle(chosen)  # else all workers would begin with the same row
        with self._lock:
            for row_id in chosen:
                if len(self._taken) >= self._rows_max:
                    break
                if row_id not in self._taken:
                    self._taken.add(row_id)
                    self._pool.submit(self._run, row_id)

    def close(self) -> None:
        """What has not begun does not begin; what has is waited for."""
        self._pool.shutdown(wait=True, cancel_futures=True)

    def _run(self, row_id: int) -> None:
        from django.db import close_old_connections

        try:
            self._work(row_id)
        except Exception:
            # The row stays pending: whichever worker looks next tries it again.
            _log.exception("work_failed", lane=self.name, row_id=row_id)
        finally:
            close_old_connections()
            with self._lock:
                self._taken.discard(row_id)
            self._ended()


class Watcher:
    """The thread that looks, and the work pools."""

    def __init__(self, now: Callable[[], datetime]) -> None:
        self._now = now
        self._lanes: list[Lane] = []
        self._woken = threading.Event()
        self._stopping = threading.Event()
        self._failures = 0
        self._thread = threading.Thread(target=self._run, name="watcher", daemon=True)

    def add(
        self,
        name: str,
        threads: int,
        due: Callable[[], Due],
        work: Callable[[int], object],
        follows: bool = True,
        in_turns: bool = False,
    ) -> None:
        """`follows`: the next step of ended work may be due at once."""
        self._lanes.append(Lane(name, threads, due, work, self.wake if follows else _nothing, in_turns))

    def start(self) -> None:
        self._thread.start()

    def wake(self) -> None:
        """There may be work. Returns at once."""
        self._woken.set()

    def stop(self) -> None:
        """Ends the looks, then waits for the work under way."""
        self._stopping.set()
        self._woken.set()
        self._thread.join()
        for lane in self._lanes:
            lane.close()

    def _run(self) -> None:
        pause_s = 0.0
        while not self._stopping.is_set():
            if self._woken.wait(pause_s):
                self._stopping.wait(limits.WATCH_GRACE_MS * random.uniform(1.0, 1.5) / 1000)
            self._woken.clear()
            if not self._stopping.is_set():
                pause_s = self._look_safely()

    def _look_safely(self) -> float:
        from django.db import Error, close_old_connections

        began_s = monotonic()
        try:
            pause_s = self.look()
        except (Error, OSError) as error:
            # The database is away; the next looks are rarer, and one line tells of them all.
            if not self._failures:
                _log.warning("database_away", error=type(error).__name__)
            self._failures += 1
            return self._retry_s()
        except Exception:
            # A defect of ours must not end the thread: nothing would be found while the broker is away.
            _log.exception("look_failed")
            self._failures += 1
            return self._retry_s()
        finally:
            close_old_connections()
        if self._failures:
            _log.info("database_back", looked_ms=int((monotonic() - began_s) * 1000))
            self._failures = 0
        return pause_s

    def _retry_s(self) -> float:
        return min(0.5 * 2**self._failures, limits.WATCH_RETRY_S_MAX) * random.uniform(0.5, 1.0)

    def look(self) -> float:
        """Hand out what is due; seconds until the next look, which is earlier where a row comes due before it."""
        pause_s = limits.WATCH_INTERVAL_MS * random.uniform(0.75, 1.25) / 1000
        for lane in self._lanes:
            row_ids, coming = lane.due()
            lane.submit(row_ids)
            if coming is not None:
                wait_s = (coming - self._now()).total_seconds() + limits.WATCH_GRACE_MS / 1000
                pause_s = min(pause_s, max(wait_s, limits.WATCH_GRACE_MS / 1000))
        return pause_s


def _nothing() -> None:
    return


_lock = threading.Lock()
_watcher: Watcher | None = None


def start_watcher() -> Watcher:
    """The worker's own. Needs Django and the storage client."""
    global _watcher
    from api import clock
    from api.queues import lifecycle, moving
    from api.queues.readiness import announcements
    from workers.cron.firing import hand_over
    from workers.lifecycle.reconciling import reconcile_queue
    from workers.moves.slices import move_slice
    from workers.storage import storage

    with _lock:
        if _watcher is None:
            grace_ms = limits.WATCH_GRACE_MS
            _watcher = Watcher(clock.now)
            _watcher.add(
                "lifecycle",
                limits.LIFECYCLE_THREADS,
                lambda: lifecycle.due_queues(grace_ms),
                lambda row_id: reconcile_queue(row_id, storage()),
            )
            _watcher.add(
                "moves",
                limits.MOVE_THREADS,
                lambda: moving.due_moves(0),
                lambda row_id: move_slice(row_id, storage()),
                in_turns=True,
            )
            # Not a row: one piece of work that finds its own, at every look.
            _watcher.add("cron", 1, lambda: ([0], None), lambda _: hand_over(storage()), follows=False)
            announcements.hear_all(_watcher.wake)
            _watcher.start()
        return _watcher


def wake_watcher() -> None:
    """A row may have a next step that is due."""
    watcher = _watcher
    if watcher is not None:
        watcher.wake()


def stop_watcher() -> None:
    global _watcher
    with _lock:
        watcher, _watcher = _watcher, None
    if watcher is not None:
        watcher.stop()
