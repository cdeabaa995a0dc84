"""The clients that are tried, each with the environment it needs and the command that runs its program."""

from __future__ import annotations

import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from tests.clients.environments import Environments

DEFAULT_REGION = "us-east-1"
# A name that Amazon does not have, for what depends on that.
OWN_REGION = "penstock-1"


@dataclass(frozen=True)
class Program:
    command: list[str]
    directory: Path | None = None  # the repository where none is given
    settings: tuple[tuple[str, str], ...] = ()


@dataclass(frozen=True)
class Client:
    """`prepare` makes the environment, or raises NotInstallable."""

    name: str
    title: str
    prepare: Callable[[Environments], Program]
    timeout_s: float
    region: str = DEFAULT_REGION


def _module(name: str, *arguments: str) -> list[str]:
    return ["-m", f"tests.clients.programs.{name}", *arguments]


def _own_python(name: str, *arguments: str) -> Callable[[Environments], Program]:
    """With the packages of the project itself."""
    return lambda environments: Program([sys.executable, *_module(name, *arguments)])


def _python(environment: str, name: str) -> Callable[[Environments], Program]:
    return lambda environments: Program([str(environments.python(environment)), *_module(name)])


def _aws(way: str) -> Callable[[Environments], Program]:
    return lambda environments: Program(
        [sys.executable, *_module("aws_cli", way)],
        settings=(("AWS_PROGRAM", str(environments.program("awscli", "aws"))),),
    )


def _javascript(program: str) -> Callable[[Environments], Program]:
    return lambda environments: Program([str(environments.program("node", "node")), program], environments.javascript())


CLIENTS = [
    Client("boto3", "boto3 (JSON protocol)", _own_python("boto3_actions"), 180),
    Client("boto3-query", "boto3 (query protocol)", _python("boto3_query", "boto3_actions"), 180),
    Client("aiobotocore", "aiobotocore", _python("aiobotocore", "aiobotocore_actions"), 180),
    Client("aws-cli", "AWS command line (--endpoint-url)", _aws("option"), 400),
    Client("aws-cli-variable", "AWS command line (AWS_ENDPOINT_URL_SQS)", _aws("variable"), 400, OWN_REGION),
    Client("javascript", "JavaScript SDK v3 (@aws-sdk/client-sqs)", _javascript("actions.mjs"), 240),
    Client("sqs-consumer", "sqs-consumer (npm)", _javascript("consumer.mjs"), 300),
    Client("signers", "aws-lite and sqs-producer (npm)", _javascript("signers.mjs"), 120),
    Client("aiosqs", "aiosqs", _python("workers", "aiosqs_actions"), 180),
    Client("dramatiq", "dramatiq-sqs", _python("workers", "dramatiq_runs"), 300),
    Client("sqs-workers", "sqs-workers", _python("workers", "sqs_workers_runs"), 300),
    Client("celery", "Celery, SQS transport (JSON protocol)", _python("celery", "celery_runs"), 600),
    Client("celery-query", "Celery, SQS transport (query protocol)", _python("celery_query", "celery_runs"), 600),
]
