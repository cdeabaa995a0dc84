"""What an installation remembers from one `up` to the next: its addresses, its nodes and a port for each process.

Gives every process a port, and tells endpoints; `deploy/installation.py` reads and writes the file.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from deploy import limits
from deploy.errors import EXIT_USAGE, CommandError
from deploy.ports import LOOPBACK, choose_port, claim_port, is_free
from storage_nodes.ids import CLUSTER_FIRST, CLUSTER_NUMBER_MAX, make_node_id, node_name
from storage_nodes.trust.credentials import DEFAULT_MODE

# Of the front ends' port for the installation's own processes.
INTERNAL_PORT = "frontend-internal"
ROLES_WITH_METRICS = ("metadata", "control", "worker", "usage-worker", "schedule")


@dataclass
class State:
    """What must stay the same from one `up` to the next."""

    cluster_id: str
    host: str
    port: int
    node_count: int  # storage nodes that there ever were: their numbers are 1 to node_count
    ports: dict[str, int] = field(default_factory=dict)
    gone: list[int] = field(default_factory=list)  # ids of those that were decommissioned
    joining: list[int] = field(default_factory=list)  # and of those that were added and are not known to be members yet
    front_ends: int = 1  # they share the public port
    tls_certificate: str = ""  # paths of PEM files; "" = the public port speaks plain HTTP
    tls_key: str = ""
    public_name: str = ""  # of the endpoint, where the certificate is not for the address
    redirect_port: int = 0  # plain HTTP that sends to https; 0 = none
    inner_tls: str = DEFAULT_MODE  # between its own processes (PENSTOCK_INNER_TLS)
    cluster_number: int = CLUSTER_FIRST  # in the ids of nodes and partitions, for ever

    def node_ids(self) -> list[int]:
        made = (make_node_id(self.cluster_number, number) for number in range(1, self.node_count + 1))
        return [node_id for node_id in made if node_id not in self.gone]


def endpoint(state: State) -> str:
    host = state.public_name or (LOOPBACK if state.host in ("0.0.0.0", "::") else state.host)
    return f"{'https' if state.tls_certificate else 'http'}://{host}:{state.port}"


def internal_endpoint(state: State) -> str:
    """Where the installation's own processes and commands reach the front ends: no name and no certificate between."""
    return f"http://{LOOPBACK}:{state.ports[INTERNAL_PORT]}" if state.tls_certificate else endpoint(state)


def front_end_name(number: int) -> str:
    """Of its log and, with `-metrics`, of its operators' port."""
    return "frontend" if number == 1 else f"frontend-{number}"


# --- what `up` was asked for ---------------------------------------------------------------------------------


def other_number_of_nodes(state: State) -> str:
    return (
        f"this installation has {len(state.node_ids())} storage nodes; leave --nodes out, and use ./penstock node add "
        "and ./penstock node decommission to change their number"
    )


def check_same_cluster(state: State, number: int | None) -> None:
    """Raises CommandError: what exists carries the number."""
    if number not in (None, state.cluster_number):
        text = (
            f"this installation is cluster {state.cluster_number}, and its ids carry that; leave --cluster-number out"
        )
        raise CommandError(text, EXIT_USAGE)


def check_numbers(
    port: int | None,
    nodes: int | None,
    front_ends: int | None,
    redirect_port: int | None,
    cluster_number: int | None = None,
) -> None:
    """Of `up`, whatever runs already; None was not given. Raises CommandError."""
    for option, value, least, most in (
        ("--port", port, 1, limits.PORT_MAX),
        ("--nodes", nodes, 1, limits.NODES_MAX),
        ("--front-ends", front_ends, 1, limits.FRONT_ENDS_MAX),
        ("--redirect-port", redirect_port, 0, limits.PORT_MAX),
        ("--cluster-number", cluster_number, CLUSTER_FIRST, CLUSTER_NUMBER_MAX),
    ):
        if value is not None and not least <= value <= most:
            raise CommandError(f"{option} must lie between {least} and {most}; it is {value}", EXIT_USAGE)


# --- ports --------------------------------------------------------------------------------------------------


def internal_roles(state: State) -> list[str]:
    """Names of the ports that are chosen, not given: one a listening process, one a metrics page."""
    nodes = [name for node_id in state.node_ids() for name in node_port_names(node_id)]
    front_ends = [front_end_name(number) for number in range(1, state.front_ends + 1)]
    metrics = [f"{name}-metrics" for name in (*ROLES_WITH_METRICS, *front_ends)]
    internal = [INTERNAL_PORT] if state.tls_certificate else []
    return [*nodes, *metrics, *internal, "metadata", "control", "postgres", "valkey"]


def node_port_names(node_id: int) -> list[str]:
    return [f"node-{node_name(node_id)}", f"node-{node_name(node_id)}-metrics"]


def settle_ports(state: State) -> None:
    """Choose a free port for every name that has none, or whose port another process took since."""
    wanted = internal_roles(state)
    for name in [name for name in state.ports if name.startswith("frontend-") and name not in wanted]:
        del state.ports[name]
    taken = {state.port, state.redirect_port, *state.ports.values()}
    for name in wanted:
        if name in state.ports and is_free(LOOPBACK, state.ports[name]) and claim_port(state.ports[name]):
            continue
        state.ports[name] = choose_port(taken)
        taken.add(state.ports[name])
