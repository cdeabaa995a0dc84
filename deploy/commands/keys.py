"""`keys create`: a key for an account, which is made if it is not there."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from deploy import management, output
from deploy.errors import EXIT_USAGE, CommandError
from deploy.installation import Installation, endpoint
from deploy.limits import POLICY_FILE_BYTES_MAX


def run(options: argparse.Namespace) -> int:
    policy = None if options.policy is None else read_policy(options.policy)
    installation = Installation(options.data_dir)
    state = installation.load_state()
    key = {**management.create_key(installation, state, options.account, policy), "endpoint": endpoint(state)}
    if options.json:
        output.data_json(key)
        return 0
    for name, value in key.items():
        output.data(f"{name:18} {value}")
    output.say("The secrets are shown this once.")
    return 0


def read_policy(path: str) -> str:
    """The text of the file; `-` is stdin."""
    try:
        text = sys.stdin.read() if path == "-" else Path(path).read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise CommandError(f"the policy cannot be read: {error}", EXIT_USAGE) from None
    if len(text.encode()) > POLICY_FILE_BYTES_MAX:
        raise CommandError(f"the policy file has more than {POLICY_FILE_BYTES_MAX} bytes", EXIT_USAGE)
    return text
