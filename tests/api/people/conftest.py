"""People under test: errands are done at once, hashes cost little."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from tests.api.people.visitor import Visitor, enrol, new_visitor


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
def hashes(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Every hash that was computed, by what it was for: `encode` or `verify`."""
    from api.people import passwords

    passwords._stand_in()
    made: list[str] = []
    for name in ("encode", "verify"):
        real = getattr(passwords.PersonPasswordHasher, name)

        def counted(*args: object, _name: str = name, _real: Callable[..., object] = real) -> object:
            made.append(_name)
            return _real(*args)

        monkeypatch.setattr(passwords.PersonPasswordHasher, name, counted)
    return made


@pytest.fixture
def visitor(db: None) -> Visitor:
    """A visitor without a session."""
    return new_visitor()


@pytest.fixture
def ann(db: None) -> Visitor:
    """Signed in, owner of an account."""
    return enrol("ann@example.com")


@pytest.fixture
def bob(db: None) -> Visitor:
    return enrol("bob@example.com")
