"""The evaluator reads no clock, file, socket or chance, and nothing of it needs a database."""

from __future__ import annotations

import ast
from pathlib import Path

import frontend.authz

PURE = {
    "__future__", "base64", "binascii", "bisect", "collections", "datetime", "decimal", "enum", "functools",
    "ipaddress", "json", "math", "operator", "re", "types", "typing",
}  # fmt: skip


def test_evaluator_imports_what_is_pure() -> None:
    found = set()
    for path in Path(frontend.authz.__file__).parent.glob("*.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.Import):
                found |= {alias.name for alias in node.names}
            elif isinstance(node, ast.ImportFrom):
                found.add(str(node.module))
    assert not {name for name in found if name.split(".")[0] not in PURE and not name.startswith("frontend.authz")}
