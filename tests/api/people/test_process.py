"""The control plane as a process: a person signs up, gets a mail in the folder, confirms and signs in."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import urlsplit, urlunsplit

import httpx2
import pytest
from django.db import connection

from tests.support.installation import free_port

READY_S_MAX = 60
MAIL_S_MAX = 15
PASSWORD = "correct horse battery"
ROOT = Path(__file__).parents[3]


@pytest.fixture
def control_plane(transactional_db: None, tmp_path: Path) -> Iterator[httpx2.Client]:
    url = urlsplit(os.environ["DATABASE_URL"])
    address = f"127.0.0.1:{free_port()}"
    environment = {
        **os.environ,
        "DATABASE_URL": urlunsplit(url._replace(path="/" + str(connection.settings_dict["NAME"]))),
        "PENSTOCK_CONTROL_LISTEN": address,
        "PENSTOCK_MAIL_DIR": str(tmp_path / "mail"),
    }
    process = subprocess.Popen(
        [sys.executable, "-m", "api"], cwd=ROOT, env=environment, stderr=(tmp_path / "log").open("wb")
    )
    try:
        with httpx2.Client(base_url=f"http://{address}", trust_env=False, timeout=30) as client:
            wait_until_alive(client)
            yield client
    finally:
        process.terminate()
        process.wait(30)


def wait_until_alive(client: httpx2.Client) -> None:
    end_s = time.monotonic() + READY_S_MAX
    while True:
        try:
            if client.get("/internal/alive").status_code == 200:
                return
        except httpx2.HTTPError:
            pass
        assert time.monotonic() < end_s
        time.sleep(0.1)


def mailed_token(folder: Path) -> str:
    end_s = time.monotonic() + MAIL_S_MAX
    while time.monotonic() < end_s:
        for file in folder.glob("*.log"):
            found = re.search(r"pst[a-z]_[A-Za-z0-9_-]{43}", file.read_text())
            if found is not None:
                return found[0]
        time.sleep(0.05)
    raise AssertionError("no mail came")


@pytest.mark.slow
@pytest.mark.django_db(transaction=True)
def test_person_signs_up_and_in_through_a_real_process(control_plane: httpx2.Client, tmp_path: Path) -> None:
    payload = {"email": "ann@example.com", "password": PASSWORD}
    assert control_plane.post("/v1/people", json=payload).status_code == 202
    token = mailed_token(tmp_path / "mail")
    confirmed = control_plane.post("/v1/people/confirmation", json={"token": token, "password": PASSWORD})
    assert confirmed.status_code == 201
    made = control_plane.post("/v1/session", json=payload)
    assert made.status_code == 201
    session = {"Session-Token": made.json()["session_token"]}
    (account,) = control_plane.get("/v1/accounts", headers=session).json()["accounts"]
    assert (account["account_id"], account["role"]) == (confirmed.json()["account_id"], "owner")
    assert control_plane.delete("/v1/session", headers=session).status_code == 204
    assert control_plane.get("/v1/accounts", headers=session).status_code == 401
    assert token not in (tmp_path / "log").read_text()
