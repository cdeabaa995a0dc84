"""`console-link`: a one-time sign-in link to the console, as the owner of an account or as the operator."""

from __future__ import annotations

import argparse
import json
from typing import Any

from deploy import limits, management, output
from deploy.errors import EXIT_USAGE, CommandError
from deploy.installation import Installation


def run(options: argparse.Namespace) -> int:
    if options.operator == (options.account is not None):
        raise CommandError("give either --account NAME or --operator", EXIT_USAGE)
    installation = Installation(options.data_dir)
    state = installation.load_state()
    who = ["--operator"] if options.operator else [f"--account={options.account}"]
    told = management.run_manage(installation, state, ["console_link", *who, "--json"], limits.DEMO_KEY_DEADLINE_S)
    link: dict[str, Any] = json.loads(told)
    if options.json:
        output.data_json(link)
        return 0
    output.data(link["url"])
    output.say(f"The link is good once, for {link['good_for_seconds'] // 60} minutes.")
    return 0
