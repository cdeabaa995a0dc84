"""`keys create`: a key for an account, which is made if it is not there."""

from __future__ import annotations

import argparse

from deploy import management, output
from deploy.errors import EXIT_USAGE, CommandError
from deploy.installation import Installation, endpoint


def run(options: argparse.Namespace) -> int:
    if options.policy is not None:
        raise CommandError(
            "keys with an identity policy come with a later release; without --policy the key may do everything in "
            "its account",
            EXIT_USAGE,
        )
    installation = Installation(options.data_dir)
    state = installation.load_state()
    key = {**management.create_key(installation, state, options.account), "endpoint": endpoint(state)}
    if options.json:
        output.data_json(key)
        return 0
    for name, value in key.items():
        output.data(f"{name:18} {value}")
    output.say("The secrets are shown this once.")
    return 0
