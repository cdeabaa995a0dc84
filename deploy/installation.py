"""One installation: its data directory, what is remembered there, and the settings its processes get.

<data>/run/state.json        ports, cluster id, number of nodes; written once, then only extended
<data>/run/supervisor.pid    held with flock by the supervisor for its life
<data>/run/control.sock      the supervisor's control socket
<data>/secrets/              keys made once, 0700/0600
<data>/logs/NAME.log         one a process, bounded
<data>/nodes/ID/             a storage node's files
<data>/postgres, valkey      the embedded servers' files, when they are used
<data>/lake/                 usage as Parquet, once Spark has read some
"""

from __future__ import annotations

import errno
import json
import os
import secrets
import shlex
import socket
import sys
from dataclasses import asdict, dataclass, field
from pathlib import Path
from random import SystemRandom

from deploy import allocator, limits
from deploy.errors import EXIT_USAGE, CommandError
from deploy.tls import CERTIFICATE_SETTINGS, KEY_SETTINGS, TlsWish, settle_tls
from storage_nodes.model import NodeAddress, format_node_list

ROOT = Path(__file__).resolve().parent.parent
PYTHON_CLIENT = ROOT / "clients" / "python" / "src"
LOOPBACK = "127.0.0.1"
# Of the front ends' port for the installation's own processes.
INTERNAL_PORT = "frontend-internal"
UNCHANGED = TlsWish()
SECRET_NAMES = ("master.key", "internal.key", "receipt.key", "django.key", "pepper.key")
# Passwords of the embedded servers; not part of the processes' contract, so kept under names of their own.
SERVER_SECRET_NAMES = ("postgres.password", "valkey.password")
# In a folder that no process is told of.
ADMIN_SECRET_NAMES = ("postgres-admin.password",)
# Marks every process of an installation, so that what a killed supervisor left behind can be told from others'.
MARK = "PENSTOCK_INSTALLATION"

_RPC = ("PENSTOCK_CLUSTER_ID", "PENSTOCK_STORAGE_NODES")
ROLES_WITH_METRICS = ("metadata", "control", "worker", "usage-worker", "schedule")
_CONTROL = (
    *_RPC, "PENSTOCK_REGION", "PENSTOCK_SECRETS_DIR", "PENSTOCK_ENDPOINT", "PENSTOCK_FRONTEND_URL", "DATABASE_URL",
    "CELERY_BROKER_URL",
)  # fmt: skip
# What each role's processes are told, and no more (docs/processes.md, "Settings").
SETTINGS_OF_ROLE: dict[str, tuple[str, ...]] = {
    "postgres": (),
    "valkey": (),
    "storage-node": _RPC,
    "metadata": ("PENSTOCK_CLUSTER_ID", "DATABASE_URL"),
    "frontend": (*_RPC, "PENSTOCK_REGION", "PENSTOCK_SECRETS_DIR", "PENSTOCK_METADATA", "PENSTOCK_CONTROL"),
    "control-plane": _CONTROL,
    "worker": _CONTROL,
    "usage-worker": (*_CONTROL, "PENSTOCK_USAGE_LAKE"),
    "schedule": (*_CONTROL, "PENSTOCK_USAGE_LAKE"),
    # Commands of manage.py, and reports that count usage first.
    "manage": (*_CONTROL, "PENSTOCK_USAGE_LAKE"),
}
# They are the operator's, if there are any, and hold a password.
MAIL_SETTINGS = ("PENSTOCK_MAIL_URL", "PENSTOCK_MAIL_URL_FILE", "PENSTOCK_MAIL_DIR", "PENSTOCK_MAIL_FROM")
SENDS_MAIL = ("control-plane", "worker", "manage")


@dataclass
class State:
    """What must stay the same from one `up` to the next."""

    cluster_id: str
    host: str
    port: int
    node_count: int  # storage nodes that there ever were: their ids are 1 to node_count
    ports: dict[str, int] = field(default_factory=dict)
    gone: list[int] = field(default_factory=list)  # those that were decommissioned
    joining: list[int] = field(default_factory=list)  # those that were added and are not known to be members yet
    front_ends: int = 1  # they share the public port
    tls_certificate: str = ""  # paths of PEM files; "" = the public port speaks plain HTTP
    tls_key: str = ""
    public_name: str = ""  # of the endpoint, where the certificate is not for the address
    redirect_port: int = 0  # plain HTTP that sends to https; 0 = none

    def node_ids(self) -> list[int]:
        return [node_id for node_id in range(1, self.node_count + 1) if node_id not in self.gone]


