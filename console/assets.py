"""Scripts and styles: read once, served under a name that holds their digest, so that browsers keep them for good."""

from __future__ import annotations

import functools
import gzip
import hashlib
import re
from pathlib import Path
from typing import NamedTuple

from django.http import Http404, HttpRequest, HttpResponse

_FOLDER = Path(__file__).parent / "static" / "console"
_TYPES = {".css": "text/css; charset=utf-8", ".js": "text/javascript; charset=utf-8", ".svg": "image/svg+xml"}
_DIGEST_CHARS = 12
_NAMED = re.compile(rf"(?P<stem>[a-z_]+)\.(?P<digest>[0-9a-f]{{{_DIGEST_CHARS}}})(?P<suffix>\.[a-z]+)")
URL_PREFIX = "/static/console/"


class Asset(NamedTuple):
    url: str
    content: bytes
    zipped: bytes
    content_type: str


@functools.cache
def assets() -> dict[str, Asset]:
    """By file name. Names are unique over the folders."""
    found = {}
    for path in sorted(_FOLDER.rglob("*")):
        if path.suffix in _TYPES:
            content = path.read_bytes()
            digest = hashlib.sha256(content).hexdigest()[:_DIGEST_CHARS]
            url = f"{URL_PREFIX}{path.stem}.{digest}{path.suffix}"
            assert path.name not in found, f"two assets are named {path.name}"
            found[path.name] = Asset(url, content, gzip.compress(content, mtime=0), _TYPES[path.suffix])
    return found


def serve_asset(request: HttpRequest, named: str) -> HttpResponse:
    match = _NAMED.fullmatch(named)
    asset = assets().get(match["stem"] + match["suffix"]) if match else None
    if asset is None or asset.url != URL_PREFIX + named:
        raise Http404
    zips = "gzip" in request.headers.get("Accept-Encoding", "")
    answer = HttpResponse(asset.zipped if zips else asset.content, content_type=asset.content_type)
    if zips:
        answer["Content-Encoding"] = "gzip"
    answer["Vary"] = "Accept-Encoding"
    answer["Cache-Control"] = "public, max-age=31536000, immutable"
    return answer
