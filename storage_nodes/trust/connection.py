"""Mutual TLS below a protocol: both sides show certificates, each looks at the other's name, then the protocol begins.

    client                                server
    handshake (TLS 1.3)    <----------->  handshake           each believes the authority's certificates only
    is it whom I called?                  is it of my cluster, and may its role come here?
                           <-----------   verdict             frames only: 0 = welcome; other words say why not
    frames                 <----------->  frames              in TLS, or plain (`authenticate`)

The verdict is one record of TLS: a client that is refused hears why, and a client does not begin before it was let in.
Whether frames of storage nodes are encrypted both sides say in the handshake (ALPN); where they differ the connection
is refused. The other ports encrypt whatever the mode is. HTTP has no verdict: its clients are not ours.
"""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import Callable
from typing import Any, TypeVar, cast

import structlog

from storage_nodes.ids import node_name
from storage_nodes.limits import GREETING_MS_MAX, REFUSED_CLOSE_MS
from storage_nodes.trust.credentials import Credentials
from storage_nodes.trust.handshakes import OpenHandshakes
from storage_nodes.trust.names import InnerName, InnerRole, NameRefused, name_of
from storage_nodes.trust.refusals import (
    CLUSTER,
    CROWDED,
    DEADLINE,
    HANDSHAKE,
    MODE,
    NAME,
    NOT_TLS,
    ROLE,
    connection_refused,
)
from storage_nodes.trust.stream import TlsStream
from storage_nodes.trust.transport import TlsBelow, TlsTransport

_FIRST_BYTE = 0x16
_WELCOME = b"\0"
_VERDICT_BYTES_MAX = 512

P = TypeVar("P", bound=asyncio.Protocol)
_log = structlog.get_logger()


class PeerRefused(ConnectionError):
    """The other side is not whom we called, or it does not let us in. The text says why."""


class _End(TlsBelow):
    """One side of a connection that begins with a handshake."""

    def __init__(self, encrypts: bool) -> None:
        super().__init__()
        self._encrypts = encrypts

    def data_received(self, data: bytes) -> None:
        if self._transport is not None:
            self._transport.network_received(data)
        elif self._network is not None and not self._network.is_closing():
            self._shake(data)

    def _shake(self, data: bytes) -> None:
        """The handshake goes on."""
        raise NotImplementedError

    def _begin(self, protocol: asyncio.Protocol, context: ssl.SSLContext, plain: bytes) -> None:
        """From here on the network is the protocol's, through TLS or not."""
        network, stream = self._network, self._stream
        assert network is not None and stream is not None
        if self._encrypts:
            self._transport = TlsTransport(network, stream, context, protocol)
            protocol.connection_made(self._transport)
            self._transport.hand_on(plain)
            return
        rest = stream.leave()
        network.set_protocol(protocol)
        protocol.connection_made(network)
        if rest:
            protocol.data_received(rest)