class Installation:
    """The files of one data directory. Nothing here starts or stops anything."""

    def __init__(self, data_dir: str | os.PathLike[str] | None = None) -> None:
        chosen = data_dir or os.environ.get("PENSTOCK_DATA_DIR") or ROOT / ".penstock"
        self.data = Path(chosen).expanduser().resolve()
        self.run = self.data / "run"
        self.secrets = self.data / "secrets"
        self.admin = self.data / "admin"
        self.logs = self.data / "logs"
        self.state_file = self.run / "state.json"
        self.pid_file = self.run / "supervisor.pid"
        self.demo_key_file = self.secrets / "demo-key.json"

    def exists(self) -> bool:
        return self.state_file.exists()

    def prepare(self) -> None:
        """Make the directories and the secrets that are missing."""
        try:
            self.data.parent.mkdir(parents=True, exist_ok=True)
            self.data.mkdir(mode=0o700, exist_ok=True)
            for directory, mode in ((self.run, 0o700), (self.secrets, 0o700), (self.admin, 0o700), (self.logs, 0o750)):
                directory.mkdir(exist_ok=True)
                directory.chmod(mode)
            for name in (*SECRET_NAMES, *SERVER_SECRET_NAMES):
                write_private_once(self.secrets / name, secrets.token_hex(32))
            for name in ADMIN_SECRET_NAMES:
                write_private_once(self.admin / name, secrets.token_hex(32))
        except OSError as error:
            raise CommandError(
                f"the data directory {self.data} cannot be used ({error.strerror}: {error.filename}). "
                "Name another one with --data-dir or PENSTOCK_DATA_DIR, or make it writable.",
                EXIT_USAGE,
            ) from None

    def secret(self, name: str) -> str:
        return ((self.admin if name in ADMIN_SECRET_NAMES else self.secrets) / name).read_text().strip()

    # --- state ------------------------------------------------------------------------------------------

    def load_state(self) -> State:
        try:
            return State(**json.loads(self.state_file.read_text()))
        except FileNotFoundError:
            start = f"./penstock up --data-dir {shlex.quote(str(self.data))}"
            raise CommandError(f"there is no installation in {self.data} yet. Start one with: {start}") from None
        except (ValueError, TypeError) as error:
            raise CommandError(f"{self.state_file} is damaged ({error}); restore it from a backup") from None

    def save_state(self, state: State) -> None:
        temporary = self.state_file.with_suffix(".new")
        with open(temporary, "w") as file:
            json.dump(asdict(state), file, indent=2)
            file.flush()
            os.fsync(file.fileno())
        os.replace(temporary, self.state_file)

    def settle_state(
        self,
        host: str | None,
        port: int | None,
        node_count: int | None,
        front_ends: int | None = None,
        tls: TlsWish = UNCHANGED,
    ) -> State:
        """The state to run with: the remembered one where there is one, with what the caller asked for checked."""
        check_numbers(port, node_count, front_ends, tls.redirect_port)
        if self.exists():
            state = self.load_state()
            state.port, state.host = port or state.port, host or state.host
            if node_count not in (None, len(state.node_ids())):
                raise CommandError(other_number_of_nodes(state), EXIT_USAGE)
        else:
            wanted = node_count or limits.DEFAULT_NODES
            state = State(f"pk-{secrets.token_hex(8)}", host or LOOPBACK, port or limits.DEFAULT_PORT, wanted)
            state.front_ends = default_front_ends(len(os.sched_getaffinity(0)))
        state.front_ends = front_ends or state.front_ends
        settle_tls(state, tls)
        require_free(state.host, state.port)
        if state.redirect_port:
            require_free(state.host, state.redirect_port, "--redirect-port")
        settle_ports(state)
        self.save_state(state)
        return state

    # --- settings of the processes ----------------------------------------------------------------------

    def nodes(self, state: State) -> list[NodeAddress]:
        """Every node of one machine stands in a zone of its own: there is no other failure domain here."""
        return [
            NodeAddress(node_id, LOOPBACK, state.ports[f"node-{node_id}"], f"zone-{node_id}")
            for node_id in state.node_ids()
        ]

    def add_node(self, state: State) -> int:
        """Remember one storage node more, with ports of its own; its id, which no node had before."""
        if len(state.node_ids()) >= limits.NODES_MAX:
            raise CommandError(f"one machine runs at most {limits.NODES_MAX} storage nodes", EXIT_USAGE)
        state.node_count += 1
        node_id = state.node_count
        taken = {state.port, *state.ports.values()}
        for name in node_port_names(node_id):
            state.ports[name] = choose_port(taken)
            taken.add(state.ports[name])
        state.joining.append(node_id)
        self.save_state(state)
        return node_id

    def node_joined(self, state: State, node_id: int) -> None:
        """It is a member: from now on it starts like any other."""
        if node_id in state.joining:
            state.joining.remove(node_id)
            self.save_state(state)

    def remove_node(self, state: State, node_id: int) -> None:
        """It was decommissioned: forget all of it but that its id was used."""
        state.gone.append(node_id)
        state.joining = [joining for joining in state.joining if joining != node_id]
        for name in node_port_names(node_id):
            state.ports.pop(name, None)
        self.save_state(state)

    def settings(self, state: State) -> dict[str, str]:
        """All settings of this installation's processes; roles add their own listen addresses."""
        ports = state.ports
        region = os.environ.get("PENSTOCK_REGION") or "us-east-1"
        return {
            "PENSTOCK_CLUSTER_ID": state.cluster_id,
            "PENSTOCK_REGION": region,
            "PENSTOCK_SECRETS_DIR": str(self.secrets),
            "PENSTOCK_STORAGE_NODES": format_node_list(self.nodes(state)),
            "PENSTOCK_METADATA": f"{LOOPBACK}:{ports['metadata']}",
            "PENSTOCK_CONTROL": f"{LOOPBACK}:{ports['control']}",
            "PENSTOCK_ENDPOINT": endpoint(state),
            "PENSTOCK_FRONTEND_URL": os.environ.get("PENSTOCK_FRONTEND_URL") or internal_endpoint(state),
            "DATABASE_URL": os.environ.get("DATABASE_URL") or self.database_url(state),
            "CELERY_BROKER_URL": os.environ.get("CELERY_BROKER_URL") or self.broker_url(state),
            "PENSTOCK_USAGE_LAKE": os.environ.get("PENSTOCK_USAGE_LAKE") or str(self.data / "lake"),
        }

    def environment(self, state: State, role: str) -> dict[str, str]:
        """What a process of this role is started with: the settings that it needs on top of the caller's environment.
        A server that is not ours gets nothing of that: what stands in an environment can be read by all processes of
        its user."""
        common = {MARK: str(self.data), **allocator.ENVIRONMENT}
        names = SETTINGS_OF_ROLE.get(role, ())
        if not names:
            return {"PATH": os.defpath, "LC_ALL": "C", **common}
        settings = self.settings(state)
        hidden = {*settings, *(f"{name}_FILE" for name in settings), *CERTIFICATE_SETTINGS, *KEY_SETTINGS}
        if role not in SENDS_MAIL:
            hidden.update(MAIL_SETTINGS)
        return {
            **{name: value for name, value in os.environ.items() if name not in hidden},
            "PATH": os.pathsep.join([str(Path(sys.executable).parent), os.environ.get("PATH", os.defpath)]),
            "PYTHONPATH": os.pathsep.join(filter(None, [str(ROOT), os.environ.get("PYTHONPATH", "")])),
            "PENSTOCK_LOG_LEVEL": os.environ.get("PENSTOCK_LOG_LEVEL") or "info",
            **common,
            **{name: settings[name] for name in names},
        }

    def database_url(self, state: State) -> str:
        password = self.secret("postgres.password")
        return f"postgresql://penstock:{password}@{LOOPBACK}:{state.ports['postgres']}/penstock"

    def broker_url(self, state: State) -> str:
        return f"redis://:{self.secret('valkey.password')}@{LOOPBACK}:{state.ports['valkey']}/0"


