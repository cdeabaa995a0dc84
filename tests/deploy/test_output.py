"""What all commands print alike."""

from __future__ import annotations

import pytest

from deploy import output


@pytest.mark.parametrize(("count", "text"), [(0, "0 messages"), (1, "1 message"), (1234, "1,234 messages")])
def test_count_stands_with_its_noun(count: int, text: str) -> None:
    assert output.counted(count, "message") == text
