"""Numbers, times and sizes as people read them."""

from __future__ import annotations

import json
import secrets
from collections.abc import Iterable
from datetime import UTC, datetime
from typing import Any

from django import template
from django.utils.html import format_html
from django.utils.safestring import SafeString

from console.assets import assets
from console.page_times import page_now
from storage_nodes.ids import node_name

register = template.Library()
_MS_SHOWN_MAX = 10_000
_FORM_ID_BYTES = 16
_UNITS = ((86_400, "d"), (3_600, "h"), (60, "min"))
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


@register.simple_tag
def form_id() -> SafeString:
    """Of a form that is carried out once (`console/once.py`)."""
    return format_html('<input type="hidden" name="form_id" value="{}">', secrets.token_urlsafe(_FORM_ID_BYTES))


@register.simple_tag
def asset(name: str) -> str:
    return assets()[name].url


@register.filter
def number(value: Any) -> str:
    return "–" if value is None or value == "" else f"{int(value):,}"


@register.filter
def node(node_id: int) -> str:
    """A storage node as people name it."""
    return node_name(node_id)


@register.filter
def nodes(node_ids: Iterable[int], between: str = " ") -> str:
    return between.join(map(node_name, node_ids))


@register.filter
def span(seconds: Any) -> str:
    """90061 -> 1 d 1 h."""
    if seconds is None or seconds == "":
        return "–"
    try:
        rest = round(float(seconds))
    except (ValueError, OverflowError):  # a form shows again what a person typed
        return "–"
    parts = []
    for size_s, unit in _UNITS:
        if rest >= size_s:
            parts.append(f"{rest // size_s} {unit}")
            rest %= size_s
    if rest or not parts:
        parts.append(f"{rest} s")
    return " ".join(parts[:2])


@register.filter
def took(ms: Any) -> str:
    """136 -> 136 ms, 61000 -> 1 min 1 s."""
    if ms is None or ms == "":
        return "–"
    return f"{int(ms):,} ms" if int(ms) < _MS_SHOWN_MAX else span(int(ms) / 1000)


@register.filter
def sentence(text: Any) -> str:
    """With a full stop: what SQS clients are told ends without one."""
    shown = str(text).rstrip()
    return shown if shown.endswith((".", "!", "?", ":")) else f"{shown}."


@register.filter
def detail(value: Any) -> str:
    """What an entry of the audit log holds: text as it is, all else as JSON."""
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False, default=str)


@register.filter
def size(value: Any) -> str:
    """Bytes."""
    if value is None:
        return "–"
    amount = float(value)
    for unit in ("B", "KiB", "MiB", "GiB"):
        if amount < 1024 or unit == "GiB":
            return f"{amount:.0f} {unit}" if unit == "B" else f"{amount:.1f} {unit}"
        amount /= 1024
    raise AssertionError("the last unit takes all")


@register.filter
def browser(user_agent: str) -> str:
    """The browser and the system of a session, from the text that the browser sends of itself: `Chrome on Linux`; the
    beginning of the text where it names none that is known."""
    named = next((name for mark, name in _BROWSERS if mark in user_agent), "")
    system = next((name for mark, name in _SYSTEMS if mark in user_agent), "")
    if not named:
        return user_agent[:_UNKNOWN_SHOWN_CHARS]
    return f"{named} on {system}" if system else named


@register.filter
def when(value: Any) -> SafeString | str:
    """A time, as how long ago; the exact one is shown on hover. Takes a datetime, or ms since the epoch."""
    moment = _moment(value)
    if moment is None:
        return "–"
    seconds = (page_now() - moment).total_seconds()
    ago = _ago(seconds, moment)
    return format_html('<time datetime="{}" title="{}">{}</time>', moment.isoformat(), _exact(moment), ago)


@register.filter
def exact(value: Any) -> SafeString | str:
    """A time that is ahead: the time itself, as a phone shows nothing on hover; how far it is, on hover."""
    moment = _moment(value)
    if moment is None:
        return "–"
    ahead = _ago((page_now() - moment).total_seconds(), moment)
    return format_html('<time datetime="{}" title="{}">{}</time>', moment.isoformat(), ahead, _exact(moment))


@register.filter
def age(value: Any) -> str:
    """How long ago, without "ago"."""
    moment = _moment(value)
    if moment is None:
        return "–"
    seconds = max((page_now() - moment).total_seconds(), 0)
    size_s, unit = next((one for one in _UNITS if seconds >= one[0]), (1, "s"))
    return f"{int(seconds // size_s)} {unit}"


@register.filter
def pretty(text: Any) -> str:
    """JSON with indents; anything else as it is."""
    try:
        return json.dumps(json.loads(text), indent=2, ensure_ascii=False)
    except (TypeError, ValueError, RecursionError):
        return str(text)


@register.filter
def get(mapping: Any, key: Any) -> Any:
    return mapping.get(key) if mapping else None


def _moment(value: Any) -> datetime | None:
    if not value:
        return None
    return value if isinstance(value, datetime) else datetime.fromtimestamp(int(value) / 1000, UTC)


def _exact(moment: datetime) -> str:
    return moment.strftime("%Y-%m-%d %H:%M:%S UTC")


def _ago(seconds: float, moment: datetime) -> str:
    if abs(seconds) < 5:
        return "now"
    if abs(seconds) >= 30 * 86_400:
        return moment.strftime("%Y-%m-%d")
    size_s, unit = next((one for one in _UNITS if abs(seconds) >= one[0]), (1, "s"))
    text = f"{int(abs(seconds) // size_s)} {unit}"
    return f"{text} ago" if seconds > 0 else f"in {text}"
