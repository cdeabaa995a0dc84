"""The supervisor: one process per data directory that starts everything, keeps it alive, and stops it in reverse.

It holds the lock on run/supervisor.pid while it lives, so two never run at once and a stale file never matters.
It has no timer but the one that bounds log files: an idle installation does not wake it.
"""

from __future__ import annotations

import asyncio
import fcntl
import os
import signal
import time
from collections.abc import Awaitable, Callable
from typing import IO, Any

from deploy import control, last_words, limits, management, output, postgres, roles, valkey
from deploy.child import Child, ChildSpec, StartFailed
from deploy.demo import ensure_demo_key
from deploy.errors import CommandError
from deploy.installation import Installation
from deploy.leftovers import stop_leftovers
from deploy.next_steps import next_step
from deploy.outside_servers import BROKER_URL, DATABASE_URL, is_outside
from deploy.state import State, endpoint
from storage_nodes.ids import node_name

Say = Callable[[str], None]
# Stopped first to last: what takes work in, what does it, what it stands on.
STOP_ORDER = (
    ("frontend",),
    ("schedule", "worker", "usage-worker"),
    ("control-plane", "metadata"),
    ("storage-node",),
    ("valkey", "postgres"),
)


def take_lock(installation: Installation) -> IO[str] | None:
    """Become the supervisor of this data directory; None when another process is."""
    lock = open(installation.pid_file, "a+")  # noqa: SIM115 - held for the life of the process
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        lock.close()
        return None
    lock.truncate(0)
    lock.write(f"{os.getpid()}\n")
    lock.flush()
    return lock


