"""One installation: its data directory, what is remembered there, and the settings its processes get.

<data>/run/state.json        ports, cluster id, number of nodes; written once, then only extended
<data>/run/supervisor.pid    held with flock by the supervisor for its life
<data>/run/control.sock      the supervisor's control socket
<data>/secrets/              keys made once, 0700/0600
<data>/admin/                what no process is told of: a password, the authority of the certificates
<data>/certificates/NAME/    what processes show each other, made by that authority, 0700/0600
<data>/logs/NAME.log         one a process, bounded
<data>/nodes/ID/             a storage node's files
<data>/postgres, valkey      the embedded servers' files, when they are used
<data>/lake/                 usage as Parquet, once Spark has read some
"""

from __future__ import annotations

import json
import os
import secrets
import ssl
import sys
from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path

from deploy import allocator, certificates, limits
from deploy.errors import EXIT_USAGE, CommandError
from deploy.make_secrets import SECRET_NAMES, write_private_once
from deploy.outside_servers import BROKER_URL, DATABASE_URL, named_file, outside_url, passed_on
from deploy.outside_servers import NAMES as OUTSIDE
from deploy.place import STATE_FILE, data_directory, no_installation
from deploy.ports import LOOPBACK, choose_port, require_free
from deploy.state import (
    State,
    check_numbers,
    check_same_cluster,
    endpoint,
    internal_endpoint,
    node_port_names,
    other_number_of_nodes,
    settle_ports,
)
from deploy.tls import CERTIFICATE_SETTINGS, KEY_SETTINGS, TlsWish, settle_tls
from storage_nodes.ids import make_node_id, node_name
from storage_nodes.model import NodeAddress, format_node_list
from storage_nodes.trust.connection import AskingContext
from storage_nodes.trust.credentials import (
    DEFAULT_MODE,
    FILE_SETTINGS,
    MODE_SETTING,
    SETTINGS,
    CredentialFiles,
    Credentials,
    CredentialsRefused,
    InnerTlsMode,
)
from storage_nodes.trust.names import InnerName, InnerRole

ROOT = Path(__file__).resolve().parent.parent
PYTHON_CLIENT = ROOT / "clients" / "python" / "src"
UNCHANGED = TlsWish()
# Passwords of the embedded servers; not part of the processes' contract, so kept under names of their own.
SERVER_SECRET_NAMES = ("postgres.password", "valkey.password")
# In a folder that no process is told of.
ADMIN_SECRET_NAMES = ("postgres-admin.password",)
# Whose certificate a role's processes show to others of the installation; storage nodes have one each.
_NAME_OF_ROLE = {
    "metadata": (InnerRole.METADATA, "1"),
    "frontend": (InnerRole.FRONT_END, "1"),
    "control-plane": (InnerRole.CONTROL_PLANE, "1"),
    "worker": (InnerRole.WORKER, "1"),
    "usage-worker": (InnerRole.WORKER, "usage"),
    "manage": (InnerRole.OPERATOR, "manage"),
}
# Marks every process of an installation, so that what a killed supervisor left behind can be told from others'.
MARK = "PENSTOCK_INSTALLATION"

_RPC = ("PENSTOCK_CLUSTER_ID", "PENSTOCK_STORAGE_NODES")
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
MAIL_URL = "PENSTOCK_MAIL_URL"
MAIL_SETTINGS = (MAIL_URL, "PENSTOCK_MAIL_URL_FILE", "PENSTOCK_MAIL_DIR", "PENSTOCK_MAIL_FROM")
# Where the caller works on a project of Django or Celery of their own. Our processes set their own.
OF_OTHER_PROJECTS = ("DJANGO_SETTINGS_MODULE", "CELERY_CONFIG_MODULE")
SENDS_MAIL = ("control-plane", "worker", "manage")


