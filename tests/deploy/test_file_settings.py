"""Settings that may be given as a file: each has one table row here, is read in one place, and is honoured by every
process, from the environment of `./penstock up` to what the process makes of it."""

from __future__ import annotations

import ast
import json
import re
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import NamedTuple

import pytest

from api.settings import mail, server_urls
from deploy import roles
from deploy.installation import MAIL_SETTINGS, ROOT, SENDS_MAIL, SETTINGS_OF_ROLE, Installation
from deploy.outside_servers import NAMES as OUTSIDE
from deploy.ports import choose_port
from deploy.state import State
from deploy.tls import CERTIFICATE_SETTINGS, KEY_SETTINGS
from frontend.config import FrontendConfig
from storage_nodes.trust.credentials import FILE_SETTINGS


class FileSetting(NamedTuple):
    """`roles`: of the processes that read it, `homes`: the modules that may read it from the environment.

    `is_path`: the setting is a path in any case, and its file form another name of it. Otherwise the file holds what
    the setting would say.
    """

    name: str
    roles: tuple[str, ...]
    homes: tuple[str, ...]
    is_path: bool = False

    @property
    def file_form(self) -> str:
        return f"{self.name}_FILE"


ROWS = ("control-plane", "worker", "usage-worker", "schedule", "manage")
SPEAKING = ("storage-node", "metadata", "frontend", "control-plane", "worker", "usage-worker", "manage")
URLS = ("api/settings/server_urls.py", "api/settings/environment.py")
TLS = ("frontend/config.py", "deploy/tls.py")
INNER = ("storage_nodes/trust/credentials.py",)
SETTINGS = (
    FileSetting("DATABASE_URL", ("metadata", *ROWS), (*URLS, "deploy/outside_servers.py")),
    FileSetting("CELERY_BROKER_URL", ROWS, (*URLS, "deploy/outside_servers.py")),
    FileSetting("PENSTOCK_MAIL_URL", ("control-plane", "worker", "manage"), (*URLS, "deploy/outside_servers.py")),
    FileSetting("PENSTOCK_TLS_CERTIFICATE", ("frontend",), TLS, is_path=True),
    FileSetting("PENSTOCK_TLS_KEY", ("frontend",), TLS, is_path=True),
    *(FileSetting(f"PENSTOCK_INNER_{what}", SPEAKING, INNER, True) for what in ("CA", "CERTIFICATE", "KEY")),
)
BY_NAME = {setting.name: setting for setting in SETTINGS}
# What the operator names, and `./penstock up` passes on. Certificates it makes itself.
OF_OPERATOR = tuple(setting for setting in SETTINGS if not setting.is_path)
CONTENT = {
    "DATABASE_URL": "postgresql://me:database-word@db.example:5432/penstock",
    "CELERY_BROKER_URL": "redis://:broker-word@broker.example:6379/0",
    "PENSTOCK_MAIL_URL": "smtp://me:mail-word@mail.example:2525?security=none",
}


# --- the table is whole -----------------------------------------------------------------------------------------


def test_table_has_what_the_product_reads_as_files() -> None:
    read = {server_urls.DATABASE_URL, server_urls.BROKER_URL, *OUTSIDE, mail.MAIL_URL, *FILE_SETTINGS}
    read |= {name.removesuffix("_FILE") for name in (*CERTIFICATE_SETTINGS, *KEY_SETTINGS)}
    read |= {name.removesuffix("_FILE") for name in MAIL_SETTINGS if name.endswith("_FILE")}
    fields = {field.removesuffix("_file") for field in FrontendConfig.model_fields if field.endswith("_file")}
    assert read | {f"PENSTOCK_{field.upper()}" for field in fields} == set(BY_NAME)


def test_documents_name_each_file_form_and_no_other() -> None:
    of_others = {"SSL_CERT_FILE"}  # OpenSSL's
    found = {
        word
        for page in (ROOT / "docs").rglob("*.md")
        for word in re.findall(r"\b[A-Z][A-Z0-9_]*_FILE\b", page.read_text())
    }
    assert found - of_others == {setting.file_form for setting in SETTINGS}


