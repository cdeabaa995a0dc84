"""A receiver of webhooks on loopback, behind TLS: keeps what it gets, answers what a test says, checks signatures."""

from __future__ import annotations

import re
import ssl
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import NamedTuple

from tests.support.certificates import CertificateAuthority

HOST = "127.0.0.1"
REQUEST_S_MAX = 10.0
_DOCUMENT = Path(__file__).resolve().parents[2] / "docs" / "webhooks.md"


class ReceivedCall(NamedTuple):
    """`headers` have names in small letters."""

    headers: dict[str, str]
    body: bytes


class WebhookReceiver:
    """`status` is what the next calls are answered. The port is held from the beginning."""

    def __init__(self, folder: Path) -> None:
        self.calls: list[ReceivedCall] = []
        self.status = 200
        authority = CertificateAuthority(folder)
        context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
        context.load_cert_chain(*authority.issue(hosts=(HOST,)))
        self._server = ThreadingHTTPServer((HOST, 0), self._handler())
        self._server.socket = context.wrap_socket(self._server.socket, server_side=True, do_handshake_on_connect=False)
        port = self._server.server_address[1]
        self.url = f"https://{HOST}:{port}/hooks/penstock"
        # Of the installation whose workers call it.
        self.settings = {
            "PENSTOCK_WEBHOOK_NETWORKS": f"{HOST}/32",
            "PENSTOCK_WEBHOOK_PORTS": f"443,{port}",
            "SSL_CERT_FILE": str(authority.file),
        }

    @contextmanager
    def serving(self) -> Iterator[WebhookReceiver]:
        thread = threading.Thread(target=self._server.serve_forever, name="webhook-receiver", daemon=True)
        thread.start()
        yield self
        self._server.shutdown()
        thread.join()

    def close(self) -> None:
        self._server.server_close()

    def _handler(self) -> type[BaseHTTPRequestHandler]:
        receiver = self

        class Handler(BaseHTTPRequestHandler):
            timeout = REQUEST_S_MAX

            def do_POST(self) -> None:
                body = self.rfile.read(int(self.headers["Content-Length"]))
                receiver.calls.append(ReceivedCall({name.lower(): value for name, value in self.headers.items()}, body))
                self.send_response(receiver.status)
                self.send_header("Content-Length", "0")
                self.end_headers()

            def log_message(self, format: str, *args: object) -> None:
                """Nothing: the tests look at what was kept."""

        return Handler


def documented_check() -> Callable[[str, dict[str, str], bytes], bool]:
    """The function that docs/webhooks.md gives to receivers."""
    found = re.search(r"```python\n(.*?)```", _DOCUMENT.read_text(), re.DOTALL)
    assert found is not None, "docs/webhooks.md shows a receiver how to check a signature"
    names: dict[str, Callable[[str, dict[str, str], bytes], bool]] = {}
    exec(found[1], names)
    return names["is_genuine"]