class Supervisor:
    def __init__(self, installation: Installation, state: State, say: Say = output.say) -> None:
        self.installation = installation
        self.state = state
        self.children: list[Child] = []
        # Did everything come up once?
        self.started = False
        self.demo_key: dict[str, Any] = {}
        self._say = say
        self._stop_asked = asyncio.Event()
        self._began = time.monotonic()
        self._started_at = time.time()

    async def run(self, on_ready: Callable[[Supervisor], None]) -> None:
        """Start everything, call `on_ready`, stay until asked to stop, stop everything."""
        loop = asyncio.get_running_loop()
        for number in (signal.SIGINT, signal.SIGTERM):
            loop.add_signal_handler(number, self._stop_asked.set)
        count = await asyncio.to_thread(stop_leftovers, self.installation.data)
        if count:
            self._say(f"  stopped {count} processes an earlier supervisor left behind")
        server = await control.serve(self.installation.run, self.handle)
        keeper = asyncio.create_task(self._bound_logs())
        try:
            if await self._start_unless_stopped():
                self.started = True
                on_ready(self)
                await self._stop_asked.wait()
        finally:
            keeper.cancel()
            self._say("stopping")
            await self._stop_all()
            server.close()
            (self.installation.run / control.SOCKET_NAME).unlink(missing_ok=True)
            self._say("stopped")

    # --- starting ---------------------------------------------------------------------------------------

    async def _start_unless_stopped(self) -> bool:
        """Start all; False when a stop was asked for meanwhile."""
        starting = asyncio.ensure_future(self.start_all())
        asked = asyncio.ensure_future(self._stop_asked.wait())
        await asyncio.wait({starting, asked}, return_when=asyncio.FIRST_COMPLETED)
        if not starting.done():
            starting.cancel()
            await asyncio.gather(starting, return_exceptions=True)
            return False
        asked.cancel()
        await starting  # raises what went wrong
        return True

    async def start_all(self) -> None:
        """Start everything as soon as what it stands on is there (the picture is in `roles.py`)."""
        try:
            async with asyncio.TaskGroup() as group:
                broker = group.create_task(self._start_broker())
                nodes = group.create_task(self._start_nodes())
                database = group.create_task(self._start_database())
                schema = group.create_task(self._after([database], self._migrate))
                group.create_task(self._after([schema], self._start_metadata))
                group.create_task(self._after([nodes], self._start_frontend))
                group.create_task(self._after([schema, broker], self._start_worker))
                group.create_task(self._after([schema, broker], self._start_control_plane))
                group.create_task(self._after([schema], self._ensure_demo_key))
        except ExceptionGroup as failures:
            raise first_failure(failures) from None
        # Last, so that its start does not compete with what the endpoint waits for.
        try:
            await self._start("schedule", [roles.schedule_spec(self.state), roles.usage_worker_spec(self.state)])
            await self._check_whole()
        except StartFailed as failure:
            raise CommandError(str(failure)) from None

    async def _check_whole(self) -> None:
        """Everything that was started serves now: a process may have died after it had been ready."""
        for child in self.children:
            await self._until_ready(child, limits.READY_DEADLINE_S)

    async def _after(self, earlier: list[asyncio.Task[None]], step: Callable[[], Awaitable[None]]) -> None:
        for task in earlier:
            await task
        await step()

    async def _start_broker(self) -> None:
        if not is_outside(BROKER_URL):
            spec = await asyncio.to_thread(valkey.prepare_valkey, self.installation, self.state)
            try:
                await self._start("Valkey", [spec], limits.RECOVERY_DEADLINE_S)
            except StartFailed as failure:
                raise StartFailed(f"{failure}\n{valkey.way_out(self.installation)}") from None
            await asyncio.to_thread(valkey.serves, self.installation, spec)

    async def _start_nodes(self) -> None:
        specs = roles.storage_node_specs(self.installation, self.state)
        await self._start("storage nodes", specs, limits.RECOVERY_DEADLINE_S)

    async def _start_database(self) -> None:
        if not is_outside(DATABASE_URL):
            spec = await asyncio.to_thread(postgres.prepare_postgres, self.installation, self.state)
            await self._start("PostgreSQL", [spec], limits.RECOVERY_DEADLINE_S)
            await self._create_database(self.children_of("postgres")[0])

    async def _migrate(self) -> None:
        if await asyncio.to_thread(management.migrate, self.installation, self.state):
            self._report("schema")

    async def _start_metadata(self) -> None:
        await self._start("metadata service", [roles.metadata_spec(self.state)])

    async def _start_control_plane(self) -> None:
        await self._start("control plane", [roles.control_spec(self.installation, self.state)])

    async def _start_frontend(self) -> None:
        specs = roles.frontend_specs(self.state)
        await self._start("front end" if len(specs) == 1 else f"{len(specs)} front ends", specs)

    async def _start_worker(self) -> None:
        await self._start("worker", [roles.worker_spec(self.state)])

    async def _ensure_demo_key(self) -> None:
        self.demo_key = await asyncio.to_thread(ensure_demo_key, self.installation, self.state)

    async def _create_database(self, server: Child) -> None:
        """The port is open a moment before logins are taken: ask until they are."""
        import psycopg

        deadline = time.monotonic() + limits.RECOVERY_DEADLINE_S
        while True:
            try:
                await asyncio.to_thread(postgres.create_database, self.installation, self.state)
                return
            except psycopg.OperationalError as error:
                if "password authentication failed" in str(error):
                    raise StartFailed(f"{error}. {postgres.OTHER_ROLES}") from None
                if time.monotonic() > deadline or await server.health() == "failing":
                    told = f"PostgreSQL takes no logins: {error}. {self._end_of_log(server)}"
                    raise StartFailed(told) from None
                await asyncio.sleep(limits.READY_PROBE_INTERVAL_S)

    async def _start(self, title: str, specs: list[ChildSpec], deadline_s: float = limits.READY_DEADLINE_S) -> None:
        children = [self._child(spec) for spec in specs]
        self.children += children
        for child in children:
            child.start()
        for child in children:
            await self._until_ready(child, deadline_s)
        self._report(title)

    async def _until_ready(self, child: Child, deadline_s: float) -> None:
        try:
            await child.ready(deadline_s)
        except StartFailed as failure:
            raise StartFailed(f"{failure}. {self._end_of_log(child)}") from None

    def _end_of_log(self, child: Child) -> str:
        """With the next step, where there is one."""
        words = self._last_words(child, limits.LOG_TAIL_LINES)
        step = next_step(child.spec.role, child.spec.number, child.last_end, words)
        shown = (f"    {line}" for line in words or ["(empty)"])
        return "\n".join([f"The end of {child.log_path}:", *shown, *([step] if step else [])])

    def _last_words(self, child: Child, lines_max: int) -> list[str]:
        secrets = last_words.secrets_in(self.installation.secrets)
        return last_words.last_words(child.log_path, secrets, lines_max, child.own_words_from())

    def children_of(self, role: str) -> list[Child]:
        return [child for child in self.children if child.spec.role == role]

    def _report(self, title: str) -> None:
        self._say(f"  {title} ready {time.monotonic() - self._began:.1f} s")

    # --- stopping ---------------------------------------------------------------------------------------

    async def _stop_all(self) -> None:
        management.stop_running()
        for stage in STOP_ORDER:
            await asyncio.gather(*(child.stop() for child in self.children if child.spec.role in stage))
        await asyncio.gather(*(child.stop() for child in self.children))  # whatever no stage names

    # --- control socket ---------------------------------------------------------------------------------

    async def handle(self, request: dict[str, Any]) -> dict[str, Any]:
        command = request.get("command")
        if command == "status":
            return await self.status()
        if command == "stop":
            self._stop_asked.set()
            return {"stopping": True}
        if command in ("node start", "node stop"):
            return await self._turn_node(command == "node start", request.get("id"))
        if command in NODE_CHANGES:
            return await NODE_CHANGES[command](self, request.get("id"))
        return {"error": f"unknown command {command!r}; is this supervisor older than the command line?"}

    async def status(self) -> dict[str, Any]:
        healths = await asyncio.gather(*(child.health() for child in self.children))
        return {
            "endpoint": endpoint(self.state),
            "console": f"{endpoint(self.state)}/console",
            "started": self.started,
            # Now: all that should be up is.
            "ready": self.started and all(health in ("healthy", "stopped") for health in healths),
            "supervisor_pid": os.getpid(),
            "processes": [
                self._describe_itself(),
                *(self._describe(child, health) for child, health in zip(self.children, healths, strict=True)),
            ],
        }

    def _describe_itself(self) -> dict[str, Any]:
        own = {"role": "supervisor", "id": 1, "pid": os.getpid(), "address": None}
        return {**own, "health": "healthy", "restarts": 0, "started_at": self._started_at, "not_up": None}

    def _describe(self, child: Child, health: str) -> dict[str, Any]:
        """One that should be up and is not comes with its last words."""
        not_up: dict[str, Any] | None = None
        if health not in ("healthy", "stopped"):
            words = self._last_words(child, limits.LAST_WORDS_LINES)
            not_up = {"since": child.not_up_since, "last_end": child.last_end, "log": str(child.log_path)}
            not_up |= {"last_words": words, "last_words_at": last_words.written_at(child.log_path)}
        return {**describe(child, health), "not_up": not_up}

    async def _turn_node(self, on: bool, number: object) -> dict[str, Any]:
        child = self._node(number)
        if child is None:
            return no_such_node(number)
        if on:
            # Its files may be what it could not be started with.
            await asyncio.to_thread(self._renew_certificates)
        if not on:
            await child.stop()
        elif (failure := await self._bring_up(child)) is not None:
            return failure
        return describe(child, await child.health())

    async def _add_node(self, _: object) -> dict[str, Any]:
        """Start one storage node more; it asks to join by itself."""
        try:
            number = self.installation.add_node(self.state)
        except CommandError as error:
            return {"error": str(error)}
        node = next(node for node in self.installation.nodes(self.state) if node.node_id == number)
        spec = roles.storage_node_spec(self.installation, self.state, node)
        child = self._child(spec)
        self.children.append(child)
        self._nodes_changed()
        return await self._bring_up(child) or describe(child, await child.health())

    async def _note_joined(self, number: object) -> dict[str, Any]:
        child = self._node(number)
        if child is None:
            return no_such_node(number)
        self.installation.node_joined(self.state, child.spec.number)
        self._nodes_changed()
        return {"id": child.spec.number}

    async def _remove_node(self, number: object) -> dict[str, Any]:
        """Stop a node that was decommissioned, for good."""
        child = self._node(number)
        if child is None:
            return no_such_node(number)
        await child.stop()
        self.children.remove(child)
        self.installation.remove_node(self.state, child.spec.number)
        self._nodes_changed()
        return {"id": child.spec.number}

    def _child(self, spec: ChildSpec) -> Child:
        return Child(spec, self.installation.environment(self.state, spec.role), self.installation.logs)

    def _nodes_changed(self) -> None:
        """Whoever is started again from now on is given the nodes that there are now."""
        addresses = {node.node_id: node for node in self.installation.nodes(self.state)}
        for child in self.children:
            spec = child.spec
            if spec.role == "storage-node":
                spec = roles.storage_node_spec(self.installation, self.state, addresses[spec.number])
            child.respecify(spec, self.installation.environment(self.state, spec.role))

    def _node(self, number: object) -> Child | None:
        return next((child for child in self.children_of("storage-node") if child.spec.number == number), None)

    async def _bring_up(self, child: Child) -> dict[str, Any] | None:
        """None, or what to answer instead."""
        child.start()
        try:
            await child.ready(limits.CONTROL_TIMEOUT_S)
        except StartFailed as failure:
            return {"error": f"{failure}. {self._end_of_log(child)}"}
        return None

    async def _bound_logs(self) -> None:
        renewed_s = time.monotonic()
        while True:
            await asyncio.sleep(limits.LOG_CHECK_INTERVAL_S)
            for child in self.children:
                child.bound_log()
            if time.monotonic() - renewed_s >= limits.CERTIFICATE_LOOK_S:
                renewed_s = time.monotonic()
                await asyncio.to_thread(self._renew_certificates)

    def _renew_certificates(self) -> None:
        """The processes find them by themselves."""
        try:
            renewed = self.installation.renew_certificates(self.state)
        except OSError as error:
            self._say(f"certificates cannot be renewed: {error}")
            return
        if renewed:
            self._say(f"renewed the certificates of {', '.join(renewed)}")


NODE_CHANGES: dict[str, Callable[[Supervisor, object], Awaitable[dict[str, Any]]]] = {
    "node add": Supervisor._add_node,
    "node joined": Supervisor._note_joined,
    "node remove": Supervisor._remove_node,
}


def no_such_node(number: object) -> dict[str, Any]:
    name = node_name(number) if isinstance(number, int) else number
    return {"error": f"there is no storage node {name}; see ./penstock status"}


def describe(child: Child, health: str) -> dict[str, Any]:
    address = child.spec.address
    return {
        "role": child.spec.role,
        "id": child.spec.number,
        "pid": child.pid,
        "address": f"{address[0]}:{address[1]}" if address else None,
        "health": health,
        "restarts": child.restarts,
        "started_at": child.started_at,
    }


def first_failure(failures: ExceptionGroup[Exception]) -> Exception:
    """What to tell: the first operating error, in a sentence; a bug of ours as it is. What waited failed with it."""
    for failure in failures.exceptions:
        if isinstance(failure, StartFailed):
            return CommandError(str(failure))
        if isinstance(failure, CommandError):
            return failure
    return failures
