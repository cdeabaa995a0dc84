"""The one reader of the environment for Django, the workers and their tools.

Names and meanings: docs/processes.md. A secret may be given as `<NAME>_FILE`, the path of a file that holds it. Errors
say which setting is wrong and never print values.
"""

from __future__ import annotations

import functools
import os
from typing import Any

from pydantic import Field, ValidationError, field_validator
from pydantic_settings import BaseSettings, SettingsConfigDict

from api.billing.limits import BILLING_INTERVAL_S, BILLING_INTERVAL_S_MAX, BILLING_INTERVAL_S_MIN
from api.limits import AUDIT_DAYS_DEFAULT, AUDIT_DAYS_MAX, AUDIT_DAYS_MIN
from api.settings.mail import MAIL_URL, parse_mail_url
from api.settings.server_urls import BROKER_URL, DATABASE_URL, SettingsError, is_given, parse_database_url, server_url
from api.webhooks.addresses import parse_networks, parse_ports
from frontend.crypto.keyring import read_key_file
from storage_nodes.model import NodeAddress, parse_node_list

BILLING_INTERVAL = "PENSTOCK_BILLING_INTERVAL_S"


class Environment(BaseSettings):
    model_config = SettingsConfigDict(env_prefix="PENSTOCK_", extra="ignore", frozen=True, hide_input_in_errors=True)

    database_url: str = Field(validation_alias="DATABASE_URL")
    # Without it workers find their rows by themselves. No default: what listens there could not be trusted.
    celery_broker_url: str = Field(default="", validation_alias="CELERY_BROKER_URL")
    secrets_dir: str
    cluster_id: str = ""
    region: str = "us-east-1"
    storage_nodes: str = ""
    control_listen: str = "127.0.0.1:7301"
    metrics_listen: str = ""
    endpoint: str = "http://127.0.0.1:9324"
    # Where the control plane itself finds a front end; the endpoint where nothing else is said.
    frontend_url: str = ""
    allowed_hosts: str = ""
    # The Parquet lake of usage. Empty: usage is not settled here.
    usage_lake: str = ""
    # Records of usage that retention removed before they were read: the round fails, or goes on behind them (`skip`).
    usage_removed_records: str = "fail"
    mail_url: str = Field(default="", validation_alias=MAIL_URL)
    mail_dir: str = ""
    mail_from: str = "Penstock <penstock@localhost>"
    # What webhooks may call beside the internet, and on which ports.
    webhook_networks: str = ""
    webhook_ports: str = "443,8443"
    log_level: str = "info"
    # 0: for good.
    audit_days: int = AUDIT_DAYS_DEFAULT

    @field_validator("audit_days")
    @classmethod
    def _audit_days_known(cls, value: int) -> int:
        if value and not AUDIT_DAYS_MIN <= value <= AUDIT_DAYS_MAX:
            raise ValueError(f"must be 0 or from {AUDIT_DAYS_MIN} to {AUDIT_DAYS_MAX}")
        return value

    @field_validator("database_url")
    @classmethod
    def _database_url_parses(cls, value: str) -> str:
        parse_database_url(value)
        return value

    @field_validator("storage_nodes")
    @classmethod
    def _storage_nodes_parse(cls, value: str) -> str:
        parse_node_list(value)
        return value

    @field_validator("usage_removed_records")
    @classmethod
    def _usage_removed_records_known(cls, value: str) -> str:
        if value not in ("fail", "skip"):
            raise ValueError("must be fail or skip")
        return value

    @field_validator("mail_url")
    @classmethod
    def _mail_url_parses(cls, value: str) -> str:
        if value:
            parse_mail_url(value)
        return value

    @field_validator("webhook_networks")
    @classmethod
    def _webhook_networks_parse(cls, value: str) -> str:
        parse_networks(value)
        return value

    @field_validator("webhook_ports")
    @classmethod
    def _webhook_ports_parse(cls, value: str) -> str:
        parse_ports(value)
        return value

    @field_validator("log_level")
    @classmethod
    def _log_level_known(cls, value: str) -> str:
        if value.lower() not in ("debug", "info", "warning", "error"):
            raise ValueError("must be debug, info, warning or error")
        return value.lower()

    def nodes(self) -> list[NodeAddress]:
        return parse_node_list(self.storage_nodes)

    def secret(self, file_name: str) -> bytes:
        """The 32 bytes of one file of the secrets directory."""
        return read_key_file(self.secrets_dir, file_name)


@functools.cache
def environment() -> Environment:
    """Read once per process. Raises SettingsError."""
    urls: dict[str, Any] = {name: server_url(name) for name in (DATABASE_URL, BROKER_URL, MAIL_URL) if is_given(name)}
    try:
        return Environment(**urls)
    except ValidationError as error:
        problems = [f"{_setting(item['loc'])}: {item['msg']}" for item in error.errors(include_input=False)]
        raise SettingsError("; ".join(problems)) from None


def _setting(place: tuple[int | str, ...]) -> str:
    """The variable that the operator sets: a field has its name without the prefix, an alias is the name itself."""
    name = ".".join(map(str, place))
    return f"{Environment.model_config['env_prefix']}{name.upper()}" if name in Environment.model_fields else name


def billing_interval_s() -> int:
    """How often drafts are made again and budgets watched. By itself: the schedule reads it before anything else.

    Raises SettingsError.
    """
    text = os.environ.get(BILLING_INTERVAL) or str(BILLING_INTERVAL_S)
    if not (text.isascii() and text.isdigit() and BILLING_INTERVAL_S_MIN <= int(text) <= BILLING_INTERVAL_S_MAX):
        raise SettingsError(
            f"{BILLING_INTERVAL} must be a number of seconds from {BILLING_INTERVAL_S_MIN} to {BILLING_INTERVAL_S_MAX}"
        )
    return int(text)


def split_listen(text: str) -> tuple[str, int]:
    """`127.0.0.1:7301` -> host and port. Raises SettingsError."""
    host, colon, port = text.rpartition(":")
    if not (colon and host and port.isdigit()):
        raise SettingsError(f"{text!r} is not of the form HOST:PORT")
    return host.strip("[]"), int(port)
