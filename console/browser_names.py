"""The browser and the system of a session, from the text that the browser sends of itself. For people alone. Pure."""

from __future__ import annotations

# Most browsers also name the ones that they want to be taken for: the first mark that is found decides.
_BROWSERS = (
    ("Edg", "Edge"), ("OPR/", "Opera"), ("Firefox/", "Firefox"), ("FxiOS/", "Firefox"), ("Chrome/", "Chrome"),
    ("CriOS/", "Chrome"), ("Safari/", "Safari"), ("curl/", "curl"), ("python", "Python"),
)  # fmt: skip
_SYSTEMS = (
    ("iPhone", "iPhone"), ("iPad", "iPad"), ("Android", "Android"), ("Windows", "Windows"), ("Mac OS X", "macOS"),
    ("CrOS", "ChromeOS"), ("Linux", "Linux"),
)  # fmt: skip
_UNKNOWN_SHOWN_CHARS = 40


def browser_name(user_agent: str) -> str:
    """`Chrome on Linux`; the beginning of the text where it names none that is known."""
    browser = next((name for mark, name in _BROWSERS if mark in user_agent), "")
    system = next((name for mark, name in _SYSTEMS if mark in user_agent), "")
    if not browser:
        return user_agent[:_UNKNOWN_SHOWN_CHARS]
    return f"{browser} on {system}" if system else browser
