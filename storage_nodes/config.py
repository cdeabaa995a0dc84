"""Configuration of one storage node, read once from the environment and validated before anything starts."""

from __future__ import annotations

from pydantic import Field, field_validator
from pydantic_settings import BaseSettings, SettingsConfigDict

from storage_nodes.model import NodeAddress, parse_node_list


class NodeConfig(BaseSettings):
    """See docs/processes.md for the names. Raises pydantic.ValidationError with the setting's name."""

    model_config = SettingsConfigDict(env_prefix="PENSTOCK_", extra="ignore")

    cluster_id: str = Field(min_length=1, max_length=64)
    node_id: int = Field(ge=1, le=65_535)
    node_dir: str = Field(min_length=1)
    node_listen: str
    storage_nodes: str
    metrics_listen: str = ""
    log_level: str = "info"

    @field_validator("storage_nodes")
    @classmethod
    def _node_list_parses(cls, text: str) -> str:
        if not parse_node_list(text):
            raise ValueError("names no node")
        return text

    @property
    def nodes(self) -> list[NodeAddress]:
        return parse_node_list(self.storage_nodes)

    @property
    def own_address(self) -> NodeAddress:
        """Our entry of the node list. Raises ValueError when we are not in it."""
        for node in self.nodes:
            if node.node_id == self.node_id:
                return node
        raise ValueError(f"PENSTOCK_STORAGE_NODES does not name node {self.node_id}")


def split_listen(text: str) -> tuple[str, int]:
    """`host:port` of a ..._LISTEN setting. Raises ValueError."""
    host, colon, port = text.rpartition(":")
    if not (colon and host and port.isdigit()):
        raise ValueError(f"{text!r} is not of the form HOST:PORT")
    return host, int(port)
