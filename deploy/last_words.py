"""What a process said last: the end of its log, without secrets, short enough to be read."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable
from pathlib import Path

from deploy import limits

HIDDEN = "***"
# Begins the lines that the supervisor adds to the log of a process.
SUPERVISORS = "[supervisor "
ROUTINE = ("debug", "info")
_URL_PASSWORD = re.compile(r"(://[^\s:@/]*:)[^\s@/]+(@)")
_NAMED = re.compile(
    r"(?i)((?:password|passwd|secret|token|requirepass|authorization)\w*[\"']?\s*[=: ]\s*[\"']?)[^\s\"',}]+"
)


def last_words(
    log: Path, secrets: Iterable[str], lines_max: int = limits.LOG_TAIL_LINES, since_bytes: int = 0
) -> list[str]:
    """The last lines of a log, of those from `since_bytes` on. Where there are warnings or worse, or words that no
    logger wrote, they alone. `secrets`: texts that must not be shown, wherever they stand."""
    try:
        with open(log, "rb") as file:
            file.seek(max(since_bytes, log.stat().st_size - limits.LOG_TAIL_BYTES))
            lines = [line for line in file.read().decode(errors="replace").splitlines() if line.strip()]
    except OSError:
        return []
    told = [line for line in lines if not line.startswith(SUPERVISORS) and not _is_routine(line)]
    lines = [line for line in lines if not _is_routine(line)] if told else lines
    hidden = sorted(filter(None, secrets), key=len, reverse=True)
    return [_shown(line, hidden) for line in lines[-lines_max:]]


def written_at(log: Path) -> float | None:
    """When the log was last written to."""
    try:
        return log.stat().st_mtime
    except OSError:
        return None


def secrets_in(directory: Path) -> list[str]:
    """Everything that stands in the files of a secrets directory."""
    found: list[str] = []
    for path in directory.glob("*"):
        try:
            text = path.read_text().strip()
        except (OSError, UnicodeDecodeError):
            continue
        if path.suffix != ".json":
            found.append(text)
            continue
        fields = json.loads(text)
        found += [fields[name] for name in ("secret_access_key", "bearer_token") if name in fields]
    return found


def _is_routine(line: str) -> bool:
    """What our processes log as JSON, below a warning."""
    if not line.startswith("{"):
        return False
    try:
        return json.loads(line).get("level") in ROUTINE
    except ValueError:  # its beginning or its end is missing
        return False


def _shown(line: str, hidden: list[str]) -> str:
    for secret in hidden:
        line = line.replace(secret, HIDDEN)
    line = _NAMED.sub(rf"\g<1>{HIDDEN}", _URL_PASSWORD.sub(rf"\g<1>{HIDDEN}\g<2>", line))
    return line if len(line) <= limits.LOG_LINE_CHARACTERS_MAX else line[: limits.LOG_LINE_CHARACTERS_MAX] + " ..."
