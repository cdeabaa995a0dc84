"""Pages under Django's client, with a data plane that answers as a test says."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest

from tests.console.browsing import Browser, member, owner
from tests.console.pictures import browsing, chromium_path
from tests.console.serving import ServedPages, serve_account, server
from tests.console.variants import Variant, holding
from tests.support.control_plane import set_up, stop_threads
from tests.support.scripted_storage import ScriptedStorage

set_up()


@pytest.fixture(autouse=True)
def errands_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    from api.people import errands

    monkeypatch.setattr(errands, "leave", lambda errand: errand())


@pytest.fixture(autouse=True)
def cheap_hashes(monkeypatch: pytest.MonkeyPatch) -> None:
    from api.people import passwords

    monkeypatch.setattr(passwords.PersonPasswordHasher, "memory_cost", 16)
    monkeypatch.setattr(passwords.PersonPasswordHasher, "time_cost", 1)


@pytest.fixture
def storage(monkeypatch: pytest.MonkeyPatch) -> ScriptedStorage:
    """Queues are reconciled in it as soon as their desired state is committed."""
    from api.queues import actions, spreading
    from workers.lifecycle.reconciling import reconcile_queue

    scripted = ScriptedStorage()
    monkeypatch.setattr(spreading, "scheduled_count", scripted.scheduled_count)
    monkeypatch.setattr(actions, "send_hint", lambda hint, queue_id: reconcile_queue(queue_id, scripted))
    return scripted


class DataPlaneScript:
    """What the front end was asked, and what it says: `answers` by the end of the path."""

    def __init__(self) -> None:
        self.asked: list[tuple[str, str, str, Any]] = []
        self.answers: dict[str, Any] = {}

    def call(self, who: Any, method: str, target: str, content: Any) -> Any:
        self.asked.append((who.name, method, target, content))
        if target == "/v1/message-counts":
            zero = dict.fromkeys(("waiting", "in_flight", "delayed", "scheduled", "groups", "parked_groups"), 0)
            more = {"oldest_sent_ms": None, "dead_lettered": 0, "duplicates": 0, "expired": 0, "purged": 0}
            return {"queues": {name: {**zero, **more, **self.answers.get(name, {})} for name in content["queues"]}}
        path = target.partition("?")[0]
        answer = next(one for tail, one in self.answers.items() if path.endswith(tail))
        if isinstance(answer, Exception):
            raise answer
        return answer


@pytest.fixture(autouse=True)
def data_plane(monkeypatch: pytest.MonkeyPatch) -> DataPlaneScript:
    from console.data_plane import DataPlane

    script = DataPlaneScript()

    def call(self: Any, method: str, target: str, content: Any) -> Any:
        return script.call(self._who, method, target, content)

    monkeypatch.setattr(DataPlane, "_call", call)
    return script


@pytest.fixture
def ann(db: None) -> Browser:
    """Signed in, owner of an account."""
    return owner("ann@example.com")


@pytest.fixture
def join(db: None) -> Callable[[Browser, str], Browser]:
    return member


@pytest.fixture
def served(transactional_db: None, storage: ScriptedStorage) -> Iterator[ServedPages]:
    """Pages for a real browser, of an account `shop`."""
    if chromium_path() is None:
        pytest.fail("there is no Chromium; install it with: sudo apt-get install -y chromium fonts-dejavu-core")
    with server() as url:
        yield serve_account(url, "shop")


@pytest.fixture(scope="module")
def browser_beside_rows() -> Iterator[Any]:
    """One for all tests of a file that read and write rows: starting a browser costs as much as a flow in it.

    Playwright leaves its event loop marked as the running one of this thread, so Django would take what tests do with
    rows for the work of a coroutine.
    """
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("DJANGO_ALLOW_ASYNC_UNSAFE", "true")
        with browsing() as found:
            yield found


@pytest.fixture
def variant(request: pytest.FixtureRequest) -> Iterator[Variant]:
    """That of a test which is marked as a flow."""
    with holding(request.param) as held:
        yield held


@pytest.fixture(scope="session", autouse=True)
def threads_end_before_the_database(django_db_setup: None, django_db_blocker: Any) -> Iterator[None]:
    yield
    with django_db_blocker.unblock():
        stop_threads()