def test_table_names_the_roles_that_the_launcher_tells() -> None:
    for setting in OF_OPERATOR:
        told = SENDS_MAIL if setting.name == mail.MAIL_URL else tuple(
            role for role, names in SETTINGS_OF_ROLE.items() if setting.name in names
        )  # fmt: skip
        assert set(setting.roles) == set(told), setting.name


# --- one place reads each of them ---------------------------------------------------------------------------------

PLANES = ("storage_nodes", "frontend", "api", "workers", "deploy", "console", "benchmarks")
FORMS = {form: setting for setting in SETTINGS for form in (setting.name, setting.file_form)}
# They read what they are asked for by name. The asking process is looked at, too.
READ_ANY = {
    "api/settings/server_urls.py",
    "api/management/commands/grant_application.py",  # the name that the operator gives it
    "deploy/outside_servers.py",
    "deploy/tls.py",
    "storage_nodes/config.py",  # the fields of NodeConfig
    "storage_nodes/trust/credentials.py",
    "workers/spark_jobs/session.py",  # hands paths of certificates to executors
}
READ_BY_FIELDS = {"api/settings/environment.py", "frontend/config.py"}


def modules() -> Iterator[tuple[str, ast.Module]]:
    paths = [path for plane in PLANES for path in sorted((ROOT / plane).rglob("*.py"))]
    for path in (*paths, ROOT / "manage.py"):
        yield path.relative_to(ROOT).as_posix(), ast.parse(path.read_text())


def constants(found: Mapping[str, ast.Module]) -> dict[str, set[str]]:
    """What names of constants stand for, anywhere: they are imported under the same name."""
    known: dict[str, set[str]] = {}
    for tree in found.values():
        for node in tree.body:
            if isinstance(node, ast.Assign) and len(node.targets) == 1:
                name = node.targets[0]
                if isinstance(name, ast.Name) and isinstance(node.value, ast.Constant):
                    known.setdefault(name.id, set()).add(str(node.value.value))
                elif isinstance(name, ast.Tuple) and isinstance(node.value, ast.Tuple):
                    for one, value in zip(name.elts, node.value.elts, strict=False):
                        if isinstance(one, ast.Name) and isinstance(value, ast.Constant):
                            known.setdefault(one.id, set()).add(str(value.value))
    return known


def is_environment(node: ast.expr) -> bool:
    """`os.environ`, or what functions call a copy of it."""
    if isinstance(node, ast.Attribute):
        return node.attr == "environ"
    return isinstance(node, ast.Name) and node.id in ("environ", "environment", "env")


def keys_read(tree: ast.Module) -> Iterator[ast.expr]:
    for node in ast.walk(tree):
        if isinstance(node, ast.Subscript) and isinstance(node.ctx, ast.Load) and is_environment(node.value):
            yield node.slice
        elif isinstance(node, ast.Call) and node.args:
            called = node.func
            is_get = isinstance(called, ast.Attribute) and called.attr in ("get", "pop", "setdefault")
            if is_get and isinstance(called, ast.Attribute) and is_environment(called.value):
                if called.attr == "get" or isinstance(called.value, ast.Attribute):
                    yield node.args[0]
            elif getattr(called, "attr", getattr(called, "id", "")) == "getenv":
                yield node.args[0]
        elif isinstance(node, ast.Compare) and isinstance(node.ops[0], ast.In | ast.NotIn):
            yield from [node.left] if is_environment(node.comparators[0]) else []


def meant(key: ast.expr, known: Mapping[str, set[str]]) -> set[str] | None:
    """All strings that it may be; None: only the running program knows."""
    if isinstance(key, ast.Constant):
        return {str(key.value)}
    if isinstance(key, ast.Name | ast.Attribute):
        return known.get(key.id if isinstance(key, ast.Name) else key.attr)
    if isinstance(key, ast.JoinedStr):
        texts = {""}
        for part in key.values:
            values = meant(part.value if isinstance(part, ast.FormattedValue) else part, known)
            if values is None:
                return None
            texts = {text + value for text in texts for value in values}
        return texts
    return None


def reads(tree: ast.Module, known: Mapping[str, set[str]]) -> tuple[set[str], bool]:
    """Which settings of the table a module reads from the environment, and whether it reads others than it says."""
    named = [meant(key, known) for key in keys_read(tree)]
    return {word for words in named for word in words or () if word in FORMS}, None in named


