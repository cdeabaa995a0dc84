"""What the list of sessions says of a browser."""

from __future__ import annotations

import pytest

from console.browser_names import browser_name

_WEBKIT = "AppleWebKit/537.36 (KHTML, like Gecko)"


@pytest.mark.parametrize(
    ("user_agent", "name"),
    [
        (f"Mozilla/5.0 (X11; Linux x86_64) {_WEBKIT} Chrome/130.0.0.0 Safari/537.36", "Chrome on Linux"),
        (f"Mozilla/5.0 (Windows NT 10.0) {_WEBKIT} Chrome/130.0.0.0 Safari/537.36 Edg/130.0", "Edge on Windows"),
        ("Mozilla/5.0 (Android 15; Mobile; rv:132.0) Gecko/132.0 Firefox/132.0", "Firefox on Android"),
        (f"Mozilla/5.0 (iPhone; CPU iPhone OS 18_0 like Mac OS X) {_WEBKIT} Safari/604.1", "Safari on iPhone"),
        ("curl/8.5.0", "curl"),
        ("<b>" + "x" * 100, "<b>" + "x" * 37),
        ("", ""),
    ],
)
def test_session_names_browser_and_system(user_agent: str, name: str) -> None:
    assert browser_name(user_agent) == name
