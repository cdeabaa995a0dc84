"""From a request to a principal: look the key up, verify, or refuse. Default is no.

An unknown, a switched-off and an expired key cost and answer the same, as late as each other (`refusal_times.py`): the
signature is computed under a secret nobody has. A wrong bearer token of a key that exists is refused as late.
A key that is not at hand is looked up while the address that shows it has not shown too many that are none: invented
keys cost the metadata service UNKNOWN_KEYS_PER_S questions at most (`lookup_gate.py`).
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Collection, Mapping
from typing import TYPE_CHECKING, NamedTuple

import structlog

from frontend.authn.lookup_gate import LookupGate
from frontend.authn.page_pass import SCHEME, open_page_pass
from frontend.authn.principal import Principal, PrincipalKind
from frontend.authn.rights import KeyRights
from frontend.authn.sigv4 import (
    Credential,
    Signed,
    read_signature,
    signature_does_not_match,
    signature_matches,
    signing_key,
)
from frontend.authn.tokens import bearer_token_matches, is_access_key_id, parse_bearer_token
from frontend.authz.policy_limits import CALLER_TEXT_CHARACTERS_MAX
from frontend.crypto.keyring import Keyring, KeyringError
from frontend.crypto.macs import MacKey
from frontend.errors import BAD_BEARER_TOKEN, UNKNOWN_KEY, RequestError, WrongRegion, unavailable
from frontend.http import Request, network_of
from frontend.limits import (
    CALLER_TEXTS_CACHED_BYTES_MAX,
    CREDENTIAL_CACHED_BYTES_MAX,
    CREDENTIALS_CACHED_MAX,
    KEY_USES_HELD_MAX,
    PRINCIPALS_CACHED_MAX,
    SIGNING_KEYS_CACHED_MAX,
    UNKNOWN_KEYS_PER_ADDRESS_PER_S,
    UNKNOWN_KEYS_PER_S,
)
from frontend.metadata.interface import MISS, MetadataUnavailable
from frontend.refusal_times import wait_to_refuse

if TYPE_CHECKING:
    from frontend.metadata.interface import MetadataService
    from frontend.metadata.records import KeyRecord


# An account that there is not: ids have twelve digits.
NO_ACCOUNT = ""

_log = structlog.get_logger()


class PreparedClaim(NamedTuple):
    """What verifies a signature that makes this claim, while this very record is that of its key."""

    record: KeyRecord
    key: MacKey


class MadePrincipal(NamedTuple):
    """Holds while this very record is that of the key."""

    record: KeyRecord
    principal: Principal


_NO_HEADERS: Mapping[bytes, bytes] = {}


class KeyUses:
    """When access keys were used last, Unix seconds, until the control plane is told (`frontend/key_uses.py`).

    Bounded: what does not fit is noted by the next use.
    """

    __slots__ = ("_last_s",)

    def __init__(self) -> None:
        self._last_s: dict[str, float] = {}

    def note(self, access_key_id: str, now_s: float) -> None:
        if len(self._last_s) < KEY_USES_HELD_MAX or access_key_id in self._last_s:
            self._last_s[access_key_id] = now_s

    def take(self, most: int) -> dict[str, int]:
        """Up to so many of the oldest, in milliseconds; they are forgotten here."""
        taken = list(self._last_s)[:most]
        return {access_key_id: int(self._last_s.pop(access_key_id) * 1000) for access_key_id in taken}


class Authenticator:
    """One per process. Holds derived signing keys, never secrets; what headers of signatures that matched say, with the
    key that verifies them; and the principals of callers that were verified.

    Each request is verified in full. A record that changes is another one: what was made of the former is not used.
    """

    def __init__(
        self,
        metadata: MetadataService,
        keyring: Keyring,
        pepper: bytes,
        regions: Collection[str],
        now_s: Callable[[], float] = time.time,
        steady_s: Callable[[], float] = time.monotonic,
        page_key: bytes = b"",
    ) -> None:
        self._page_key = page_key
        self._metadata = metadata
        self._keyring = keyring
        self._pepper = pepper
        self._steady_s = steady_s
        self._regions = frozenset(regions)
        self._now_s = now_s
        self._signing_keys: dict[tuple[str, str, int, str, str], MacKey] = {}
        # By what stands in the header before the signature.
        self._credentials: dict[bytes, Credential] = {}
        self._prepared: dict[bytes, PreparedClaim] = {}
        # By key, address, transport, and what the client says of itself.
        self._principals: dict[tuple[str, str, bool, bytes | None, bytes | None], MadePrincipal] = {}
        self._unknown_by_address = LookupGate(UNKNOWN_KEYS_PER_ADDRESS_PER_S, steady_s)
        self._unknown = LookupGate(UNKNOWN_KEYS_PER_S, steady_s)
        self._looked_up: set[str] = set()  # keys whose look-up is under way, and paid for
        self._rights = KeyRights()
        self.uses = KeyUses()
        self._nobody_secret = os.urandom(30).hex()[:40]

    async def authenticate(self, request: Request) -> Principal:
        """By bearer token, by signature, or by the pass of a page, whichever the request carries."""
        authorization = request.headers.get(b"authorization")
        if authorization is not None and authorization[:7].lower() == b"bearer ":
            token = authorization[7:].strip().decode("latin-1")
            return await self.bearer(token, request.client_host, request.is_secure, request.headers)
        if authorization is not None and authorization[: len(SCHEME)].lower() == SCHEME:
            return self._page(request, authorization)
        return await self.signature(request)

    def _page(self, request: Request, authorization: bytes) -> Principal:
        """A person who looks at a page: the control plane vouches for them, this once. Raises RequestError."""
        now_ms = int(self._now_s() * 1_000)
        method, path, query, body = request.method, request.path, request.query, request.body
        found = open_page_pass(self._page_key, authorization, method, path, query, body, now_ms)
        if found is None or not self._page_key:
            raise _bad_token()
        return found

    async def signature(self, request: Request) -> Principal:
        """SigV4, in the header or in the query. Raises RequestError."""
        now_s, began_s = self._now_s(), self._steady_s()
        signed = read_signature(request, now_s, self._credentials)
        credential = signed.credential
        region, access_key_id = credential.region, credential.access_key_id
        if region not in self._regions:
            raise WrongRegion(sorted(self._regions))
        record = self._metadata.cached_key(access_key_id)
        if record is MISS:
            record = await self._find_new(access_key_id, request.client_host)
        if record is None or not _is_usable(record, now_s):
            signature_matches(signed, self._key_of_nobody(region))
            await wait_to_refuse(began_s, self._steady_s)
            raise RequestError("InvalidClientTokenId", UNKNOWN_KEY)
        prepared = self._prepared.get(signed.read_from)
        if prepared is not None and prepared.record is record:
            key = prepared.key
        else:
            prepared, key = None, self._signing_key(record, signed) or self._key_of_nobody(region)
        if not signature_matches(signed, key):
            raise signature_does_not_match()
        if prepared is None:
            self._keep(signed, record, key)
        return self._principal(record, request.client_host, request.is_secure, request.headers, now_s)

    async def bearer(
        self, token: str, source_ip: str = "", is_secure: bool = False, headers: Mapping[bytes, bytes] = _NO_HEADERS
    ) -> Principal:
        """A bearer token, sent from this address. Raises RequestError; its checksum is looked at before all else."""
        access_key_id = parse_bearer_token(token)
        if access_key_id is None:
            raise _bad_token()
        began_s = self._steady_s()
        record = self._metadata.cached_key(access_key_id)
        if record is MISS:
            record = await self._find_new(access_key_id, source_ip)
        now_s = self._now_s()
        usable = record is not None and _is_usable(record, now_s)
        account_id, stored = (NO_ACCOUNT, None) if record is None else (record.account_id, record.bearer_hash)
        matches = bearer_token_matches(account_id, token, self._pepper, stored)
        if record is None or not usable or not matches:
            await wait_to_refuse(began_s, self._steady_s)
            raise _bad_token()
        return self._principal(record, source_ip, is_secure, headers, now_s)

    async def again(self, principal: Principal) -> Principal | None:
        """For what outlives a look at the key: the same caller with the rights it has now, None where the key is not
        valid any more. Known without waiting unless the key has changed. Raises RequestError if it cannot be told."""
        if principal.kind is not PrincipalKind.KEY:
            return principal  # its pass is of a moment ago
        record = self._metadata.cached_key(principal.name)
        if record is MISS:
            record = await self._find(principal.name)
        now_s = self._now_s()
        if record is None or not _is_usable(record, now_s) or record.account_id != principal.account_id:
            return None
        self.uses.note(record.access_key_id, now_s)
        return principal._replace(key_version=record.version, rights=self._rights.of(record))

    def _principal(
        self, record: KeyRecord, source_ip: str, is_secure: bool, headers: Mapping[bytes, bytes], now_s: float
    ) -> Principal:
        access_key_id = record.access_key_id
        self.uses.note(access_key_id, now_s)
        user_agent, referer = headers.get(b"user-agent"), headers.get(b"referer")
        name = (access_key_id, source_ip, is_secure, user_agent, referer)
        made = self._principals.get(name)
        if made is not None and made.record is record:
            return made.principal
        rights, version = self._rights.of(record), record.version
        principal = Principal(
            record.account_id, access_key_id, version, source_ip, is_secure, rights, _text(user_agent), _text(referer)
        )
        if len(user_agent or b"") + len(referer or b"") <= CALLER_TEXTS_CACHED_BYTES_MAX:
            if made is None and len(self._principals) >= PRINCIPALS_CACHED_MAX:
                del self._principals[next(iter(self._principals))]
            self._principals[name] = MadePrincipal(record, principal)
        return principal

    async def _find_new(self, access_key_id: str, address: str) -> KeyRecord | None:
        """A key that is not at hand: those that turn out to be none are paid for. Raises RequestError."""
        if access_key_id in self._looked_up:
            return await self._find(access_key_id)  # the same look-up: the metadata service is not asked again
        network, is_none = network_of(address), False
        await self._unknown_by_address.enter(network)
        try:
            await self._unknown.enter("")
            try:
                self._looked_up.add(access_key_id)
                record = await self._find(access_key_id)
                is_none = record is None
                return record
            finally:
                self._looked_up.discard(access_key_id)
                self._unknown.leave("", is_none)
        finally:
            self._unknown_by_address.leave(network, is_none)

    async def _find(self, access_key_id: str) -> KeyRecord | None:
        if not is_access_key_id(access_key_id):
            return None
        try:
            return await self._metadata.get_key(access_key_id)
        except MetadataUnavailable:
            raise unavailable("Keys cannot be looked up at the moment.") from None

    def _keep(self, signed: Signed, record: KeyRecord, key: MacKey) -> None:
        """Its signature matched: what anyone can send must fill no memory."""
        claimed = signed.read_from
        if 0 < len(claimed) <= CREDENTIAL_CACHED_BYTES_MAX:
            if claimed not in self._credentials and len(self._credentials) >= CREDENTIALS_CACHED_MAX:
                oldest = next(iter(self._credentials))
                del self._credentials[oldest], self._prepared[oldest]
            self._credentials[claimed] = signed.credential
            self._prepared[claimed] = PreparedClaim(record, key)

    def _key_of_nobody(self, region: str) -> MacKey:
        return MacKey(signing_key(self._nobody_secret, "19700101", region))

    def _signing_key(self, record: KeyRecord, signed: Signed) -> MacKey | None:
        """None: the stored secret is not this key's of this account, so no signature fits it."""
        date, region = signed.credential.date, signed.credential.region
        name = (record.account_id, record.access_key_id, record.version, date, region)
        key = self._signing_keys.get(name)
        if key is None:
            try:
                secret = self._keyring.open_secret(record.account_id, record.access_key_id, record.secret_sealed)
            except KeyringError:
                _log.error("stored secret does not open", access_key_id=record.access_key_id, account=record.account_id)
                return None
            key = MacKey(signing_key(secret, date, region))
            if len(self._signing_keys) >= SIGNING_KEYS_CACHED_MAX:
                del self._signing_keys[next(iter(self._signing_keys))]
            self._signing_keys[name] = key
        return key


def _is_usable(record: KeyRecord, now_s: float) -> bool:
    return record.active and (record.expires_at_ms is None or now_s * 1000 < record.expires_at_ms)


def _text(header: bytes | None) -> str | None:
    """What a client says of itself; None: nothing."""
    return None if header is None else header[:CALLER_TEXT_CHARACTERS_MAX].decode("latin-1")


def _bad_token() -> RequestError:
    return RequestError("InvalidClientTokenId", BAD_BEARER_TOKEN)
