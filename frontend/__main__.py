"""`python -m frontend`: one front end, until SIGTERM.

Builds the services from the settings, serves the public endpoint and the operators' port on one uvloop, stops both in
order.
"""

from __future__ import annotations

import asyncio
import gc
import os
import signal
import socket
import sys
from collections.abc import Callable, Sequence

import structlog
import uvloop
from prometheus_client import CollectorRegistry, GCCollector, PlatformCollector, ProcessCollector, generate_latest
from prometheus_client.registry import Collector
from pydantic import ValidationError
from pydantic_core import ErrorDetails

from frontend import VERSION
from frontend.asgi import Application
from frontend.body_room import body_room
from frontend.client_bytes import held_frames, held_headers
from frontend.config import FrontendConfig, split_address
from frontend.control import ControlPlane
from frontend.crypto.keyring import (
    INTERNAL_KEY_FILE,
    PEPPER_KEY_FILE,
    RECEIPT_KEY_FILE,
    Keyring,
    SecretFileError,
    read_key_file,
)
from frontend.express.protocol import express_config
from frontend.http import Receive, Scope, Send, answer
from frontend.key_uses import tell_key_uses, tell_key_uses_forever
from frontend.limits import (
    COLLECTOR_GENERATIONS,
    KEY_USES_TOLD_AT_STOP_S,
    LEASES_BACK_AT_STOP_S,
    REQUEST_REPORT_AT_STOP_S,
)
from frontend.listening import shared_sockets
from frontend.logs import configure_logging
from frontend.metadata.client import MetadataClient
from frontend.metadata.quota_reports import QuotaReporter
from frontend.ports import small_config
from frontend.routing.guarded import GuardedStorage, Guards
from frontend.routing.poll import leases_went_back
from frontend.server import BoundedHttpProtocol, Server
from frontend.services import FrontendServices
from frontend.tls.certificate import CertificateRefused
from frontend.tls.port import TlsPort
from frontend.tls.redirect import HttpsRedirect
from frontend.usage_reports import UsageReports
from frontend.writing import paused_clients
from storage_nodes.client import StorageClient
from storage_nodes.trust.connection import AskingContext
from storage_nodes.trust.credentials import Credentials, CredentialsRefused, own_credentials
from storage_nodes.trust.names import InnerRole


def main() -> int:
    try:
        config = FrontendConfig()
    except ValidationError as error:
        print(f"python -m frontend: {', '.join(map(_told, error.errors()))}", file=sys.stderr)
        return 2
    configure_logging(config.log_level)
    try:
        return uvloop.run(run(config, own_credentials(config.cluster_id)))
    except SecretFileError as error:
        structlog.get_logger().error("secrets_unreadable", reason=str(error))
        return 2
    except (CertificateRefused, CredentialsRefused) as error:
        structlog.get_logger().error("certificate_refused", reason=str(error))
        return 2


def _told(problem: ErrorDetails) -> str:
    """What is wrong with which setting; with several at once, where the message names them."""
    name = "_".join(map(str, problem["loc"])).upper()
    return f"PENSTOCK_{name}: {problem['msg']}" if name else problem["msg"]


async def run(config: FrontendConfig, credentials: Credentials | None) -> int:
    """Serve until a signal. Returns the exit code."""
    log = structlog.get_logger("frontend")
    name = f"frontend-{os.getpid()}"
    metadata_host, metadata_port = split_address(config.metadata)
    metadata = MetadataClient(metadata_host, metadata_port, config.cluster_id, name, credentials=credentials)
    storage = StorageClient(config.cluster_id, config.nodes, name, credentials=credentials)
    services = build_services(config, storage, metadata, credentials)
    if credentials is not None:
        credentials.tell()
        services.meters.gauge("inner_certificate_expires_seconds", lambda: int(credentials.current.not_after_s))
        services.meters.gauge("inner_certificate_refused", lambda: int(credentials.is_refused))
    services.meters.gauge("answers_held_bytes", lambda: paused_clients.held_bytes)
    services.meters.gauge("headers_held_bytes", lambda: held_headers.held_bytes)
    services.meters.gauge("bodies_held_bytes", lambda: body_room.held.held_bytes)
    services.meters.gauge("bodies_waiting_bytes", lambda: body_room.waiting.held_bytes)
    services.meters.gauge("frames_held_bytes", lambda: held_frames.held_bytes)
    services.meters.gauge("slow_readers_cut", lambda: paused_clients.cut)
    services.meters.counter("connections_gave_way", lambda: BoundedHttpProtocol.crowd.gave_way)
    services.meters.counter("connections_refused", lambda: BoundedHttpProtocol.crowd.refused)
    services.meters.gauge("front_ends", lambda: services.quotas.front_ends)
    tls = None if config.tls_files is None else TlsPort(*config.tls_files)
    try:
        servers = build_servers(config, services, tls)
    except OSError as error:
        log.error("port_not_available", reason=str(error))
        return 1
    _stop_on_signals([server for server, _ in servers])
    await storage.start()
    await metadata.start()
    reporter = QuotaReporter(
        services.quotas, services.account_limits, metadata.report_use, services.note_quota, services.steady_s
    )
    usage = UsageReports(services, storage)
    beside = [
        asyncio.create_task(reporter.run(), name="quota-reports"),
        asyncio.create_task(tell_key_uses_forever(services), name="key-uses"),
        asyncio.create_task(usage.run(), name="usage-reports"),
    ]
    if tls is not None:
        beside.append(asyncio.create_task(tls.keeper.run(), name="certificate"))
    _pace_collector()
    log.info("frontend_starting", listen=config.listen, version=VERSION)
    try:
        await asyncio.gather(*(server.serve(sockets) for server, sockets in servers))
    finally:
        for task in beside:
            task.cancel()
        last_words = (
            asyncio.wait_for(usage.tell(), REQUEST_REPORT_AT_STOP_S),
            asyncio.wait_for(tell_key_uses(services), KEY_USES_TOLD_AT_STOP_S),
            leases_went_back(LEASES_BACK_AT_STOP_S),
        )
        for outcome in await asyncio.gather(*last_words, return_exceptions=True):
            if isinstance(outcome, Exception) and not isinstance(outcome, TimeoutError):
                log.error("last_words_failed", exc_info=outcome)
        await services.control.close()
        await metadata.close()
        await storage.close()
    log.info("frontend_stopped")
    return 0 if all(server.started for server, _ in servers) else 1