class ServerEnd(_End):
    """Of one connection that came in. `begin(name)` makes its protocol, once it is known who it is; `lost` is called
    where it does not come to that; `objection(name)` says why it is not let in, "" = it is. `handshakes`: those of its
    port."""

    def __init__(
        self,
        credentials: Credentials,
        handshakes: OpenHandshakes,
        begin: Callable[[InnerName], asyncio.Protocol],
        objection: Callable[[InnerName], str] = lambda name: "",
        is_crowded: Callable[[], bool] = lambda: False,
        lost: Callable[[], None] = lambda: None,
        always_encrypts: bool = False,
        is_http: bool = False,
    ) -> None:
        super().__init__(always_encrypts or credentials.encrypts)
        self._credentials = credentials
        self._handshakes = handshakes
        self._make = begin
        self._objection = objection
        self._is_crowded = is_crowded
        self._lost = lost
        self._always_encrypts = always_encrypts
        self._is_http = is_http
        self._context: ssl.SSLContext | None = None
        self._deadline: asyncio.TimerHandle | None = None
        self._is_shaking = True

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        super().connection_made(transport)
        if self._is_crowded():
            self._refuse(CROWDED, "there are too many connections")
            return
        self._handshakes.begin(self)
        loop = asyncio.get_running_loop()
        text = "it did not show a certificate in time"
        self._deadline = loop.call_later(GREETING_MS_MAX / 1000, self._refuse, DEADLINE, text)

    def connection_lost(self, exc: Exception | None) -> None:
        if self._is_shaking:
            self._end_shaking()
            self._lost()
        super().connection_lost(exc)

    def give_way(self) -> None:
        self._refuse(CROWDED, "too many connections show no certificate, and this one is the oldest")

    def _shake(self, data: bytes) -> None:
        try:
            self._take(data)
        except Exception:
            # Our bug, met before it was known who is there: it ends one connection, and not the process.
            _log.exception("handshake failed")
            self._refuse(HANDSHAKE, "the handshake failed here")

    def _take(self, data: bytes) -> None:
        assert self._network is not None
        if self._stream is None:
            if data[0] != _FIRST_BYTE:
                self._refuse(NOT_TLS, "it does not speak TLS")
                return
            self._context = self._credentials.server_context()
            self._stream = TlsStream(self._context)
        try:
            is_done = self._stream.shake(data)
        except ssl.SSLError as error:
            self._network.write(self._stream.outgoing())  # why, as an alert
            self._refuse(HANDSHAKE, _told(error), words_left=True)
            return
        said = self._stream.outgoing()
        if said:
            self._network.write(said)
        if is_done:
            self._judge()

    def _judge(self) -> None:
        assert self._network is not None and self._stream is not None and self._context is not None
        found = self._stream.object
        try:
            name = name_of(found.getpeercert())
        except (NameRefused, ValueError) as error:
            self._turn_away(NAME, str(error), "")
            return
        if name.cluster_id != self._credentials.cluster_id:
            self._turn_away(CLUSTER, f"it is of another cluster than {self._credentials.cluster_id}", name)
        elif not self._always_encrypts and found.selected_alpn_protocol() != self._credentials.mode:
            self._turn_away(MODE, f"here frames are to {self._credentials.mode}: PENSTOCK_INNER_TLS differs", name)
        elif objection := self._objection(name):
            self._turn_away(ROLE, objection, name)
        else:
            self._welcome(name)

    def _welcome(self, name: InnerName) -> None:
        assert self._network is not None and self._stream is not None and self._context is not None
        self._end_shaking()
        if not self._is_http:
            self._network.write(self._stream.seal(_WELCOME))
        # What came behind the handshake: a client of ours says nothing before the verdict.
        plain = self._stream.take(b"") if self._encrypts else b""
        self._begin(self._make(name), self._context, plain)

    def _turn_away(self, reason: str, text: str, name: object) -> None:
        assert self._network is not None and self._stream is not None
        if not self._is_http:
            self._network.write(self._stream.seal(text.encode()[:_VERDICT_BYTES_MAX]))
        self._refuse(reason, text, name, words_left=True)

    def _refuse(self, reason: str, text: str, name: object = "", words_left: bool = False) -> None:
        """Close it: at once, or as soon as the other side had time to read why."""
        network = self._network
        assert network is not None
        connection_refused(reason, text, str(network.get_extra_info("peername")), name)
        self._cancel_deadline()
        if words_left and not network.is_closing():
            network.pause_reading()
            asyncio.get_running_loop().call_later(REFUSED_CLOSE_MS / 1000, network.abort)
        else:
            network.abort()

    def _end_shaking(self) -> None:
        self._is_shaking = False
        self._handshakes.end(self)
        self._cancel_deadline()

    def _cancel_deadline(self) -> None:
        if self._deadline is not None:
            self._deadline.cancel()
            self._deadline = None


