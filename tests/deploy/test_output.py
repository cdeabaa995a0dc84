"""What all commands print alike."""

from __future__ import annotations

import pytest

from deploy import output


@pytest.mark.parametrize(("count", "text"), [(0, "0 messages"), (1, "1 message"), (1234, "1,234 messages")])
def test_count_stands_with_its_noun(count: int, text: str) -> None:
    assert output.counted(count, "message") == text


def test_table_without_rows_says_so_beside_its_headings(capsys: pytest.CaptureFixture[str]) -> None:
    output.table(["QUEUE"], [], "the account has no queues")
    assert capsys.readouterr() == ("QUEUE\n", "the account has no queues\n")
    output.table(["QUEUE"], [["orders"]], "the account has no queues")
    assert capsys.readouterr() == ("QUEUE\norders\n", "")
