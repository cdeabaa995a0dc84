"""Documents name only files and commands that exist, and their links and sections lead somewhere.

Names of the code: test_doc_names.py. Figures: test_doc_values.py. Words: test_glossary.py, test_doc_words.py.
"""

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


def headings(document: str) -> set[str]:
    """Of a document, and of the pages in the folder of its name, for which it is the index."""
    pages = [document, *(name for name in DOCUMENTS if name.startswith(document.removesuffix(".md") + "/"))]
    return {title for page in pages for title in re.findall(r"^#+ (.+)$", text(page), re.MULTILINE)}


def has_section(document: str, title: str) -> bool:
    """Also by the beginning of the heading: "Acks" for "Acks: what the answer means"."""
    return any(re.match(re.escape(title) + r"($|[:,(]| \()", heading) for heading in headings(document))


def anchor_of(heading: str) -> str:
    return re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-")


@pytest.mark.parametrize("document", DOCUMENTS)
def test_document_links_to_sections_that_exist(document: str) -> None:
    beside = PurePosixPath(document).parent
    missing = []
    for target, anchor in re.findall(r"\]\(([^)#\s:]*)#([^)\s]+)\)", text(document)):
        page = (ROOT / beside / target).resolve().relative_to(ROOT) if target else document
        if anchor not in map(anchor_of, headings(str(page))):
            missing.append(f"{target}#{anchor}")
    assert not missing, f"{document} links to sections that are not there: {missing}"


def sections_named(source: str) -> set[tuple[str, str]]:
    """`docs/a.md, "Section"`, in prose or in a docstring, also as a link: (a.md, Section). Lines may break anywhere."""
    prose = re.sub(r"\s+", " ", source)
    found = re.findall(r"([\w/]+\.md)[`)]*,? (?:section )?\"([A-Z][^\"]{2,60})\"", prose)
    return {(name.rpartition("docs/")[2].lstrip("/"), title.rstrip(".,")) for name, title in found}


@pytest.mark.parametrize("index", [name for name in DOCUMENTS if (ROOT / name.removesuffix(".md")).is_dir()])
def test_index_names_every_page_of_its_folder(index: str) -> None:
    folder = index.removesuffix(".md")
    missing = [
        name for name in DOCUMENTS if name.startswith(f"{folder}/") and name.removeprefix("docs/") not in text(index)
    ]
    assert not missing, f"{index} is the index of {folder}/ and leaves out {missing}"


NAMING = [name for name in files() if name.endswith((".md", ".py")) and not name.startswith("tests/tidy/")]


def test_sections_named_in_quotes_exist() -> None:
    missing = []
    for name in NAMING:
        for page, title in sections_named(text(name)):
            places = {f"docs/{page}", f"{PurePosixPath(name).parent}/{page}"}.intersection(DOCUMENTS)
            if places and not any(has_section(place, title) for place in places):
                missing.append(f"{name}: {page}, {title!r}")
    assert not missing, f"no such section; a heading was renamed or moved: {missing}"


def test_section_named_in_a_docstring_is_found() -> None:
    assert sections_named('Design: docs/a.md,\n"Queue machine".') == {("a.md", "Queue machine")}
    assert sections_named('see [x](storage/b.md), "Log"') == {("storage/b.md", "Log")}
    assert sections_named('see [x](../c.md), "Log"') == {("c.md", "Log")}


def test_every_decision_has_a_number_of_its_own() -> None:
    numbers = [PurePosixPath(name).name[:4] for name in files() if name.startswith("docs/decisions/")]
    assert len(set(numbers)) == len(numbers), "two decision records share a number"
    assert all(number.isdigit() for number in numbers)
