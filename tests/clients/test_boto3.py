"""The project's own boto3 against an installation: the checks of boto3_actions, in both protocols.

The boto3 of today speaks JSON. Given the query model it writes forms and reads XML, as the older ones did, which
`python -m tests.clients boto3-query` runs for real.
"""

from __future__ import annotations

import copy
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import botocore.loaders
import botocore.session
import pytest

from tests.clients.__main__ import client_environment
from tests.clients.programs import boto3_actions
from tests.clients.programs.boto3_subject import Subject, protocol
from tests.clients.programs.checks import Check
from tests.frontend.compat.documented import QUERY_CODES
from tests.frontend.compat.query_model import query_model
from tests.support.installation import RunningInstallation

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module", autouse=True)
def environment(installation: RunningInstallation) -> Iterator[None]:
    """What a client is told: the endpoint, the region and a key."""
    with pytest.MonkeyPatch.context() as patch:
        for name, value in client_environment(installation).items():
            patch.setenv(name, value)
        yield


@pytest.fixture(scope="module")
def json_subject(environment: None) -> Subject:
    return Subject()


@pytest.fixture(scope="module")
def query_subject(environment: None, tmp_path_factory: pytest.TempPathFactory) -> Subject:
    folder: Path = tmp_path_factory.mktemp("models") / "sqs" / "2012-11-05"
    folder.mkdir(parents=True)
    (folder / "service-2.json").write_text(json.dumps(model_with_error_codes()))
    core = botocore.session.get_session()
    core.register_component("data_loader", botocore.loaders.Loader(extra_search_paths=[str(folder.parents[1])]))
    subject = Subject(core)
    assert protocol(subject.sqs) == "query"
    return subject


def model_with_error_codes() -> dict[str, Any]:
    """By these codes the older models know which class of client.exceptions an error is."""
    model = copy.deepcopy(query_model())
    for name, shape in model["shapes"].items():
        if shape.get("exception"):
            shape["error"] = {"code": QUERY_CODES.get(name, name), "httpStatusCode": 400, "senderFault": True}
    return model


def by_name(check: Check) -> str:
    return getattr(check, "__name__", str(check)).removeprefix("check_")


@pytest.mark.parametrize("check", [*boto3_actions.CHECKS, boto3_actions.check_environment_is_enough], ids=by_name)
def test_boto3_json_works_unchanged(check: Check, json_subject: Subject) -> None:
    check(json_subject)


@pytest.mark.parametrize("check", boto3_actions.CHECKS, ids=by_name)
def test_boto3_query_works_unchanged(check: Check, query_subject: Subject) -> None:
    check(query_subject)
