"""The demo account's key: rotated, it is followed; ended, every command that uses it says so and how to go on."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest
from botocore.exceptions import ClientError

from deploy import demo, management
from deploy.__main__ import main
from deploy.errors import CommandError
from deploy.installation import Installation
from deploy.ports import choose_port
from deploy.queue_clients import queue_url
from deploy.state import State

KEY = {
    "account_id": "000000000001",
    "access_key_id": "AKPSAAAAAAAAAAAAAAAA",
    "secret_access_key": "s" * 40,
    "bearer_token": "pstk_old",
    "endpoint": "http://127.0.0.1:1",
    "region": "us-east-1",
}
ROTATED = {**KEY, "access_key_id": "AKPSBBBBBBBBBBBBBBBB", "bearer_token": "pstk_new"}


@pytest.fixture
def installation(tmp_path: Path) -> Installation:
    made = Installation(tmp_path / "data")
    made.prepare()
    made.settle_state(None, choose_port(set()), 3)
    made.demo_key_file.write_text(json.dumps(KEY))
    return made


@pytest.fixture
def operated(monkeypatch: pytest.MonkeyPatch) -> Callable[[Any], None]:
    def answer_with(answer: Any) -> None:
        monkeypatch.setattr(management, "operate", lambda *asked: answer)

    return answer_with


class Refusing(BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        is_good = self.headers["Authorization"] == "Bearer pstk_new"
        self.send_response(200 if is_good else 401)
        self.send_header("Content-Length", "0")
        self.end_headers()

    def log_message(self, format: str, *args: Any) -> None:
        pass


@pytest.fixture
def state(installation: Installation) -> Iterator[State]:
    """Its front end knows the rotated key alone."""
    server = ThreadingHTTPServer(("127.0.0.1", 0), Refusing)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    made = installation.load_state()
    made.port = server.server_address[1]
    yield made
    server.shutdown()
    server.server_close()


def test_rotated_demo_key_is_what_the_commands_use_from_then_on(
    installation: Installation, operated: Callable[[Any], None], capsys: pytest.CaptureFixture[str]
) -> None:
    operated(ROTATED)
    assert main(["keys", "rotate", KEY["access_key_id"], "--grace", "0", "--data-dir", str(installation.data)]) == 0
    assert json.loads(installation.demo_key_file.read_text())["bearer_token"] == "pstk_new"
    assert installation.demo_key_file.stat().st_mode & 0o777 == 0o600
    assert "send" in capsys.readouterr().err


def test_rotated_key_of_another_account_leaves_the_demo_key(
    installation: Installation, operated: Callable[[Any], None]
) -> None:
    operated(ROTATED)
    assert main(["keys", "rotate", "AKPSCCCCCCCCCCCCCCCC", "--data-dir", str(installation.data)]) == 0
    assert json.loads(installation.demo_key_file.read_text()) == KEY


def test_revoked_demo_key_comes_with_the_way_back(
    installation: Installation, operated: Callable[[Any], None], capsys: pytest.CaptureFixture[str]
) -> None:
    operated({})
    assert main(["keys", "revoke", KEY["access_key_id"], "--data-dir", str(installation.data)]) == 0
    assert f"rm {installation.demo_key_file}" in capsys.readouterr().err


def test_introduction_shows_no_key_that_opens_nothing(installation: Installation, state: State) -> None:
    text = demo.introduction(installation, state, KEY, 1.0)
    assert "pstk_old" not in text and "opens nothing" in text and f"rm {installation.demo_key_file}" in text
    assert "pstk_new" in demo.introduction(installation, state, ROTATED, 1.0)


def test_introduction_shows_the_key_while_the_endpoint_does_not_answer(installation: Installation) -> None:
    assert "pstk_old" in demo.introduction(installation, installation.load_state(), KEY, 1.0)


def test_introduction_to_what_already_runs_names_no_start(installation: Installation) -> None:
    state = installation.load_state()
    assert "\nPenstock is up after 1.0 s.\n" in demo.introduction(installation, state, KEY, 1.0)
    assert "\nPenstock is up.\n" in demo.introduction(installation, state, KEY, None)


def test_send_with_an_ended_key_names_it_and_the_way_back(installation: Installation) -> None:
    class Client:
        class exceptions:
            QueueDoesNotExist = KeyError

        def get_queue_url(self, QueueName: str) -> None:
            raise ClientError({"Error": {"Code": "InvalidClientTokenId", "Message": "invalid"}}, "GetQueueUrl")

    with pytest.raises(CommandError, match=f"{KEY['access_key_id']} opens nothing.* rm "):
        queue_url(installation, Client(), "hello", create=True)


def test_printed_queue_is_made_before_it_is_sent_to(installation: Installation, state: State) -> None:
    key = {**ROTATED, "endpoint": "http://127.0.0.1:1"}
    text = demo.introduction(installation, state, key, 1.0)
    assert text.index(demo.curl_queue_line(key)) < text.index(demo.curl_line(key))