class ClientEnd(_End):
    """Of one connection that we opened. `opened` has the protocol when the other side let us in, or PeerRefused."""

    def __init__(
        self,
        credentials: Credentials,
        make: Callable[[], asyncio.Protocol],
        objection: Callable[[InnerName], str],
        always_encrypts: bool,
    ) -> None:
        super().__init__(always_encrypts or credentials.encrypts)
        self._context = credentials.client_context()
        self._cluster_id = credentials.cluster_id
        self._make = make
        self._objection = objection
        self.opened: asyncio.Future[asyncio.Protocol] = asyncio.get_running_loop().create_future()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        super().connection_made(transport)
        self._stream = TlsStream(self._context, server_side=False)
        self._stream.shake()
        self._say(self._stream.outgoing())

    def connection_lost(self, exc: Exception | None) -> None:
        self._fail(f"the other side hung up: {exc}" if exc else "the other side hung up")
        super().connection_lost(exc)

    def give_up(self) -> None:
        """Nobody waits any more."""
        if self._network is not None:
            self._network.abort()

    def _shake(self, data: bytes) -> None:
        stream = self._stream
        assert stream is not None
        try:
            if stream.is_open:
                self._hear(stream.take_first(data))
                return
            is_done = stream.shake(data)
            self._say(stream.outgoing())
            if is_done:
                self._check()
                self._hear(stream.take_first(b""))
        except ssl.SSLError as error:
            self._say(stream.outgoing())
            self._fail(_told(error))
        except (NameRefused, PeerRefused, ValueError) as error:
            self._fail(str(error))

    def _check(self) -> None:
        """Raises NameRefused, PeerRefused."""
        assert self._stream is not None
        name = name_of(self._stream.object.getpeercert())
        if name.cluster_id != self._cluster_id:
            raise PeerRefused(f"it is of cluster {name.cluster_id}")
        objection = self._objection(name)
        if objection:
            raise PeerRefused(objection)

    def _hear(self, verdict: bytes) -> None:
        if not verdict:
            return
        if verdict != _WELCOME:
            self._fail(f"we are not let in: {verdict[:_VERDICT_BYTES_MAX].decode(errors='replace')}")
        elif not self.opened.done():
            assert self._stream is not None
            protocol = self._make()
            self.opened.set_result(protocol)
            self._begin(protocol, self._context, self._stream.take(b"") if self._encrypts else b"")

    def _say(self, said: bytes) -> None:
        if said and self._network is not None:
            self._network.write(said)

    def _fail(self, text: str) -> None:
        if not self.opened.done():
            self.opened.set_exception(PeerRefused(text))
        if self._transport is None and self._network is not None:
            self._network.close()


def _told(error: ssl.SSLError) -> str:
    if isinstance(error, ssl.SSLCertVerificationError):
        return f"its certificate is not believed: {error.verify_message}"
    return (error.reason or str(error)).lower().replace("_", " ")


def is_node(node_id: int) -> Callable[[InnerName], str]:
    """The objection to a caller of this node."""

    def objection(name: InnerName) -> str:
        is_it = name.role is InnerRole.NODE and name.number == node_name(node_id)
        return "" if is_it else f"it is {name.role} {name.number}, not node {node_name(node_id)}"

    return objection


def is_role(role: InnerRole) -> Callable[[InnerName], str]:
    return lambda name: "" if name.role is role else f"it is {name.role} {name.number}, not {role}"


async def connect_named(
    credentials: Credentials | None,
    make: Callable[[], P],
    host: str,
    port: int,
    objection: Callable[[InnerName], str],
    always_encrypts: bool = False,
) -> P:
    """A connection whose protocol has begun. Without credentials: a plain one. Raises OSError, of which PeerRefused is
    one. To be called with a timeout."""
    loop = asyncio.get_running_loop()
    if credentials is None:
        _, protocol = await loop.create_connection(make, host, port)
        return protocol
    _, end = await loop.create_connection(lambda: ClientEnd(credentials, make, objection, always_encrypts), host, port)
    try:
        return cast(P, await end.opened)
    except BaseException:
        end.give_up()
        raise


class AskingContext(ssl.SSLContext):
    """For clients of HTTP that take a context: always the certificate of the moment, and only servers of this role."""

    _credentials: Credentials
    _objection: Callable[[InnerName], str]

    @classmethod
    def of(cls, credentials: Credentials, role: InnerRole) -> AskingContext:
        made = cls(ssl.PROTOCOL_TLS_CLIENT)
        made.check_hostname = False
        made._credentials, made._objection = credentials, is_role(role)
        return made

    def wrap_bio(
        self, incoming: ssl.MemoryBIO, outgoing: ssl.MemoryBIO, server_side: bool = False, *_: Any, **__: Any
    ) -> Any:
        made = self._credentials.client_context().wrap_bio(incoming, outgoing)
        return _NamedServer(made, self._credentials.cluster_id, self._objection)


class _NamedServer:
    """An SSLObject whose handshake fails where the server is another one."""

    def __init__(self, inner: ssl.SSLObject, cluster_id: str, objection: Callable[[InnerName], str]) -> None:
        self._inner = inner
        self._cluster_id = cluster_id
        self._objection = objection

    def do_handshake(self) -> None:
        self._inner.do_handshake()
        try:
            name = name_of(self._inner.getpeercert())
        except NameRefused as error:
            raise ssl.SSLCertVerificationError(str(error)) from None
        objection = self._objection(name) if name.cluster_id == self._cluster_id else "it is of another cluster"
        if objection:
            raise ssl.SSLCertVerificationError(objection)

    def __getattr__(self, attribute: str) -> Any:
        return getattr(self._inner, attribute)
