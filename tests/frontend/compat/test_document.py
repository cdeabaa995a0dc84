"""The committed document is what the suite says."""

from __future__ import annotations

from tests.frontend.compat.document import PATH, document


def test_committed_document_is_fresh() -> None:
    assert PATH.read_text() == document(), "run: python -m tests.frontend.compat.document"