def _pace_collector() -> None:
    """Called once, when all is loaded: that is never looked at again, and what comes later less often.

    Nearly everything that a request makes is freed by its count of references; what the collector looks at is mostly
    what the process loaded at its start, again and again: 6 % of the time under load.
    """
    gc.collect()
    gc.freeze()
    gc.set_threshold(*COLLECTOR_GENERATIONS)


# A server, and the sockets that it is given; None: it makes its own.
Serving = tuple[Server, list[socket.socket] | None]


def build_servers(config: FrontendConfig, services: FrontendServices, tls: TlsPort | None) -> list[Serving]:
    """The public port first. Raises OSError."""

    def shared(address: str) -> list[socket.socket] | None:
        return shared_sockets(*split_address(address)) if config.listen_shared else None

    public = express_config(services, *split_address(config.listen), config.trusted_proxies, tls)
    servers: list[Serving] = [(Server(public, services.drain), shared(config.listen))]
    if config.internal_listen:
        internal = express_config(services, *split_address(config.internal_listen))
        servers.append((Server(internal, services.drain), shared(config.internal_listen)))
    if config.redirect_listen:
        redirect = HttpsRedirect(config.redirect_port or split_address(config.listen)[1])
        sending = small_config(redirect, *split_address(config.redirect_listen))
        servers.append((Server(sending), shared(config.redirect_listen)))
    if config.metrics_listen:
        must_serve = [server for server, _ in servers]
        application = operators_application(
            services, lambda: all(server.started for server in must_serve), () if tls is None else (tls.metrics,)
        )
        servers.append((Server(small_config(application, *split_address(config.metrics_listen))), None))
    return servers


def build_services(
    config: FrontendConfig, storage: StorageClient, metadata: MetadataClient, credentials: Credentials | None = None
) -> FrontendServices:
    """Raises SecretFileError."""
    tls = None if credentials is None else AskingContext.of(credentials, InnerRole.CONTROL_PLANE)
    directory = config.secrets_dir
    internal_key = read_key_file(directory, INTERNAL_KEY_FILE)
    guarded = GuardedStorage(storage, Guards(storage.leader_of))
    services = FrontendServices(
        region=config.region,
        more_regions=config.all_regions,
        storage=guarded,
        metadata=metadata,
        control=ControlPlane(config.control, internal_key, tls=tls),
        keyring=Keyring.from_directory(directory),
        pepper=read_key_file(directory, PEPPER_KEY_FILE),
        receipt_key=read_key_file(directory, RECEIPT_KEY_FILE),
        page_key=internal_key,
        metadata_serves=lambda: metadata.serves,
        metadata_troubles=metadata.troubles,
        metadata_look=metadata.look,
    )
    guarded.add_gauges(services.meters)
    return services


def operators_application(
    services: FrontendServices, is_serving: Callable[[], bool] = lambda: True, more: Sequence[Collector] = ()
) -> Application:
    """/metrics for Prometheus, /healthz for the supervisor, which asks each process by itself: the public port is any
    of them. For the operators' port only."""
    registry = CollectorRegistry(auto_describe=False)
    for collector in (ProcessCollector(registry=None), PlatformCollector(registry=None), services.meters, *more):
        registry.register(collector)
    GCCollector(registry=registry)

    async def application(scope: Scope, receive: Receive, send: Send) -> None:
        if scope["path"] == "/metrics":
            content_type = (b"content-type", b"text/plain; version=0.0.4; charset=utf-8")
            await answer(send, 200, (content_type,), generate_latest(registry))
        elif scope["path"] == "/healthz":
            is_well = is_serving()
            said = b"ok\n" if is_well else b"the public port is not open yet\n"
            await answer(send, 200 if is_well else 503, ((b"content-type", b"text/plain"),), said)
        else:
            await answer(send, 404, ((b"content-type", b"text/plain"),), b"There is /metrics and /healthz.\n")

    return application


def _stop_on_signals(servers: list[Server]) -> None:
    def stop() -> None:
        for server in servers:
            # A second signal does not wait for anybody.
            server.force_exit = server.should_exit
            server.should_exit = True

    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stop)


if __name__ == "__main__":
    sys.exit(main())
