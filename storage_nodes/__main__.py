"""`python -m storage_nodes`: read the configuration from the environment and run one storage node until SIGTERM."""

from __future__ import annotations

import asyncio
import contextlib
import errno
import gc
import os
import shutil
import signal
import sys

import structlog
import uvloop

from storage_nodes.config import ConfigError, NodeConfig
from storage_nodes.log.disk import OsDisk
from storage_nodes.log.errors import CorruptionError, DirectoryInUseError
from storage_nodes.node.directory_owner import NotOurDirectory, claim_directory
from storage_nodes.node.loop_stalls import LoopStalls
from storage_nodes.node.node import StorageNode
from storage_nodes.telemetry import configure_logging, serve_metrics
from storage_nodes.trust.connection import is_node
from storage_nodes.trust.credentials import Credentials, CredentialsRefused, credentials_of

EXIT_CONFIG = 78  # EX_CONFIG
EXIT_DATA = 65  # EX_DATAERR
EXIT_BUG = 70  # EX_SOFTWARE
EXIT_DISK_FULL = 73  # EX_CANTCREAT
SWITCH_INTERVAL_S = 0.0005
# Of the garbage collector. Full collections are rare: when thousands of groups elect at once there is so much that is
# young that one of them stops the loop for a tenth of a second, and what nodes make has few cycles.
COLLECTOR_GENERATIONS = (700, 10, 200)

_log = structlog.get_logger()


async def run(config: NodeConfig, credentials: Credentials | None) -> None:
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stop.set)
    loop.set_exception_handler(_stop_on_bug)
    # What recovery makes lives as long as the node: the cycle collector need not look at it, now or ever.
    gc.disable()
    node = StorageNode(config, credentials)
    await node.start()
    gc.freeze()
    gc.set_threshold(*COLLECTOR_GENERATIONS)
    gc.enable()
    stalls = LoopStalls(loop)
    stalls.start()
    await stop.wait()
    stalls.stop()
    await node.close()


def _stop_on_bug(loop: asyncio.AbstractEventLoop, context: dict[str, object]) -> None:
    """An exception nobody handled is our bug: the state may be half changed, so the process ends (R21)."""
    error = context.get("exception")
    if isinstance(error, ConnectionError | TimeoutError):
        return
    # Nobody here could go on without bytes that are damaged; what can be repaired is, at the next start.
    is_damage = isinstance(error, CorruptionError)
    try:
        if is_damage:
            text = "stopping: stored data is damaged, start the node again to have it repaired"
            _log.critical(text, error=str(error))
        else:
            _log.critical("stopping after an unhandled error", message=str(context.get("message")), exc_info=error)
        sys.stderr.flush()
    finally:  # its log may be on a full disk
        os._exit(EXIT_DATA if is_damage else EXIT_BUG)


def _credentials(config: NodeConfig) -> Credentials | None:
    """Raises CredentialsRefused."""
    credentials = credentials_of(config.cluster_id, os.environ)
    objection = "" if credentials is None else is_node(config.node_id)(credentials.name)
    if objection:
        raise CredentialsRefused(f"the certificate is of another process: {objection}")
    if credentials is not None:
        credentials.tell()
    return credentials


def _is_disk_full(error: OSError) -> bool:
    return error.errno in (errno.ENOSPC, errno.EDQUOT)


def _disk_full(directory: str, error: OSError) -> int:
    """Its log may be on the same disk: then the exit code alone says it."""
    with contextlib.suppress(OSError):
        free_bytes = shutil.disk_usage(directory).free
        hint = "give it room; every start tries again"
        _log.critical(
            "disk full, cannot start", directory=directory, free_bytes=free_bytes, error=str(error), hint=hint
        )
    return EXIT_DISK_FULL


def main() -> int:
    try:
        config = NodeConfig.from_environment(os.environ)
    except ConfigError as error:
        sys.stderr.write(f"storage node: {error}; see docs/processes.md\n")
        return EXIT_CONFIG
    # A flush computes beside the event loop and the thread that syncs: neither should wait 5 ms for its turn.
    sys.setswitchinterval(SWITCH_INTERVAL_S)
    configure_logging(config.process_name, config.log_level)
    try:
        credentials = _credentials(config)
    except CredentialsRefused as error:
        _log.critical("stopping: no certificate that can be used", error=str(error))
        return EXIT_CONFIG
    try:
        claim_directory(OsDisk(), config.node_dir, config.cluster_id, config.node_id)
    except (NotOurDirectory, DirectoryInUseError, OSError) as error:
        if isinstance(error, OSError) and _is_disk_full(error):
            return _disk_full(config.node_dir, error)
        _log.critical("stopping: this directory cannot be used", error=str(error))
        return EXIT_CONFIG
    except CorruptionError as error:
        hint = "give the node an empty directory, which the others fill again"
        _log.critical("stopping: whose this directory is cannot be read", error=str(error), hint=hint)
        return EXIT_DATA
    serve_metrics(config.metrics_listen)
    try:
        uvloop.run(run(config, credentials))
    except CorruptionError as error:
        _log.critical("stopping: stored data is damaged", error=str(error))
        return EXIT_DATA
    except OSError as error:
        if not _is_disk_full(error):
            raise
        return _disk_full(config.node_dir, error)
    return 0


if __name__ == "__main__":
    sys.exit(main())
