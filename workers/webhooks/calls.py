"""One call of a webhook: the name is resolved once, every address is judged, and the connection goes to a judged one.

Nothing of the environment takes part: no proxy, no netrc. No redirect is followed, the body of the answer is not read,
and each call has a client of its own, so that neither cookies nor connections are shared between deliveries.
"""

from __future__ import annotations

import asyncio
import functools
import ipaddress
import socket
import ssl
from collections.abc import Awaitable, Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from time import monotonic

import httpx2

from api.webhooks import limits
from api.webhooks.addresses import Address, CallPolicy, all_allowed, unwrapped
from api.webhooks.callees import Callee, CalleeError, parse_callee
from api.webhooks.deliveries import CallOutcome, ClaimedDelivery
from api.webhooks.models import CallResult
from api.webhooks.signing import signature_headers

Resolver = Callable[[str, int], Awaitable[Sequence[Address]]]

_USER_AGENT = "Penstock-Webhooks/1"
_DISCARD_PORT = 9
_resolvers = ThreadPoolExecutor(limits.RESOLVER_THREADS, thread_name_prefix="webhook-names")


async def resolve_name(host: str, port: int) -> Sequence[Address]:
    """Empty: the name has no address."""
    ask = functools.partial(socket.getaddrinfo, host, port, type=socket.SOCK_STREAM, proto=socket.IPPROTO_TCP)
    try:
        found = await asyncio.get_running_loop().run_in_executor(_resolvers, ask)
    except (OSError, UnicodeError):
        return ()
    addresses = dict.fromkeys(ipaddress.ip_address(str(answer[4][0])) for answer in found)
    return tuple(addresses)[: limits.CALL_ADDRESSES_MAX]


async def call_webhook(
    claimed: ClaimedDelivery, policy: CallPolicy, signed_s: int, resolve: Resolver = resolve_name
) -> CallOutcome:
    """One attempt, in bounded time."""
    began_s = monotonic()
    try:
        async with asyncio.timeout(limits.CALL_S_MAX):
            result, status = await _call(claimed, policy, signed_s, resolve)
    except TimeoutError:
        result, status = CallResult.TIMEOUT, None
    return CallOutcome(result, status, int((monotonic() - began_s) * 1_000))


async def _call(
    claimed: ClaimedDelivery, policy: CallPolicy, signed_s: int, resolve: Resolver
) -> tuple[CallResult, int | None]:
    try:
        callee = parse_callee(claimed.url, policy)  # the operator may have changed the rules since
    except CalleeError:
        return CallResult.NO_ADDRESS, None
    addresses = [callee.address] if callee.address else await resolve(callee.host, callee.port)
    if not all_allowed(policy, addresses) or any(
        _is_own(address) and not policy.names(address) for address in addresses
    ):
        return CallResult.NO_ADDRESS, None
    headers = {
        "Host": callee.authority, "Content-Type": "application/json", "User-Agent": _USER_AGENT,
        "Accept-Encoding": "identity",
        **signature_headers(claimed.secrets, claimed.public_id, signed_s, claimed.body),
    }  # fmt: skip
    result, status = CallResult.NO_CONNECTION, None
    for address in addresses[: limits.CALL_ADDRESSES_TRIED_MAX]:
        result, status = await _post(callee, unwrapped_to_connect(address), headers, claimed.body)
        if result not in (CallResult.NO_CONNECTION, CallResult.TIMEOUT):
            break
    return result, status


def unwrapped_to_connect(address: Address) -> Address:
    """A mapped address is connected to as the IPv4 address that was judged; one of NAT64 leads there by itself."""
    is_mapped = isinstance(address, ipaddress.IPv6Address) and address.ipv4_mapped is not None
    return unwrapped(address) if is_mapped else address


async def _post(
    callee: Callee, address: Address, headers: dict[str, str], body: bytes
) -> tuple[CallResult, int | None]:
    """The URL that is connected to has the address; certificate and Host are those of the name."""
    url = httpx2.URL(scheme="https", host=str(address), port=callee.port, raw_path=callee.target.encode())
    try:
        async with httpx2.AsyncClient(
            verify=tls_context(), trust_env=False, follow_redirects=False,
            timeout=httpx2.Timeout(limits.CALL_S_MAX, connect=limits.CALL_CONNECT_S_MAX),
        ) as client:  # fmt: skip
            request = client.build_request(
                "POST", url, headers=headers, content=body, extensions={"sni_hostname": callee.host}
            )
            answer = await client.send(request, stream=True)
            await answer.aclose()
    except httpx2.TimeoutException:
        return CallResult.TIMEOUT, None
    except httpx2.ConnectError as error:
        return (CallResult.NO_TLS if _is_of_tls(error) else CallResult.NO_CONNECTION), None
    except httpx2.HTTPError:
        return CallResult.NO_ANSWER, None
    status = answer.status_code
    return (CallResult.DELIVERED if answer.is_success else CallResult.STATUS), status


@functools.cache
def tls_context() -> ssl.SSLContext:
    """Certificates are verified against what the machine trusts (`SSL_CERT_FILE`)."""
    context = ssl.create_default_context()
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    return context


def _is_own(address: Address) -> bool:
    """Is it one of this machine's? The kernel picks it as the source then. Nothing is sent."""
    target = unwrapped_to_connect(address)
    family = socket.AF_INET if target.version == 4 else socket.AF_INET6
    with socket.socket(family, socket.SOCK_DGRAM) as probe:
        try:
            probe.connect((str(target), _DISCARD_PORT))
            return ipaddress.ip_address(probe.getsockname()[0]) == target
        except OSError:
            return False


def _is_of_tls(error: BaseException) -> bool:
    cause: BaseException | None = error
    while cause is not None and not isinstance(cause, ssl.SSLError):
        cause = cause.__cause__ or cause.__context__
    return cause is not None
