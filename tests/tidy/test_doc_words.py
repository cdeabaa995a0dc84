"""Documents are in plain technical English, and their first sentence says what they describe."""

from __future__ import annotations

import re

import pytest

from tests.tidy.repository import text
from tests.tidy.test_docs import DOCUMENTS

# Each with what to write instead.
WORDS = {
    "anew": "again",
    "anybody": "name the party: a consumer, a node, a caller",
    "meanwhile": "say in which time: during the outage, while it is read",
    "nobody": "name the party: no consumer, no node",
    "somebody": "name the party: a consumer, a node, a caller",
    "whatever": "any",
    "whoever": "name the party: the node that, the caller that",
    "he": "name the party",
    "him": "name the party",
    "his": "its, or name the party",
}
# Written by a program, or kept as they were on their day.
EXEMPT = {"CHANGELOG.md", "docs/sqs_clients.md", "docs/sqs_compatibility.md"}
# Not swept yet. A document that passes leaves the list.
NOT_SWEPT = {
    "docs/performance.md",
    "docs/reliability.md",
    "docs/simulation.md",
    "docs/status.md",
    "docs/decisions/0015-idempotent-producers.md",
}
SWEPT = sorted(set(DOCUMENTS) - EXEMPT - NOT_SWEPT)
PAGES = [name for name in SWEPT if name.startswith("docs/") and not name.startswith("docs/decisions/")]
FENCE = re.compile(r"^ *```.*?^ *```", re.MULTILINE | re.DOTALL)


def prose(document: str) -> str:
    """Without what is code."""
    return re.sub(r"`[^`]*`", "", FENCE.sub("", text(document)))


def banned(words: str) -> list[str]:
    found = re.findall(rf"\b({'|'.join(WORDS)})\b", words, re.IGNORECASE)
    return [f"{word}: write {WORDS[word.lower()]}" for word in found]


@pytest.mark.parametrize("document", SWEPT)
def test_document_is_in_plain_words(document: str) -> None:
    assert not banned(prose(document)), document


@pytest.mark.parametrize("document", sorted(NOT_SWEPT))
def test_document_that_is_not_swept_needs_it(document: str) -> None:
    assert banned(prose(document)), f"{document} is in plain words now: take it from NOT_SWEPT"


@pytest.mark.parametrize("document", PAGES)
def test_page_begins_with_what_it_describes(document: str) -> None:
    first = text(document).split("\n\n")[1]
    assert re.match(r"This page (is|describes|lists|follows) ", first), f"{document} begins: {first[:60]}"


@pytest.mark.parametrize(
    ("words", "is_banned"),
    [
        ("Whoever asks is refused.", True),
        ("Meanwhile it waits.", True),
        ("It runs as a user.", False),
        ("whenever, the", False),
    ],
)
def test_banned_words_are_found(words: str, is_banned: bool) -> None:
    assert bool(banned(words)) is is_banned