def test_settings_are_read_from_the_environment_at_home_alone() -> None:
    found = dict(modules())
    known = constants(found)
    strays, read_any, by_fields = [], set(), set()
    for path, tree in found.items():
        words, is_any = reads(tree, known)
        strays += [f"{path} reads {word}" for word in words if path not in FORMS[word].homes]
        if is_any:
            read_any.add(path)
        bases = {
            getattr(base, "id", "") for node in ast.walk(tree) if isinstance(node, ast.ClassDef) for base in node.bases
        }
        if "BaseSettings" in bases:
            by_fields.add(path)
    assert not strays, f"{strays}: ask server_url, environment() or own_credentials, which know the file forms"
    assert read_any == READ_ANY and by_fields == READ_BY_FIELDS
    assert {home for setting in SETTINGS for home in setting.homes} <= READ_ANY | READ_BY_FIELDS


@pytest.mark.parametrize(
    "line",
    [
        'os.environ["DATABASE_URL"]',
        'os.environ.get("CELERY_BROKER_URL_FILE", "")',
        'os.getenv("PENSTOCK_MAIL_URL")',
        'getenv("PENSTOCK_INNER_KEY_FILE")',
        'environ.get("PENSTOCK_INNER_CA_FILE")',
        'environ["PENSTOCK_INNER_CERTIFICATE_FILE"]',
        'f(environ["PENSTOCK_TLS_KEY"])',
        "os.environ[DATABASE_URL]",
        'os.environ.pop(f"{server_urls.BROKER_URL}_FILE")',
        '"DATABASE_URL_FILE" in os.environ',
        'environment.get(AUTHORITY_SETTING) or ""',
    ],
)
def test_look_sees_who_reads_one_elsewhere(line: str) -> None:
    known = {
        "DATABASE_URL": {"DATABASE_URL"},
        "BROKER_URL": {"CELERY_BROKER_URL"},
        "AUTHORITY_SETTING": {FILE_SETTINGS[0]},
    }
    words, is_any = reads(ast.parse(line), known)
    assert len(words) == 1 and not is_any
    assert reads(ast.parse("os.environ[name]"), {}) == (set(), True)
    assert reads(ast.parse('environment["DATABASE_URL"] = url'), known) == (set(), False)


# --- every process is told the file, and reads it -------------------------------------------------------------------