def endpoint(state: State) -> str:
    host = state.public_name or (LOOPBACK if state.host in ("0.0.0.0", "::") else state.host)
    return f"{'https' if state.tls_certificate else 'http'}://{host}:{state.port}"


def internal_endpoint(state: State) -> str:
    """Where the installation's own processes and commands reach the front ends: no name and no certificate between."""
    return f"http://{LOOPBACK}:{state.ports[INTERNAL_PORT]}" if state.tls_certificate else endpoint(state)


def default_front_ends(cores: int) -> int:
    return min(max(1, cores // limits.CORES_PER_FRONT_END), limits.FRONT_ENDS_MAX)


def front_end_name(number: int) -> str:
    """Of its log and, with `-metrics`, of its operators' port."""
    return "frontend" if number == 1 else f"frontend-{number}"


def write_private_once(path: Path, text: str) -> None:
    """Write a file only its owner may read, unless it is there."""
    if not path.exists():
        write_private(path, text)


def write_private(path: Path, text: str) -> None:
    """The file, which only its owner may read, is complete under its name, or what it was before."""
    temporary = path.with_name(path.name + ".new")
    descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
    with os.fdopen(descriptor, "w") as file:
        file.write(text)
        file.flush()
        os.fsync(file.fileno())
    os.replace(temporary, path)


# --- ports --------------------------------------------------------------------------------------------------


def internal_roles(state: State) -> list[str]:
    """Names of the ports that are chosen, not given: one a listening process, one a metrics page."""
    nodes = [name for node_id in state.node_ids() for name in node_port_names(node_id)]
    front_ends = [front_end_name(number) for number in range(1, state.front_ends + 1)]
    metrics = [f"{name}-metrics" for name in (*ROLES_WITH_METRICS, *front_ends)]
    internal = [INTERNAL_PORT] if state.tls_certificate else []
    return [*nodes, *metrics, *internal, "metadata", "control", "postgres", "valkey"]


def node_port_names(node_id: int) -> list[str]:
    return [f"node-{node_id}", f"node-{node_id}-metrics"]


def settle_ports(state: State) -> None:
    """Choose a free port for every name that has none, or whose port somebody else took meanwhile."""
    wanted = internal_roles(state)
    for name in [name for name in state.ports if name.startswith("frontend-") and name not in wanted]:
        del state.ports[name]
    taken = {state.port, state.redirect_port, *state.ports.values()}
    for name in wanted:
        if name in state.ports and is_free(LOOPBACK, state.ports[name]):
            continue
        state.ports[name] = choose_port(taken)
        taken.add(state.ports[name])


def other_number_of_nodes(state: State) -> str:
    return (
        f"this installation has {len(state.node_ids())} storage nodes; leave --nodes out, and use ./penstock node add "
        "and ./penstock node decommission to change their number"
    )


def check_numbers(port: int | None, nodes: int | None, front_ends: int | None, redirect_port: int | None) -> None:
    """Of `up`, whatever runs already; None was not given. Raises CommandError."""
    for option, value, least, most in (
        ("--port", port, 1, limits.PORT_MAX),
        ("--nodes", nodes, 1, limits.NODES_MAX),
        ("--front-ends", front_ends, 1, limits.FRONT_ENDS_MAX),
        ("--redirect-port", redirect_port, 0, limits.PORT_MAX),
    ):
        if value is not None and not least <= value <= most:
            raise CommandError(f"{option} must lie between {least} and {most}; it is {value}", EXIT_USAGE)


def choose_port(taken: set[int]) -> int:
    generator = SystemRandom()
    for _ in range(limits.PORT_ATTEMPTS_MAX):
        port = generator.randint(limits.INTERNAL_PORT_MIN, limits.INTERNAL_PORT_MAX)
        if port not in taken and is_free(LOOPBACK, port):
            return port
    raise CommandError(
        f"no free port was found between {limits.INTERNAL_PORT_MIN} and {limits.INTERNAL_PORT_MAX}; "
        "stop what occupies them"
    )


def is_free(host: str, port: int) -> bool:
    return bind_failure(host, port) is None


def bind_failure(host: str, port: int) -> OSError | None:
    """Why nothing can listen there; None where it can."""
    with socket.socket(socket.AF_INET6 if ":" in host else socket.AF_INET) as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((host, port))
        except OSError as error:
            return error
        return None


def require_free(host: str, port: int, option: str = "--port") -> None:
    failure = bind_failure(host, port)
    if failure is None:
        return
    if isinstance(failure, socket.gaierror) or failure.errno == errno.EADDRNOTAVAIL:
        text = f"--host {host} is no address of this machine (127.0.0.1: itself only; 0.0.0.0: all addresses)"
    elif failure.errno == errno.EACCES:
        text = f"port {port} may not be used by this user. Choose one from 1024 on: ./penstock up {option} 9324"
    else:
        other = port + 1 if port < limits.PORT_MAX else port - 1
        text = f"{host}:{port} is taken by another program. Choose another port: ./penstock up {option} {other}"
    raise CommandError(text, EXIT_USAGE)
