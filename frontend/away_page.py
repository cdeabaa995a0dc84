"""The page that a browser is shown for the console while the control plane cannot make one.

It loads nothing: what it would load comes from the control plane. The style stands in it, under its own digest.
"""

from __future__ import annotations

import base64
import hashlib

from frontend.errors import RequestError
from frontend.http import CLOSE_CONNECTION, HttpResponse, Request

CONSOLE = b"/console"
# The colours and sizes of the console (docs/console.md).
_STYLE = (
    ":root{color-scheme:light dark}"
    "body{margin:0;background:#f7f8f8;color:#1b2024;font:14px/1.5 system-ui,-apple-system,'Segoe UI',Roboto,sans-serif}"
    "main{max-width:480px;margin:48px auto;padding:40px 16px;text-align:center}"
    "h1{margin:0;font-size:20px;line-height:1.3}p{margin:8px 0 0;color:#5b666f}code{font-size:13px}"
    "a{display:inline-block;margin-top:16px;padding:6px 12px;border-radius:6px;background:#0a666d;color:#fff;"
    "text-decoration:none}a:focus-visible{outline:2px solid #0a666d;outline-offset:2px}"
    "@media(prefers-color-scheme:dark){body{background:#121518;color:#e6eaed}p{color:#9da8b1}"
    "a{background:#5cc5cc;color:#06292b}}"
)
_DIGEST = base64.b64encode(hashlib.sha256(_STYLE.encode()).digest()).decode()
_POLICY = f"default-src 'none'; style-src 'sha256-{_DIGEST}'; base-uri 'none'; frame-ancestors 'none'"
_PAGE = (
    '<!doctype html><html lang="en"><head><meta charset="utf-8"><title>Not available · Penstock</title>'
    '<meta name="viewport" content="width=device-width, initial-scale=1"><style>{style}</style></head>'
    "<body><main><h1>The console is not available at the moment</h1>"
    "<p>Queues go on: messages are sent and received as before. Nothing that you asked for here was lost, but a form that"
    " you have just sent may not have been taken.</p>"
    "<p>Try again in {seconds} s. If this stays, tell the operator of this installation the id <code>{request_id}</code>."
    '</p><p><a href="/console/">To the first page</a></p></main></body></html>'
)
# Into a page that is there.
_PIECE = '<p class="note bad" role="alert">The console is not available at the moment. Try again in {seconds} s.</p>'
_RETRY_S_DEFAULT = 5


def wants_page(request: Request, error: RequestError) -> bool:
    """Does a browser load a page of the console, or a piece of one?"""
    if error.kind.rest_status != 503 or not request.path.startswith(CONSOLE):
        return False
    return b"text/html" in request.headers.get(b"accept", b"").lower() or b"hx-request" in request.headers


def away_page(request: Request, error: RequestError) -> HttpResponse:
    seconds = error.retry_after_s or _RETRY_S_DEFAULT
    is_piece = b"hx-request" in request.headers and b"hx-boosted" not in request.headers
    text = (_PIECE if is_piece else _PAGE).format(style=_STYLE, seconds=seconds, request_id=request.request_id)
    headers = [
        (b"content-type", b"text/html; charset=utf-8"),
        (b"content-security-policy", _POLICY.encode()),
        (b"x-frame-options", b"DENY"),
        (b"x-content-type-options", b"nosniff"),
        (b"x-request-id", request.request_id.encode()),
        (b"cache-control", b"no-store"),
        (b"retry-after", str(seconds).encode()),
    ]
    if request.is_unread:
        headers.append(CLOSE_CONNECTION)
    return HttpResponse(503, headers, text.encode())
