"""Settings of the front end, read once from the environment. `docs/processes.md` has the table."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field, ValidationInfo, field_validator, model_validator
from pydantic_settings import BaseSettings, SettingsConfigDict

from storage_nodes.ids import CLUSTER_ID_CHARS_MAX
from storage_nodes.model import NodeAddress, parse_node_list


class FrontendConfig(BaseSettings):
    """Fields are the settings without their prefix. Settings of other processes are ignored."""

    model_config = SettingsConfigDict(env_prefix="PENSTOCK_", extra="ignore", frozen=True)

    cluster_id: Annotated[str, Field(min_length=1, max_length=CLUSTER_ID_CHARS_MAX)]
    region: Annotated[str, Field(pattern=r"^[a-z0-9-]{1,32}$")] = "us-east-1"
    # All that requests may be signed for, separated by commas; empty: `region` alone.
    regions: Annotated[str, Field(pattern=r"^([a-z0-9-]{1,32}(,[a-z0-9-]{1,32}){0,31})?$")] = ""
    secrets_dir: Annotated[str, Field(min_length=1)]
    storage_nodes: Annotated[str, Field(min_length=1)]
    metadata: str
    control: str
    listen: str = "127.0.0.1:9324"
    # Other front ends of this machine listen there too, and the kernel shares connections out.
    listen_shared: bool = False
    metrics_listen: str = ""
    # Plain HTTP for the installation's own processes, where `listen` speaks TLS. Shared like it.
    internal_listen: str = ""
    # Plain HTTP that sends visitors to https, and the port of https as they know it. Shared like `listen`.
    redirect_listen: str = ""
    redirect_port: Annotated[int, Field(ge=0, le=65_535)] = 0
    # Paths of PEM files, each under two names; without them `listen` speaks plain HTTP.
    tls_certificate: str = ""
    tls_certificate_file: str = ""
    tls_key: str = ""
    tls_key_file: str = ""
    log_level: Annotated[str, Field(pattern=r"^(?i:debug|info|warning|error)$")] = "info"
    # Addresses whose X-Forwarded-For and -Proto are believed. Empty: nobody's.
    trusted_proxies: str = ""

    @field_validator("metadata", "control", "listen")
    @classmethod
    def _is_address(cls, value: str) -> str:
        split_address(value)
        return value

    @field_validator("storage_nodes")
    @classmethod
    def _is_node_list(cls, value: str) -> str:
        if not parse_node_list(value):
            raise ValueError("the node list is empty")
        return value

    @field_validator("metrics_listen", "internal_listen", "redirect_listen")
    @classmethod
    def _is_address_or_nothing(cls, value: str) -> str:
        return cls._is_address(value) if value else value

    @field_validator("regions")
    @classmethod
    def _names_region(cls, value: str, info: ValidationInfo) -> str:
        if value and info.data.get("region") not in value.split(","):
            raise ValueError("PENSTOCK_REGION, which ARNs show, is not among them")
        return value

    @model_validator(mode="after")
    def _tls_is_whole(self) -> FrontendConfig:
        files = (self.tls_certificate or self.tls_certificate_file, self.tls_key or self.tls_key_file)
        if any(files) and not all(files):
            raise ValueError("PENSTOCK_TLS_CERTIFICATE and PENSTOCK_TLS_KEY are needed both, or neither")
        if self.redirect_listen and not all(files):
            raise ValueError("PENSTOCK_REDIRECT_LISTEN sends to https, which needs PENSTOCK_TLS_CERTIFICATE")
        return self

    @model_validator(mode="after")
    def _addresses_differ(self) -> FrontendConfig:
        given = (self.listen, self.internal_listen, self.redirect_listen, self.metrics_listen)
        # Where the system chooses the port, they differ.
        named = [address for address in given if address and split_address(address)[1]]
        if len(named) != len(set(named)):
            raise ValueError("what the front end listens on must be different addresses")
        return self

    @property
    def tls_files(self) -> tuple[str, str] | None:
        """Certificate and key."""
        certificate, key = self.tls_certificate or self.tls_certificate_file, self.tls_key or self.tls_key_file
        return (certificate, key) if certificate else None

    @property
    def all_regions(self) -> list[str]:
        return self.regions.split(",") if self.regions else [self.region]

    @property
    def nodes(self) -> list[NodeAddress]:
        return parse_node_list(self.storage_nodes)


def split_address(address: str) -> tuple[str, int]:
    """`host:port`, the host of IPv6 in brackets. Raises ValueError."""
    host, colon, port = address.rpartition(":")
    if not (colon and host and port.isdigit() and int(port) < 65_536):
        raise ValueError(f"{address!r} is not of the form HOST:PORT")
    return host.strip("[]"), int(port)
