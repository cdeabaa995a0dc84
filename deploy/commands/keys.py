"""`keys create`: a key for an account, which is made if it is not there."""

from __future__ import annotations

import argparse

from deploy import management, output
from deploy.demo import data_dir_flag
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
    output.say(f"The secrets are shown once. Use them against {endpoint(state)}{data_dir_flag(installation)}")
    return 0
