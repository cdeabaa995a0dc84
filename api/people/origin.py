"""Where a request comes from: the source address that a front end vouches for, and what the audit trail keeps of it.

    X-Penstock-Source      <address> SPACE <issued_ms>
    X-Penstock-Source-Mac  hex HMAC-SHA-256 under internal.key of  "source" LF method LF target LF the header above

`target` is the path, with `?query` where there is one, byte for byte as sent.

Front ends strip both names from outside requests. A request without them comes from the address of its connection.
"""

from __future__ import annotations

import hashlib
import hmac
import ipaddress
import re
import time
import uuid
from typing import NamedTuple

from django.http import HttpRequest

from api.audit.actions import record
from api.audit.refusals import Refusal
from api.internal.authentication import raw_target
from api.people import limits
from api.people.errors import PeopleError
from api.people.models import Person
from api.request_ids import request_id_of
from api.secrets import internal_key
from api.settings.environment import environment
from frontend.authn.principal import PERSON_PREFIX, Principal
from frontend.authn.principal import person as principal_of_person
from frontend.authz.actions import Target, resource_arn

SOURCE_HEADER = "X-Penstock-Source"
SOURCE_MAC_HEADER = "X-Penstock-Source-Mac"
# Said by front ends beside it; what a client sends under this name they do not pass on.
SCHEME_HEADER = "X-Forwarded-Proto"
_VOUCHED = re.compile(r"([0-9A-Fa-f:.]{2,45}) ([0-9]{1,16})", re.ASCII)


class RequestOrigin(NamedTuple):
    source: str
    user_agent: str = ""
    request_id: str = ""
    # Did the client come by TLS?
    is_secure: bool = False

    @property
    def counted(self) -> str:
        """What attempts are counted under: the address, of IPv6 its network."""
        try:
            address = ipaddress.ip_address(self.source)
        except ValueError:
            return self.source
        if isinstance(address, ipaddress.IPv4Address):
            return str(address)
        if address.ipv4_mapped is not None:
            return str(address.ipv4_mapped)
        return str(ipaddress.ip_network((address, limits.SOURCE_IPV6_PREFIX_BITS), strict=False))

    def note(self, person: Person, account_id: str, action: str, subject: str, **details: object) -> None:
        """An entry of the audit trail, in the caller's transaction. What concerns no account has the id ''."""
        record(self.member(account_id, person.pk), account_id, action, subject, **details)

    def member(self, account_id: str, person_id: uuid.UUID, acting_as: uuid.UUID | None = None) -> Principal:
        """The person in the account ("": in none), or an operator who acts as that member of it."""
        as_whom = "" if acting_as is None else str(acting_as)
        return principal_of_person(account_id, str(person_id), self.source, self.is_secure, as_whom, self.request_id)


UNKNOWN_ORIGIN = RequestOrigin("")


def origin_of(request: HttpRequest) -> RequestOrigin:
    """Raises PeopleError for a source that no front end vouched for."""
    agent = "".join(char for char in request.headers.get("User-Agent", "") if char.isprintable())
    agent = agent[: limits.USER_AGENT_CHARACTERS_MAX]
    return RequestOrigin(_source(request), agent, request_id_of(request), _is_secure(request))


def member_refusal(account_id: str, person_id: str, act: str, origin: RequestOrigin) -> Refusal:
    arn = resource_arn(Target.ACCOUNT, environment().region, account_id)
    return Refusal(account_id, PERSON_PREFIX + person_id, act, arn, origin.source, request_id=origin.request_id)


def source_mac(key: bytes, method: str, target: bytes, source: str) -> str:
    text = b"\n".join((b"source", method.encode(), target, source.encode()))
    return hmac.new(key, text, hashlib.sha256).hexdigest()


def _is_secure(request: HttpRequest) -> bool:
    """As the front end says that has vouched for the source; without one, by the connection itself."""
    if SOURCE_HEADER in request.headers:
        return request.headers.get(SCHEME_HEADER) == "https"
    return request.is_secure()


def _source(request: HttpRequest) -> str:
    vouched = request.headers.get(SOURCE_HEADER)
    if vouched is None:
        return str(request.META.get("REMOTE_ADDR") or "")
    match = _VOUCHED.fullmatch(vouched) if len(vouched) <= limits.SOURCE_CHARACTERS_MAX else None
    # A page shows a HEAD as a GET (`console/pages.py`); what was vouched for is the method that came.
    expected = source_mac(internal_key(), request.META["REQUEST_METHOD"], raw_target(request), vouched)
    given = request.headers.get(SOURCE_MAC_HEADER, "")
    now_ms = time.time_ns() // 1_000_000
    if (
        match is None
        or not hmac.compare_digest(expected.encode(), given.encode(errors="replace"))
        or abs(now_ms - int(match[2])) > limits.SOURCE_AGE_MS_MAX
    ):
        raise PeopleError("access-denied", "The source of the request is not vouched for.")
    try:
        return str(ipaddress.ip_address(match[1]))
    except ValueError:
        raise PeopleError("access-denied", "The source of the request is not an address.") from None
