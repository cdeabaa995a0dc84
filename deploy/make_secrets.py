"""`python -m deploy.make_secrets DIR` makes the shared keys missing in DIR: for containers; `up` does it itself."""

from __future__ import annotations

import secrets
import sys
from pathlib import Path

from deploy.installation import SECRET_NAMES
from deploy.private_files import write_private_once


def main(arguments: list[str]) -> int:
    if len(arguments) != 1:
        sys.stderr.write("usage: python -m deploy.make_secrets DIR\n")
        return 2
    for name in SECRET_NAMES:
        write_private_once(Path(arguments[0]) / name, secrets.token_hex(32))
    return 0


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
