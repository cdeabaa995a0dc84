"""The principals that a statement of a queue policy names, and whether a caller is one of them. Pure.

| written | names |
|---|---|
| `"*"`, `{"AWS": "*"}` | everyone; unsigned callers too, whom no front end serves |
| `{"AWS": "111122223333"}`, `{"AWS": "arn:aws:iam::111122223333:root"}` | the account |
| `{"AWS": "arn:aws:iam::A:user/path/name"}`, `...:role/path/name` | that user; that role and all its sessions |
| `{"AWS": "arn:aws:sts::A:assumed-role/role/session"}`, `...:federated-user/name` | that one session |
| `{"Service": "sns.amazonaws.com"}` | the service as caller |
| `{"AWS": "AIDA..."}`, `AROA...` | a user or role that was deleted; matches no caller |
| `{"Federated": "..."}` | an identity provider; matches no caller |
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from enum import Enum, auto
from typing import Any, NamedTuple

from frontend.authz.policy_error import PolicyError
from frontend.authz.policy_json import JsonObject, member_path
from frontend.authz.request_context import AWS_PARTITION, Caller, CallerKind

EVERYONE = "*"
_ACCOUNT_ID = re.compile(r"[0-9]{12}", re.ASCII)
_NAME = r"[A-Za-z0-9+=,.@_-]{1,64}"
_PATH = r"(?:[!-)+->@-~]{1,510}/)?"  # printable, without * and ?
_ARN = re.compile(
    rf"arn:(aws(?:-[a-z]+){{0,3}}):(?:iam::([0-9]{{12}}):(?:(root)|(?:user|role)/{_PATH}{_NAME})"
    rf"|sts::[0-9]{{12}}:(?:assumed-role/{_NAME}/{_NAME}|federated-user/{_NAME}))",
    re.ASCII,
)
_DELETED = re.compile(r"A(?:IDA|ROA)[A-Z0-9]{12,124}", re.ASCII)
_SERVICE = re.compile(r"[a-z0-9-]{1,63}(?:\.[a-z0-9-]{1,63}){1,6}", re.ASCII)
_FEDERATED = re.compile(r"[!-)+->@-~]{1,512}", re.ASCII)


class Fit(Enum):
    NONE = auto()
    ACCOUNT = auto()  # only through the account: the account must give the right on
    NAMED = auto()


class Principals(NamedTuple):
    """`names` are ARNs, `accounts` the ARNs of roots."""

    everyone: bool
    accounts: frozenset[str]
    names: frozenset[str]
    services: frozenset[str]
    entries_count: int

    def fit(self, caller: Caller) -> Fit:
        if self.everyone or self._names(caller):
            return Fit.NAMED
        if self.accounts and caller.account_id is not None and caller.account_arn in self.accounts:
            return Fit.ACCOUNT
        return Fit.NONE

    def spares(self, caller: Caller) -> bool:
        """Whether a Deny for all but these leaves the caller alone: it names the caller, not its account alone."""
        return self.everyone or self._names(caller)

    def _names(self, caller: Caller) -> bool:
        if caller.kind is CallerKind.ROOT:
            return caller.account_arn in self.accounts
        if caller.service_names:
            return not self.services.isdisjoint(caller.service_names)
        return caller.arn in self.names or caller.session_arn in self.names


def parse_principals(path: str, given: Any) -> Principals:
    """Raises PolicyError."""
    if given == EVERYONE and isinstance(given, str):
        return Principals(True, frozenset(), frozenset(), frozenset(), 1)
    if not isinstance(given, JsonObject):
        raise PolicyError(path, 'must be "*" or an object with AWS, Service or Federated')
    if given.repeated is not None:
        raise PolicyError(member_path(path, given.repeated), "stands twice")
    if not given:
        raise PolicyError(path, "is empty; must have AWS, Service or Federated")
    everyone, count = False, 0
    accounts: set[str] = set()
    names: set[str] = set()
    services: set[str] = set()
    for kind, entries in given.items():
        at = member_path(path, kind)
        check = _KINDS.get(kind)
        if check is None:
            raise PolicyError(at, f"no such kind of principal; there are {', '.join(_KINDS)}")
        for entry_path, entry in _entries(at, entries):
            count += 1
            check(entry_path, entry)
            if kind == "Service":
                services.add(entry)
            elif kind == "AWS" and entry == EVERYONE:
                everyone = True
            elif kind == "AWS":
                account = _account_of(entry)
                (names if account is None else accounts).add(account or entry)
    return Principals(everyone, frozenset(accounts), frozenset(names), frozenset(services), count)


def _entries(path: str, given: Any) -> Sequence[tuple[str, str]]:
    listed = given if isinstance(given, list) else [given]
    if not listed:
        raise PolicyError(path, "is empty; must have at least one entry")
    entries = []
    for index, entry in enumerate(listed):
        at = f"{path}[{index}]" if isinstance(given, list) else path
        if not isinstance(entry, str):
            raise PolicyError(at, "must be a string")
        entries.append((at, entry))
    return entries


def _account_of(entry: str) -> str | None:
    """The ARN of the account that an entry names as a whole."""
    if _ACCOUNT_ID.fullmatch(entry):
        return f"arn:{AWS_PARTITION}:iam::{entry}:root"
    match = _ARN.fullmatch(entry)
    return entry if match is not None and match[3] else None


def _check_aws(path: str, entry: str) -> None:
    if entry == EVERYONE or _ACCOUNT_ID.fullmatch(entry) or _ARN.fullmatch(entry) or _DELETED.fullmatch(entry):
        return
    if "*" in entry or "?" in entry:
        raise PolicyError(path, 'a principal takes no wildcards; only "*" alone is everyone')
    raise PolicyError(path, 'must be "*", twelve digits, or the ARN of an account, user, role or session')


def _check_service(path: str, entry: str) -> None:
    if _SERVICE.fullmatch(entry) is None:
        raise PolicyError(path, "must be the name of a service, like sns.amazonaws.com")


def _check_federated(path: str, entry: str) -> None:
    if _FEDERATED.fullmatch(entry) is None:
        raise PolicyError(path, "must be the name of a provider, without spaces and wildcards")


_KINDS: dict[str, Callable[[str, str], None]] = {
    "AWS": _check_aws,
    "Service": _check_service,
    "Federated": _check_federated,
}