class Installation:
    """The files of one data directory. Nothing here starts or stops anything."""

    def __init__(self, data_dir: str | os.PathLike[str] | None = None) -> None:
        self.data = data_directory(data_dir)
        self.run = self.data / "run"
        self.secrets = self.data / "secrets"
        self.admin = self.data / "admin"
        self.certificates = self.data / "certificates"
        self.logs = self.data / "logs"
        self.state_file = self.data / STATE_FILE
        self.pid_file = self.run / "supervisor.pid"
        self.demo_key_file = self.secrets / "demo-key.json"
        self._credentials: Credentials | None = None
        self._control_context: ssl.SSLContext | None = None

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
            raise CommandError(no_installation(self.data)) from None
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
        cluster_number: int | None = None,
    ) -> State:
        """The state to run with: the remembered one where there is one, with what the caller asked for checked."""
        check_numbers(port, node_count, front_ends, tls.redirect_port, cluster_number)
        if self.exists():
            state = self.load_state()
            state.port, state.host = port or state.port, host or state.host
            if node_count not in (None, len(state.node_ids())):
                raise CommandError(other_number_of_nodes(state), EXIT_USAGE)
            check_same_cluster(state, cluster_number)
        else:
            wanted = node_count or limits.DEFAULT_NODES
            state = State(f"pk-{secrets.token_hex(8)}", host or LOOPBACK, port or limits.DEFAULT_PORT, wanted)
            state.cluster_number = cluster_number or state.cluster_number
            state.front_ends = default_front_ends(len(os.sched_getaffinity(0)))
        state.front_ends = front_ends or state.front_ends
        settle_tls(state, tls)
        state.inner_tls = inner_mode(os.environ)
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
            NodeAddress(node_id, LOOPBACK, state.ports[f"node-{node_name(node_id)}"], f"zone-{node_name(node_id)}")
            for node_id in state.node_ids()
        ]

    def add_node(self, state: State) -> int:
        """Remember one storage node more, with ports of its own; its id, which no node had before."""
        if len(state.node_ids()) >= limits.NODES_MAX:
            raise CommandError(f"one machine runs at most {limits.NODES_MAX} storage nodes", EXIT_USAGE)
        state.node_count += 1
        node_id = make_node_id(state.cluster_number, state.node_count)
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
            "DATABASE_URL": outside_url(DATABASE_URL) or self.database_url(state),
            "CELERY_BROKER_URL": outside_url(BROKER_URL) or self.broker_url(state),
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
        settings |= (inner := self._inner_settings(state, role))
        hidden = {*settings, *SETTINGS, *OF_OTHER_PROJECTS}
        hidden |= {f"{name}_FILE" for name in hidden} | {*CERTIFICATE_SETTINGS, *KEY_SETTINGS}
        if role not in SENDS_MAIL:
            hidden.update(MAIL_SETTINGS)
        return {
            **{name: value for name, value in os.environ.items() if name not in hidden},
            "PATH": os.pathsep.join([str(Path(sys.executable).parent), os.environ.get("PATH", os.defpath)]),
            "PYTHONPATH": os.pathsep.join(filter(None, [str(ROOT), os.environ.get("PYTHONPATH", "")])),
            "PENSTOCK_LOG_LEVEL": os.environ.get("PENSTOCK_LOG_LEVEL") or "info",
            **common,
            **(named_file(MAIL_URL) if role in SENDS_MAIL else {}),
            **{name: settings[name] for name in (*names, *inner) if name not in OUTSIDE},
            **{key: said for name in names if name in OUTSIDE for key, said in passed_on(name, settings[name]).items()},
        }

    # --- certificates of the processes ------------------------------------------------------------------

    def _inner_settings(self, state: State, role: str) -> dict[str, str]:
        if role not in _NAME_OF_ROLE:
            return {MODE_SETTING: state.inner_tls}
        return self.certificate_settings(state, *_NAME_OF_ROLE[role])

    def certificate_settings(self, state: State, role: InnerRole, number: str) -> dict[str, str]:
        """What a process needs to show that it is this one. The certificate is made where there is none that is
        good."""
        if state.inner_tls == InnerTlsMode.OFF:
            return {MODE_SETTING: InnerTlsMode.OFF}
        files = self._certificate_files(InnerName(state.cluster_id, role, number))
        return {MODE_SETTING: state.inner_tls, **dict(zip(FILE_SETTINGS, files, strict=True))}

    def credentials(self, state: State) -> Credentials | None:
        """Those of the launcher and its commands."""
        if state.inner_tls == InnerTlsMode.OFF:
            return None
        if self._credentials is None:
            files = self._certificate_files(InnerName(state.cluster_id, InnerRole.OPERATOR, "launcher"))
            try:
                self._credentials = Credentials(state.cluster_id, files, InnerTlsMode(state.inner_tls))
            except CredentialsRefused as error:
                raise CommandError(f"the certificate of this command cannot be used: {error}") from None
        return self._credentials

    def control_context(self, state: State) -> ssl.SSLContext | None:
        """For HTTP to the control plane."""
        credentials = self.credentials(state)
        if credentials is None:
            return None
        self._control_context = self._control_context or AskingContext.of(credentials, InnerRole.CONTROL_PLANE)
        return self._control_context

    def renew_certificates(self, state: State) -> list[str]:
        """All that there are, where they near their end; which were renewed."""
        if state.inner_tls == InnerTlsMode.OFF:
            return []
        named = [*_NAME_OF_ROLE.values(), (InnerRole.OPERATOR, "launcher")]
        named += [(InnerRole.NODE, node_name(node_id)) for node_id in state.node_ids()]
        names = [InnerName(state.cluster_id, role, number) for role, number in named]
        return certificates.settle(self.admin, self.certificates, names)

    def _certificate_files(self, name: InnerName) -> CredentialFiles:
        try:
            certificates.settle(self.admin, self.certificates, [name])
        except OSError as error:
            raise CommandError(f"no certificate can be made in {self.certificates}: {error}") from None
        return certificates.files_of(self.certificates, name)

    def database_url(self, state: State) -> str:
        password = self.secret("postgres.password")
        return f"postgresql://penstock:{password}@{LOOPBACK}:{state.ports['postgres']}/penstock"

    def broker_url(self, state: State) -> str:
        return f"redis://:{self.secret('valkey.password')}@{LOOPBACK}:{state.ports['valkey']}/0"


def inner_mode(environment: Mapping[str, str]) -> InnerTlsMode:
    told = environment.get(MODE_SETTING) or DEFAULT_MODE
    try:
        return InnerTlsMode(told)
    except ValueError:
        known = ", ".join(InnerTlsMode)
        raise CommandError(f"{MODE_SETTING} is {told!r}, not one of {known}", EXIT_USAGE) from None


def default_front_ends(cores: int) -> int:
    return min(max(1, cores // limits.CORES_PER_FRONT_END), limits.FRONT_ENDS_MAX)
