"""The processes of an installation: their commands (docs/processes.md), addresses, and what each must wait for.

    postgres ------> metadata service
      `-> schema ---> demo key
             |
    valkey --+-----> control plane, worker       all of it -> schedule, usage worker
    storage nodes --> front end

What does not depend on another starts beside it. `docker-compose.yml` runs the same commands.
"""

from __future__ import annotations

import sys

from deploy import probes
from deploy.child import ChildSpec
from deploy.installation import Installation
from deploy.ports import LOOPBACK
from deploy.state import INTERNAL_PORT, State, front_end_name
from storage_nodes.ids import node_name
from storage_nodes.model import NodeAddress, format_node_list
from storage_nodes.trust.names import InnerRole

PYTHON = sys.executable
# Threads wait for storage nodes and PostgreSQL; one process with a few of them serves a whole laptop's lifecycle work.
WORKER_THREADS = 4


def storage_node_specs(installation: Installation, state: State) -> list[ChildSpec]:
    return [storage_node_spec(installation, state, node) for node in installation.nodes(state)]


def storage_node_spec(installation: Installation, state: State, node: NodeAddress) -> ChildSpec:
    own = node_name(node.node_id)
    directory = installation.data / "nodes" / own
    directory.parent.mkdir(mode=0o700, exist_ok=True)
    directory.mkdir(mode=0o700, exist_ok=True)
    name = f"node-{own}"
    return ChildSpec(
        role="storage-node",
        number=node.node_id,
        log_name=name,
        command=[PYTHON, "-m", "storage_nodes"],
        address=(LOOPBACK, node.port),
        probe=lambda: probes.answers_greeting(node, state.cluster_id, installation.credentials(state)),
        environment={
            **installation.certificate_settings(state, InnerRole.NODE, own),
            "PENSTOCK_NODE_ID": own,
            "PENSTOCK_NODE_DIR": str(directory),
            "PENSTOCK_NODE_LISTEN": f"{LOOPBACK}:{node.port}",
            "PENSTOCK_METRICS_LISTEN": metrics(state, name),
            # As the nodes are now: the supervisor's own list may be from before one was added.
            "PENSTOCK_STORAGE_NODES": format_node_list(installation.nodes(state)),
            "PENSTOCK_NODE_JOIN": str(int(node.node_id in state.joining)),
        },
    )


def metadata_spec(state: State) -> ChildSpec:
    port = state.ports["metadata"]
    return ChildSpec(
        role="metadata",
        command=[PYTHON, "-m", "api.metadata"],
        address=(LOOPBACK, port),
        probe=lambda: probes.answers_http(
            (LOOPBACK, state.ports["metadata-metrics"]), "/healthz", also=(LOOPBACK, port)
        ),
        environment={
            "PENSTOCK_METADATA_LISTEN": f"{LOOPBACK}:{port}",
            "PENSTOCK_METRICS_LISTEN": metrics(state, "metadata"),
        },
    )


def control_spec(installation: Installation, state: State) -> ChildSpec:
    port = state.ports["control"]
    return ChildSpec(
        role="control-plane",
        command=[PYTHON, "-m", "api"],
        address=(LOOPBACK, port),
        probe=lambda: probes.answers_http(
            (LOOPBACK, port), "/internal/alive", also=(LOOPBACK, port), tls=installation.control_context(state)
        ),
        environment={
            "PENSTOCK_CONTROL_LISTEN": f"{LOOPBACK}:{port}",
            "PENSTOCK_METRICS_LISTEN": metrics(state, "control"),
        },
    )


def frontend_specs(state: State) -> list[ChildSpec]:
    return [frontend_spec(state, number) for number in range(1, state.front_ends + 1)]


def frontend_spec(state: State, number: int) -> ChildSpec:
    """All of them listen on the public port; each is asked for its health on an operators' port of its own."""
    public_host = LOOPBACK if state.host in ("0.0.0.0", "::") else state.host
    name = front_end_name(number)
    operators = (LOOPBACK, state.ports[f"{name}-metrics"])
    environment = {
        "PENSTOCK_LISTEN": f"{state.host}:{state.port}",
        "PENSTOCK_LISTEN_SHARED": str(int(state.front_ends > 1)),
        "PENSTOCK_METRICS_LISTEN": metrics(state, name),
    }
    if state.tls_certificate:
        environment["PENSTOCK_TLS_CERTIFICATE"] = state.tls_certificate
        environment["PENSTOCK_TLS_KEY"] = state.tls_key
        environment["PENSTOCK_INTERNAL_LISTEN"] = f"{LOOPBACK}:{state.ports[INTERNAL_PORT]}"
    if state.redirect_port:
        environment["PENSTOCK_REDIRECT_LISTEN"] = f"{state.host}:{state.redirect_port}"
    return ChildSpec(
        role="frontend",
        number=number,
        log_name=name,
        command=[PYTHON, "-m", "frontend"],
        address=(public_host, state.port),
        probe=lambda: probes.answers_well(operators, "/healthz"),
        environment=environment,
    )


def worker_spec(state: State) -> ChildSpec:
    # Gossip, mingle and heartbeats serve fleets of workers; here they would only wake an idle machine.
    quiet = ["--without-gossip", "--without-mingle", "--without-heartbeat", "-l", "warning"]
    pool = ["-P", "threads", "-c", str(WORKER_THREADS)]
    return ChildSpec(
        role="worker",
        command=[PYTHON, "-m", "celery", "-A", "workers", "worker", *pool, *quiet],
        address=(LOOPBACK, state.ports["worker-metrics"]),
        http_path="/healthz",
        environment={"PENSTOCK_METRICS_LISTEN": metrics(state, "worker")},
    )


def usage_worker_spec(state: State) -> ChildSpec:
    """One task at a time, which starts Spark as a process of its own; without Spark it says so and waits."""
    quiet = ["--without-gossip", "--without-mingle", "--without-heartbeat", "-l", "warning"]
    return ChildSpec(
        role="usage-worker",
        command=[PYTHON, "-m", "celery", "-A", "workers", "worker", "-Q", "usage", "-P", "threads", "-c", "1", *quiet],
        address=(LOOPBACK, state.ports["usage-worker-metrics"]),
        http_path="/healthz",
        environment={"PENSTOCK_PROCESS": "usage-worker", "PENSTOCK_METRICS_LISTEN": metrics(state, "usage-worker")},
    )


def schedule_spec(state: State) -> ChildSpec:
    return ChildSpec(
        role="schedule",
        command=[PYTHON, "-m", "celery", "-A", "workers", "beat", "-l", "warning"],
        address=(LOOPBACK, state.ports["schedule-metrics"]),
        http_path="/healthz",
        environment={"PENSTOCK_METRICS_LISTEN": metrics(state, "schedule")},
    )


def metrics(state: State, name: str) -> str:
    return f"{LOOPBACK}:{state.ports[f'{name}-metrics']}"
