"""What is wrong with a policy document, and where."""

from __future__ import annotations

from enum import Enum, auto


class PolicyProblem(Enum):
    MALFORMED = auto()  # not of the grammar, or with a word that is not known
    TOO_LARGE = auto()  # more bytes or characters than a policy may have
    TOO_MANY = auto()  # more statements, principals, actions or conditions than a policy may have


class PolicyError(ValueError):
    """`path` names the member (`$.Statement[0].Effect`), `text` says what is wrong and what is allowed."""

    def __init__(self, path: str, text: str, problem: PolicyProblem = PolicyProblem.MALFORMED) -> None:
        super().__init__(f"{path}: {text}")
        self.path = path
        self.text = text
        self.problem = problem
