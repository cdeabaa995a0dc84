"""The line on which a member of a policy stands."""

from __future__ import annotations

import pytest

from frontend.authz import line_of

TEXT = """{
  "Version": "2012-10-17",
  "Statement": [
    {"Effect": "Allow",
     "Action": ["sqs:SendMessage",
                "sqs:Receive\\"Message"],
     "Resource": "*",
     "Condition": {
       "IpAddress": {"aws:SourceIp": [
         "10.0.0.0/8", 7, true ] } }
    },
    {
      "Effect": "Deny" } ] }
"""


@pytest.mark.parametrize(
    ("path", "line"),
    [
        ("$", 1),
        ("$.Version", 2),
        ("$.Statement", 3),
        ("$.Statement[0]", 4),
        ("$.Statement[0].Action", 5),
        ("$.Statement[0].Action[1]", 6),
        ("$.Statement[0].Condition.IpAddress", 9),
        ('$.Statement[0].Condition.IpAddress["aws:SourceIp"]', 9),
        ('$.Statement[0].Condition.IpAddress["aws:SourceIp"][2]', 10),
        ("$.Statement[1].Effect", 13),
    ],
)
def test_member_stands_on_its_line(path: str, line: int) -> None:
    assert line_of(TEXT, path) == line


@pytest.mark.parametrize(
    ("path", "line"), [("$.Statement[1].Action", 12), ("$.Statement[7].Effect[1]", 3), ("$.Id", 1)]
)
def test_missing_member_is_where_it_would_stand(path: str, line: int) -> None:
    assert line_of(TEXT, path) == line


def test_text_that_is_no_json_is_wrong_where_that_shows() -> None:
    assert line_of('{\n "Version": 1,\n oops }', "$") == 3


def test_second_of_two_members_of_one_name_is_the_wrong_one() -> None:
    assert line_of('{"A": 1,\n "A": 2}', "$.A") == 2


def test_text_of_great_depth_or_size_is_not_walked() -> None:
    assert line_of("[" * 100_000, "$") == 1
    assert line_of("[" * 900 + "]" * 900, "$.Statement") == 1
    assert line_of("[]" + " " * 1_000_000, "$") == 1
