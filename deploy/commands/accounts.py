"""`accounts list`, and the states that operators move accounts to."""

from __future__ import annotations

import argparse

from deploy import management, output
from deploy.installation import Installation

COLUMNS = ["ACCOUNT", "NAME", "STATE", "KEYS", "QUEUES", "CREATED", "REASON"]
FIELDS = ("account_id", "name", "state", "keys", "queues", "created_at", "reason")


def run(options: argparse.Namespace) -> int:
    installation = Installation(options.data_dir)
    state = installation.load_state()
    if options.verb == "list":
        accounts = management.operate(installation, state, "operate_accounts", "list")
        if options.json:
            output.data_json(accounts)
        else:
            output.table(COLUMNS, [[str(account[field]) for field in FIELDS] for account in accounts])
        return 0
    reason = [f"--reason={options.reason}"] if getattr(options, "reason", "") else []
    moved = management.operate(installation, state, "operate_accounts", *reason, "--", options.verb, options.account)
    output.say(f"account {moved['account_id']} is {moved['state']}")
    return 0
