"""Configuration of one storage node, read once from the environment and validated before anything starts.

A node starts in a fraction of a second and stays small, so this is a msgspec struct and not a settings framework.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Annotated

import msgspec

from storage_nodes.ids import CLUSTER_ID_CHARS_MAX, node_name, parse_node_name
from storage_nodes.limits import (
    DISK_RESERVE_BYTES,
    DISK_RESERVE_BYTES_MIN,
    NODE_MEMORY_BYTES_DEFAULT,
    NODE_MEMORY_BYTES_MIN,
)
from storage_nodes.model import NodeAddress, parse_node_list

ENVIRONMENT_PREFIX = "PENSTOCK_"

_Text = Annotated[str, msgspec.Meta(min_length=1, max_length=4_096)]


# How msgspec says where in the settings something is wrong.
_FIELD_AT = re.compile(r" - at `\$\.(\w+)`")


class ConfigError(ValueError):
    """A setting is missing or wrong; the text names it."""


class NodeConfig(msgspec.Struct, frozen=True):
    """Fields are the settings without their prefix, see docs/processes.md."""

    cluster_id: Annotated[str, msgspec.Meta(min_length=1, max_length=CLUSTER_ID_CHARS_MAX)]
    # The setting is the node's name: NUMBER, or CLUSTER.NUMBER in another cluster than the first (`ids.py`).
    node_id: int
    node_dir: _Text
    node_listen: _Text
    storage_nodes: _Text
    metrics_listen: str = ""
    log_level: str = "info"
    # Start as a new node of a cluster that runs already, not as one of its founders.
    node_join: bool = False
    node_disk_reserve_bytes: Annotated[int, msgspec.Meta(ge=DISK_RESERVE_BYTES_MIN)] = DISK_RESERVE_BYTES
    # To which feature level this node lets the cluster rise (docs/upgrades.md); 0 = as far as its release goes.
    feature_level_max: Annotated[int, msgspec.Meta(ge=0)] = 0
    # What the node may hold in memory for clients and peers (docs/backpressure.md).
    node_memory_bytes: Annotated[int, msgspec.Meta(ge=NODE_MEMORY_BYTES_MIN)] = NODE_MEMORY_BYTES_DEFAULT

    @staticmethod
    def from_environment(environment: Mapping[str, str]) -> NodeConfig:
        """Raises ConfigError."""
        values: dict[str, str | int] = {
            field: environment[ENVIRONMENT_PREFIX + field.upper()]
            for field in NodeConfig.__struct_fields__
            if ENVIRONMENT_PREFIX + field.upper() in environment
        }
        try:
            if "node_id" in values:
                values["node_id"] = parse_node_name(environment[f"{ENVIRONMENT_PREFIX}NODE_ID"])
            config = msgspec.convert(values, NodeConfig, strict=False)
            config.own_address  # noqa: B018 - reading it checks it
            split_listen(config.node_listen)
        except (msgspec.ValidationError, ValueError) as error:
            if wrong := _FIELD_AT.search(str(error)):
                field = wrong[1]
                told = str(error)[: wrong.start()]
                raise ConfigError(f"{ENVIRONMENT_PREFIX}{field.upper()} is {values[field]!r}: {told}") from error
            names = ", ".join(ENVIRONMENT_PREFIX + field.upper() for field in NodeConfig.__struct_fields__[:5])
            raise ConfigError(f"{error} (a node needs {names})") from error
        return config

    @property
    def process_name(self) -> str:
        """In its log, and to the nodes that it calls."""
        return f"node-{node_name(self.node_id)}"

    @property
    def nodes(self) -> list[NodeAddress]:
        return parse_node_list(self.storage_nodes)

    @property
    def own_address(self) -> NodeAddress:
        """Our entry of the node list. Raises ValueError when we are not in it."""
        for node in self.nodes:
            if node.node_id == self.node_id:
                return node
        raise ValueError(f"{ENVIRONMENT_PREFIX}STORAGE_NODES does not name node {node_name(self.node_id)}")


def split_listen(text: str) -> tuple[str, int]:
    """`host:port` of a ..._LISTEN setting. Raises ValueError."""
    host, colon, port = text.rpartition(":")
    if not (colon and host and port.isdigit()):
        raise ValueError(f"{text!r} is not of the form HOST:PORT")
    return host, int(port)
