"""The shape of docs/glossary.md: one term an entry, one meaning a term, in order, and where the code has it."""

from __future__ import annotations

import re
from typing import NamedTuple

import pytest

from tests.tidy.repository import text

GLOSSARY = "docs/glossary.md"
TERM = re.compile(r"[A-Za-z]+(?:[- ][A-Za-z]+){0,2}")
WORDS_MAX = 40


class Entry(NamedTuple):
    term: str
    meaning: str
    where: str


def entries(document: str) -> list[Entry]:
    """The rows of its table, without the head."""
    rows = [line.strip("| ").split(" | ") for line in document.splitlines() if line.startswith("|")]
    assert all(len(row) == 3 for row in rows[2:]), "a row has a word, a meaning, and where the code has it"
    return [Entry(*row) for row in rows[2:]]


def problems(entry: Entry) -> list[str]:
    found = []
    if not TERM.fullmatch(entry.term) or " or " in entry.term:
        found.append("one word or fixed phrase an entry; a second name for the same thing is not used at all")
    sentences = re.findall(r"[.?!](?= [A-Z]|$)", re.sub(r"`[^`]*`", "x", entry.meaning))
    if not 1 <= len(sentences) <= 2 or not entry.meaning.endswith("."):
        found.append("one or two sentences, each with a full stop")
    if len(entry.meaning.split()) > WORDS_MAX:
        found.append(f"at most {WORDS_MAX} words")
    if not re.match(r"[A-Z`]", entry.meaning):
        found.append("the meaning begins like a sentence")
    if re.match(r"Of |What is ", entry.meaning):
        found.append("the meaning says what it is; a word that differs from place to place gets a longer name")
    if not re.fullmatch(r"`[^`]+`(?:, `[^`]+`){0,2}", entry.where):
        found.append("one to three names of the code, in backticks")
    return found


def test_glossary_entries_have_their_shape() -> None:
    wrong = [f"{entry.term}: {problem}" for entry in entries(text(GLOSSARY)) for problem in problems(entry)]
    assert not wrong, "\n".join(wrong)


def test_glossary_is_in_alphabetical_order() -> None:
    terms = [entry.term.lower() for entry in entries(text(GLOSSARY))]
    assert terms == sorted(terms), [term for term, right in zip(terms, sorted(terms), strict=True) if term != right][:3]


def test_glossary_gives_a_word_one_meaning() -> None:
    terms = [entry.term.lower() for entry in entries(text(GLOSSARY))]
    twice = {term for term in terms if terms.count(term) > 1}
    meanings = [entry.meaning for entry in entries(text(GLOSSARY))]
    assert not twice, f"two meanings need two words: {twice}"
    assert len(set(meanings)) == len(meanings), "two words for one thing: keep one"


@pytest.mark.parametrize(
    "entry",
    [
        Entry("key, access key", "An id.", "`Key`"),
        Entry("leader/follower", "A replica.", "`Leader`"),
        Entry("drain or empty", "To move replicas.", "`Node`"),
        Entry("tag (of a partition)", "A name.", "`Tag`"),
        Entry("epoch", "Of a group: a session.", "`Group`"),
        Entry("epoch", "the Raft term", "`Group`"),
        Entry("epoch", "The term. It rises. It never falls.", "`Group`"),
        Entry("epoch", "The Raft term.", "the Raft machine"),
    ],
)
def test_entry_of_the_wrong_shape_is_found(entry: Entry) -> None:
    assert problems(entry)


def test_entry_of_the_right_shape_passes() -> None:
    assert not problems(
        Entry("member epoch", "The number of one session. It rises with `group_join`.", "`Group`, `x.py`")
    )