@pytest.fixture
def installation(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Installation:
    """Of an operator who names files, from the folder that holds them."""
    for name in (*FORMS, "PENSTOCK_INNER_TLS", "PENSTOCK_DATA_DIR", "DJANGO_SETTINGS_MODULE", "PENSTOCK_PROCESS"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.chdir(tmp_path)
    for name, content in CONTENT.items():
        Path(f"{name}.file").write_text(f"{content}\n")
        monkeypatch.setenv(f"{name}_FILE", f"{name}.file")
    made = Installation(tmp_path / "data")
    made.prepare()
    return made


def settled(installation: Installation) -> State:
    return installation.settle_state(None, choose_port(set()), 3)


@pytest.mark.parametrize("role", sorted(SETTINGS_OF_ROLE))
def test_launcher_passes_files_on_to_those_that_read_them(installation: Installation, role: str) -> None:
    """By their full paths: processes run in another folder than the operator."""
    environment = installation.environment(settled(installation), role)
    for setting in OF_OPERATOR:
        path = str(Path(f"{setting.name}.file").resolve()) if role in setting.roles else None
        assert environment.get(setting.file_form) == path
        assert setting.name not in environment
    assert not any("-word" in text for text in environment.values())


# What a process prints of what it read, where it uses it: the name of the setting -> what it has.
BEGIN = """
import json, os
CLUSTER = os.environ["PENSTOCK_CLUSTER_ID"]
from storage_nodes.trust.credentials import own_credentials
def own(cluster):
    made = own_credentials(cluster)
    return str(made.name) if made else ""
class Seen(Exception):
    pass
def lock(url, *key):
    raise Seen(url)
def claimed(module, work):
    module.ScheduleLock = lock
    try:
        work()
    except Seen as seen:
        return str(seen)
def told(**values):
    print(json.dumps(values))
"""
DJANGO = """
os.environ.setdefault("DJANGO_SETTINGS_MODULE", "api.settings.project")
import django
django.setup()
from django.conf import settings
from api.settings.environment import environment
has = settings.DATABASES["default"]
database = f"postgresql://{has['USER']}:{has['PASSWORD']}@{has['HOST']}:{has['PORT']}/{has['NAME']}"
def mail():
    url = f"smtp://{settings.EMAIL_HOST_USER}:{settings.EMAIL_HOST_PASSWORD}@{settings.EMAIL_HOST}"
    return f"{url}:{settings.EMAIL_PORT}?security=" + ("starttls" if settings.EMAIL_USE_TLS else "none")
"""
WORKER = DJANGO + "from workers.application import app\n"


class Reader(NamedTuple):
    role: str
    settings: tuple[str, ...]
    program: str


DATABASE, BROKER, MAIL, SHOWN = "DATABASE_URL", "CELERY_BROKER_URL", "PENSTOCK_MAIL_URL", "PENSTOCK_INNER_CERTIFICATE"
INNER_OWN = "PENSTOCK_INNER_CERTIFICATE=own(CLUSTER)"
READERS = {
    "storage node": Reader(
        "storage-node",
        (SHOWN,),
        "from storage_nodes.__main__ import NodeConfig, _credentials\n"
        "made = _credentials(NodeConfig.from_environment(os.environ))\n"
        "told(PENSTOCK_INNER_CERTIFICATE=str(made.name))",
    ),
    "metadata": Reader(
        "metadata",
        (DATABASE, SHOWN),
        "from api.metadata.__main__ import _settings\n"
        "made = _settings()\n"
        "told(DATABASE_URL=made.database_url, PENSTOCK_INNER_CERTIFICATE=str(made.credentials.name))",
    ),
    "front end": Reader(
        "frontend",
        ("PENSTOCK_TLS_CERTIFICATE", "PENSTOCK_TLS_KEY", SHOWN),
        "from frontend.config import FrontendConfig\n"
        "certificate, key = FrontendConfig().tls_files\n"
        f"told(PENSTOCK_TLS_CERTIFICATE=certificate, PENSTOCK_TLS_KEY=key, {INNER_OWN})",
    ),
    "control plane": Reader(
        "control-plane",
        (DATABASE, BROKER, MAIL, SHOWN),
        DJANGO + "told(DATABASE_URL=database, CELERY_BROKER_URL=environment().celery_broker_url,"
        f" PENSTOCK_MAIL_URL=mail(), {INNER_OWN})",
    ),
    "worker": Reader(
        "worker",
        (DATABASE, BROKER, MAIL, SHOWN),
        WORKER + "told(DATABASE_URL=database, CELERY_BROKER_URL=app.conf.broker_url,"
        f" PENSTOCK_MAIL_URL=mail(), {INNER_OWN})",
    ),
    "series of the worker": Reader(
        "worker",
        (DATABASE,),
        DJANGO + "from workers.series import rounds\ntold(DATABASE_URL=claimed(rounds, rounds.collect_series))",
    ),
    "meter of the worker": Reader(
        "worker",
        (DATABASE,),
        DJANGO + "from workers.billing import rounds\ntold(DATABASE_URL=claimed(rounds, rounds.read_meter))",
    ),
    "webhooks of the worker": Reader(
        "worker",
        (DATABASE,),
        DJANGO + "from workers.webhooks import rounds\ntold(DATABASE_URL=claimed(rounds, rounds.deliver_webhooks))",
    ),
    "usage worker": Reader(
        "usage-worker",
        (DATABASE, BROKER, SHOWN),
        WORKER + "from workers.usage import running\n"
        "claim = claimed(running, lambda: running.round_claim(print, 0).__enter__())\n"
        f"assert claim == database\ntold(DATABASE_URL=claim, CELERY_BROKER_URL=app.conf.broker_url, {INNER_OWN})",
    ),
    "job of the usage worker": Reader(
        "usage-worker",
        (SHOWN,),
        "import subprocess, sys\nfrom workers.usage.jobs import job_environment\n"
        "kept = job_environment()\nassert not any('-word' in text or '_URL' in name for name, text in kept.items())\n"
        "read = 'import sys; from storage_nodes.trust.credentials import own_credentials;'\n"
        "read += 'print(own_credentials(sys.argv[1]).name)'\n"
        "command = [sys.executable, '-P', '-c', read, CLUSTER]\n"
        "shown = subprocess.run(command, env=kept, capture_output=True, text=True, check=True).stdout.strip()\n"
        "told(PENSTOCK_INNER_CERTIFICATE=shown)",
    ),
    "schedule": Reader(
        "schedule",
        (DATABASE, BROKER),
        "from workers.application import app\nfrom workers.schedule import LockedScheduler\n"
        "made = LockedScheduler(app, lazy=True)\n"
        "told(DATABASE_URL=made.lock._database_url, CELERY_BROKER_URL=app.conf.broker_url)",
    ),
    "manage.py": Reader(
        "manage",
        (DATABASE, BROKER, MAIL, SHOWN),
        DJANGO + "told(DATABASE_URL=database, CELERY_BROKER_URL=environment().celery_broker_url,"
        f" PENSTOCK_MAIL_URL=mail(), {INNER_OWN})",
    ),
}


def test_readers_read_all_that_the_table_says() -> None:
    """Of the three files of a certificate one speaks for all: without one of them there are no credentials."""
    read = {(setting, reader.role) for reader in READERS.values() for setting in reader.settings}
    of_table = {(setting.name, role) for setting in SETTINGS for role in setting.roles}
    assert read == {pair for pair in of_table if pair[0] not in set(FILE_SETTINGS) - {SHOWN}}


SPECS: dict[str, Callable[[Installation, State], Mapping[str, str]]] = {
    "storage-node": lambda of, state: roles.storage_node_specs(of, state)[0].environment,
    "metadata": lambda of, state: roles.metadata_spec(state).environment,
    "frontend": lambda of, state: roles.frontend_spec(state, 1).environment,
    "control-plane": lambda of, state: roles.control_spec(of, state).environment,
    "worker": lambda of, state: roles.worker_spec(state).environment,
    "usage-worker": lambda of, state: roles.usage_worker_spec(state).environment,
    "schedule": lambda of, state: roles.schedule_spec(state).environment,
}


@pytest.mark.parametrize("reader", READERS)
def test_process_reads_what_is_in_the_files(installation: Installation, reader: str, tmp_path: Path) -> None:
    """As `./penstock up` starts it; paths that it gives under their names are given under those of files."""
    role, settings, program = READERS[reader]
    state = settled(installation)
    told = installation.environment(state, role)
    if role in SPECS:
        told |= SPECS[role](installation, state)
    for setting in SETTINGS:
        if setting.is_path and setting.name in told:
            told[setting.file_form] = told.pop(setting.name)
    if role == "frontend":
        told |= {f"{name}_FILE": f"/etc/penstock/{name}.pem" for name in BY_NAME if name.startswith("PENSTOCK_TLS_")}
    assert not set(told) & set(BY_NAME), "only file forms"
    command = [sys.executable, "-P", "-c", BEGIN + program]
    answer = subprocess.run(command, env=told, capture_output=True, text=True, cwd=ROOT, timeout=60)
    assert answer.returncode == 0, answer.stderr
    said = json.loads(answer.stdout.splitlines()[-1])
    names = {
        "storage-node": "node/1",
        "frontend": "front-end/1",
        "usage-worker": "worker/usage",
        "manage": "operator/manage",
    }
    expected = {
        **CONTENT,
        **{name: f"/etc/penstock/{name}.pem" for name in ("PENSTOCK_TLS_CERTIFICATE", "PENSTOCK_TLS_KEY")},
        SHOWN: f"penstock://{state.cluster_id}/{names.get(role, f'{role}/1')}",
    }
    assert said == {name: expected[name] for name in settings}


def test_setting_itself_counts_before_its_file(installation: Installation, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in CONTENT:
        monkeypatch.setenv(name, CONTENT[name].replace("word", "other"))
    state = settled(installation)
    told = installation.environment(state, "worker") | roles.worker_spec(state).environment
    command = [sys.executable, "-P", "-c", BEGIN + READERS["worker"].program]
    answer = subprocess.run(command, env=told, capture_output=True, text=True, cwd=ROOT, timeout=60)
    assert answer.returncode == 0, answer.stderr
    said = json.loads(answer.stdout.splitlines()[-1])
    assert {name: said[name] for name in CONTENT} == {
        name: text.replace("word", "other") for name, text in CONTENT.items()
    }
