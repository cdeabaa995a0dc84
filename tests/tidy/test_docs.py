"""Documents name only what exists: files, commands, settings."""

from __future__ import annotations

import argparse
import re
from pathlib import PurePosixPath

import pytest

from deploy.__main__ import parser
from tests.tidy.repository import ROOT, files, text

DOCUMENTS = [name for name in files() if name.endswith(".md") and (name.startswith("docs/") or "/" not in name)]
TOP_LEVEL = {name.split("/")[0] for name in files()}
# Made when things run, not kept in the repository.
MADE_LATER = (".venv/", ".penstock")


def paths_named(document: str) -> set[str]:
    """Backticked words that begin with a folder or file of the top level and look like a path."""
    found = set()
    for word in re.findall(r"`([^`\s]+)`", text(document)):
        path = word.rstrip("/.,:").split("::")[0].removeprefix("./")
        starts_here = path.split("/")[0] in TOP_LEVEL and "/" in path
        if (starts_here or path.endswith((".md", ".yml", ".toml"))) and not re.search(r"[<>*{}$=(|]", path):
            found.add(path)
    return found


def commands_named(document: str) -> set[str]:
    return set(re.findall(r"\./penstock ([a-z][a-z-]*)", text(document)))


def subcommands() -> set[str]:
    action = next(act for act in parser()._actions if isinstance(act, argparse._SubParsersAction))
    return set(action.choices)


@pytest.mark.parametrize("document", DOCUMENTS)
def test_document_names_files_that_exist(document: str) -> None:
    beside = PurePosixPath(document).parent
    missing = [
        path
        for path in paths_named(document)
        if not path.startswith(MADE_LATER) and not (ROOT / path).exists() and not (ROOT / beside / path).exists()
    ]
    assert not missing, f"{document} names what is not there; correct the name or the document: {sorted(missing)}"


@pytest.mark.parametrize("document", DOCUMENTS)
def test_document_names_commands_that_exist(document: str) -> None:
    unknown = commands_named(document) - subcommands()
    assert not unknown, f"{document} names commands that ./penstock does not have: {sorted(unknown)}"


@pytest.mark.parametrize("document", DOCUMENTS)
def test_document_links_lead_somewhere(document: str) -> None:
    targets = re.findall(r"\]\(([^)#\s]+)[^)]*\)", text(document))
    beside = (ROOT / document).parent
    missing = [target for target in targets if "://" not in target and not (beside / target).exists()]
    assert not missing, f"{document} links to what is not there: {missing}"


def test_every_decision_has_a_number_of_its_own() -> None:
    numbers = [PurePosixPath(name).name[:4] for name in files() if name.startswith("docs/decisions/")]
    assert len(set(numbers)) == len(numbers), "two decision records share a number"
    assert all(number.isdigit() for number in numbers)
