"""What a document names in backticks exists: modules, classes, functions, constants, commands, settings, metrics.

The history in CHANGELOG.md may name what is gone. Paths and links are checked in test_docs.py.
"""

from __future__ import annotations

import argparse
import re
from collections.abc import Iterator

import pytest

from deploy.__main__ import parser
from tests.tidy.code_names import METRIC_PREFIX, SETTING, code_names, names_of
from tests.tidy.doc_exceptions import OUTSIDE_NAMES
from tests.tidy.repository import text
from tests.tidy.test_docs import DOCUMENTS, TOP_LEVEL

CHECKED = [name for name in DOCUMENTS if name != "CHANGELOG.md"]
FENCE = re.compile(r"^ *```.*?^ *```", re.MULTILINE | re.DOTALL)
# `name`, `Class.method`, `function(...)`, `learner=True`; not a phrase, a path, JSON.
NAME = re.compile(r"([A-Za-z_]\w*(?:\.[A-Za-z_]\w*)*)(?:\(.*\)|=[\w.]*)?")
METRIC = re.compile(r"\bpenstock_[a-z0-9_]+(?:\{([a-z_, ]+)\})?")
# `..._total`: a name whose first part is left out, which nobody finds by searching.
CUT_OFF = re.compile(r"\.\.\._[a-z][a-z0-9_]*")
OPTION = re.compile(r"(?<![\w-])--[a-z][a-z-]*")


def without_fences(document: str) -> str:
    return FENCE.sub("", text(document))


def spans(document: str) -> list[str]:
    """What stands in backticks, fences left out; a span may go on in the next line."""
    return [" ".join(span.split()) for span in re.findall(r"`([^`]+)`", without_fences(document))]


def names_in(document: str) -> Iterator[str]:
    for span in spans(document):
        match = NAME.fullmatch(span)
        if match and not SETTING.fullmatch(span):
            yield match[1]


def unknown_files(document: str) -> set[str]:
    """Python files, by any end of their path."""
    return {span for span in spans(document) if re.fullmatch(r"[\w/]+\.py", span)} - code_names().files


def unknown_names(document: str) -> set[str]:
    known = code_names()
    return {
        name
        for name in names_in(document)
        if not name.endswith(".py")
        and not known.is_known(name)
        and name not in OUTSIDE_NAMES
        and name.split(".")[0] not in OUTSIDE_NAMES
        and name not in TOP_LEVEL
        and name not in commands()
        and not name.startswith(METRIC_PREFIX)
    }


def unknown_constants(document: str) -> set[str]:
    """Words in capitals with an underscore, in backticks or not, in fences too: constants, settings, error codes."""
    known = code_names()
    return {
        word
        for word in SETTING.findall(text(document))
        if word not in known.settings
        and word not in OUTSIDE_NAMES
        and (word.startswith("PENSTOCK_") or (word not in known.defined and word not in known.strings))
    }


def unknown_metrics(document: str) -> set[str]:
    known = code_names()
    found = set()
    for match in METRIC.finditer(text(document)):
        name = match[0].partition("{")[0]
        labels = set((match[1] or "").replace(" ", "").split(",")) - {""}
        is_other = name in known.strings - known.metric_strings
        if not is_other and (name not in known.metrics or not labels <= known.metrics[name]):
            found.add(match[0])
    return found


def commands() -> dict[str, set[str]]:
    """The launcher's commands with their options."""
    found: dict[str, set[str]] = {}

    def add(words: argparse.ArgumentParser, name: str) -> None:
        options = {option for action in words._actions for option in action.option_strings}
        found.setdefault(name, set()).update(options)
        for action in words._actions:
            if isinstance(action, argparse._SubParsersAction):
                for word, inner in action.choices.items():
                    add(inner, word if name == "" else name)
                    if name:
                        found.setdefault(f"{name} {word}", set()).update(options)

    add(parser(), "")
    return found


def unknown_options(document: str) -> set[str]:
    known = commands()
    found = set()
    for span in spans(document):
        words = span.removeprefix("./penstock ").split()
        if words and words[0] in known and (span.startswith("./penstock ") or len(words) > 1):
            found |= {f"{words[0]} {option}" for option in OPTION.findall(span) if option not in known[words[0]]}
    return found


@pytest.mark.parametrize("document", CHECKED)
def test_document_names_what_the_code_has(document: str) -> None:
    unknown = unknown_names(document)
    advice = "not in the code; correct the document, or put a name from outside into tests/tidy/doc_exceptions.py"
    assert not unknown, f"{document}: {advice}: {sorted(unknown)}"


@pytest.mark.parametrize("document", CHECKED)
def test_document_names_python_files_that_exist(document: str) -> None:
    unknown = unknown_files(document)
    assert not unknown, f"{document}: no such file, in no folder: {sorted(unknown)}"


@pytest.mark.parametrize("document", CHECKED)
def test_document_names_constants_and_settings_that_exist(document: str) -> None:
    unknown = unknown_constants(document)
    assert not unknown, f"{document}: neither a constant nor a setting; correct the document: {sorted(unknown)}"


@pytest.mark.parametrize("document", CHECKED)
def test_document_names_metrics_as_they_are_shown(document: str) -> None:
    unknown = unknown_metrics(document)
    advice = "no process shows such a metric; counters end in _total, labels stand in braces"
    assert not unknown, f"{document}: {advice}: {sorted(unknown)}"


@pytest.mark.parametrize("document", CHECKED)
def test_document_writes_names_out(document: str) -> None:
    found = CUT_OFF.findall(text(document))
    assert not found, f"{document}: write the whole name, so that a search finds it: {found}"


@pytest.mark.parametrize("document", CHECKED)
def test_document_names_options_that_exist(document: str) -> None:
    unknown = unknown_options(document)
    assert not unknown, f"{document}: ./penstock does not take these: {sorted(unknown)}"


SOURCES = {
    "log/store.py": """
LIMIT_BYTES = 1
found = Counter("penstock_found", "Found things", ["kind"])
class Base:
    def read_hot(self): ...
class Store(Base):
    '''Docstrings do not count: Ghost'''
    def __init__(self, bytes_max):
        self.count = os.environ["PENSTOCK_PORT"]
""",
}


@pytest.mark.parametrize(
    "name", ["Store", "Store.read_hot", "store.Store", "read_hot", "bytes_max", "Store.count", "time.time"]
)
def test_name_that_is_defined_is_known(name: str) -> None:
    assert names_of(SOURCES, {}).is_known(name)


@pytest.mark.parametrize("name", ["Ghost", "Store.read_cold", "read_cold", "shop.Store", "time.thyme", "LIMIT"])
def test_name_that_is_not_defined_is_unknown(name: str) -> None:
    assert not names_of(SOURCES, {}).is_known(name)


def test_renamed_class_is_unknown_under_its_old_name() -> None:
    renamed = {path: source.replace("Store", "Shop") for path, source in SOURCES.items()}
    assert names_of(renamed, {}).is_known("Shop.read_hot") and not names_of(renamed, {}).is_known("Store.read_hot")


def test_metrics_settings_and_files_are_known_as_users_see_them() -> None:
    names = names_of(SOURCES, {"compose.yml": "PENSTOCK_HOST: x"})
    assert names.metrics == {"penstock_found_total": {"kind"}}
    assert names.settings == {"PENSTOCK_PORT", "PENSTOCK_HOST"}
    assert {"log/store.py", "store.py", "compose.yml"} <= names.files
