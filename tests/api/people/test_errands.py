"""Errands: done in order by a thread of their own, bounded, and silent about what they are for."""

from __future__ import annotations

import threading

import pytest

from api.people import limits
from api.people.errands import Errands
from api.people.errors import PeopleError


def test_errands_are_done_in_order_after_one_that_fails(caplog: pytest.LogCaptureFixture) -> None:
    done: list[int] = []
    errands = Errands()

    def fail() -> None:
        raise ValueError("cannot mail pstc_secret to ann@example.com")

    for errand in (lambda: done.append(1), fail, lambda: done.append(2)):
        errands.leave(errand)
    errands.join()
    assert done == [1, 2]
    logged = caplog.text
    assert "errand_failed" in logged and "ValueError" in logged
    assert "pstc_" not in logged and "ann@" not in logged


def test_errand_is_refused_where_too_many_wait(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "ERRANDS_WAITING_MAX", 2)
    errands, begun, go_on = Errands(), threading.Event(), threading.Event()

    def wait() -> None:
        begun.set()
        go_on.wait(10)

    errands.leave(wait)
    assert begun.wait(10)
    errands.leave(lambda: None)
    errands.leave(lambda: None)
    with pytest.raises(PeopleError) as caught:
        errands.leave(lambda: None)
    assert (caught.value.status, caught.value.code) == (503, "service-busy")
    go_on.set()
    errands.join()
    errands.leave(lambda: None)
