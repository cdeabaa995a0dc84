"""What must not be written, and what to write instead."""

from __future__ import annotations

import re
from typing import NamedTuple

import pytest

from tests.tidy.repository import PACKAGES, ROOT, files, python_files, text


class Ban(NamedTuple):
    pattern: str
    instead: str
    where: tuple[str, ...] = PACKAGES  # path prefixes
    but_not: tuple[str, ...] = ()  # path prefixes
    example: str = ""


BANS = [
    Ban(
        r"^\s*print\(",
        "log with structlog; commands print through deploy/output.py, benchmarks through benchmarks/report.py",
        # A process may say why it cannot start, before logging is set up; demo.py shows lines to be copied.
        but_not=(
            "api/__main__.py",
            "frontend/__main__.py",
            "storage_nodes/__main__.py",
            "api/metadata/__main__.py",
            "deploy/demo.py",
        ),
        example='    print("x")',
    ),
    Ban(
        r"\btime\.(time|time_ns|monotonic|monotonic_ns|perf_counter)\(",
        "take `now_ms` as a parameter: machines and pure parts never read a clock",
        where=("storage_nodes/machines/", "frontend/authz/"),
        example="x = time.time()",
    ),
    Ban(
        r"^\s*(import|from) (requests|httpx|aiohttp)\b",
        "use httpx2",
        where=(*PACKAGES, "tests"),
        example="import requests",
    ),
    Ban(
        r"\bos\.(fsync|fdatasync)\(",
        "call storage_nodes/log/disk.py: one module opens and syncs the log's files",
        where=("storage_nodes/",),
        but_not=("storage_nodes/log/disk.py",),
        example="os.fsync(fd)",
    ),
    Ban(
        r"# type: ignore",
        "say the type: a narrower parameter, a cast, an attribute that is declared",
        where=tuple(package for package in PACKAGES if package != "storage_nodes"),
        example="x = y  # type: ignore",
    ),
    Ban(r"\buuid1\(", "use uuid4: uuid1 tells the machine and the time", example="uuid.uuid1()"),
    Ban(
        r"\bdatetime\.(utcnow|utcfromtimestamp)\(",
        "use datetime.now(UTC): the naive one lies",
        example="datetime.utcnow()",
    ),
    Ban(r"^\s*except:\s*$", "name the exception: a bare except swallows KeyboardInterrupt", example="except:"),
    Ban(
        r"\b(pickle|marshal)\.loads?\(|\byaml\.load\(",
        "decode with msgspec or json: these run code from the bytes they read",
        example="pickle.loads(data)",
    ),
    Ban(
        r"\brandom\.(random|choice|randint|shuffle)\(",
        "use secrets for anything another party must not guess; inject a random.Random where chance is wanted",
        where=("frontend/authn/", "frontend/crypto/", "api/", "storage_nodes/machines/"),
        example="random.choice(x)",
    ),
    Ban(
        r"#.*\b(TODO|FIXME|XXX)\b",
        "do it, or write it down in docs/ as a limit",
        where=(*PACKAGES, "tests"),
        example="# TODO: later",
    ),
]
THIS_FILE = "tests/tidy/test_bans.py"


def offences(ban: Ban) -> list[str]:
    expression = re.compile(ban.pattern, re.MULTILINE)
    found = []
    for name in python_files():
        if name == THIS_FILE or not name.startswith(ban.where) or name.startswith(ban.but_not or ("\0",)):
            continue
        source = text(name)
        found += [f"{name}:{source.count(chr(10), 0, match.start()) + 1}" for match in expression.finditer(source)]
    return found


@pytest.mark.parametrize("ban", BANS, ids=lambda ban: ban.pattern)
def test_ban_is_kept(ban: Ban) -> None:
    found = offences(ban)
    assert not found, f"{ban.pattern!r} must not stand in {', '.join(found)}: {ban.instead}"


@pytest.mark.parametrize("ban", BANS, ids=lambda ban: ban.pattern)
def test_ban_finds_its_example(ban: Ban) -> None:
    assert re.search(ban.pattern, ban.example, re.MULTILINE)


# A clone's place, somebody's home, or an option for a registry with its value or the rest of its name. Put together of
# parts, so that this file holds none of them.
HOMES = ("home", "Users")
REGISTRY_OPTIONS = ("ind" + "ex", "extra-ind" + "ex", "find-li" + "nks")
PLACE = rf"{re.escape(str(ROOT))}\b|/({'|'.join(HOMES)})/\w+/\w*/?penstock\b|--({'|'.join(REGISTRY_OPTIONS)})[-= ]"


@pytest.mark.parametrize(
    "example",
    [
        f"{ROOT}/x",
        *(f"/{home}/ann/penstock" for home in HOMES),
        *(f"pip --{option}{end}r" for option in REGISTRY_OPTIONS for end in (" ", "=", "-url ")),
    ],
)
def test_place_of_one_machine_is_known_as_one(example: str) -> None:
    assert re.search(PLACE, example)


def test_files_name_no_place_of_one_machine() -> None:
    """Somebody else's clone lies elsewhere; no registry's address belongs in the repository."""
    home = re.compile(PLACE)
    found = [
        f"{name}:{number}"
        for name in files()
        if name.endswith((".py", ".md", ".toml", ".txt", ".in", ".yml", ".yaml", ".example", "penstock", "run"))
        and name != THIS_FILE
        for number, line in enumerate(text(name).splitlines(), 1)
        if home.search(line)
    ]
    assert not found, "use a path relative to the repository, or a setting: " + ", ".join(found)


def test_folders_are_named_by_a_noun() -> None:
    junk = {"utils", "util", "helpers", "helper", "common", "misc"}
    found = [name for name in files() if junk & {part.removesuffix(".py") for part in name.split("/")}]
    assert not found, f"name the noun; a helper with two users goes to the lowest plane that uses it: {found}"
