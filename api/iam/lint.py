"""What is to be said of a policy while it is edited: with the line that each remark is about.

The evaluator's own parser and review say it, so what passes here is what is stored and weighed.
"""

from __future__ import annotations

from typing import NamedTuple

from frontend.authz import PolicyKind, line_of, review


class LintRemark(NamedTuple):
    """`refused` remarks keep the policy from being stored; the others tell what it will do."""

    line: int
    path: str
    text: str
    refused: bool


def lint(text: str, kind: PolicyKind, queue_arn: str | None = None) -> list[LintRemark]:
    """Refusals first, then by line. Empty where there is nothing to say."""
    found = review(text, kind, queue_arn)
    remarks = {LintRemark(line_of(text, one.path), one.path, one.text, one.refused) for one in found}
    return sorted(remarks, key=lambda one: (not one.refused, one.line, one.path, one.text))
