"""`accounts list`, `create`, the states that operators move accounts to, and what an account chose about deletions."""

from __future__ import annotations

import argparse
import shlex

from deploy import management, output
from deploy.installation import Installation

COLUMNS = ["ACCOUNT", "NAME", "TITLE", "STATE", "KEYS", "QUEUES", "CREATED", "REASON"]
FIELDS = ("account_id", "name", "title", "state", "keys", "queues", "created_at", "reason")


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
    if options.verb == "create":
        made = management.operate(installation, state, "operate_accounts", "--", "create", options.account)
        output.data(made["account_id"])
        output.say(f"It has no key yet: ./penstock keys create --account {shlex.quote(made['name'])}")
        return 0
    if options.verb == "configure":
        said = management.operate(installation, state, "operate_accounts", *rules_of(options))
        output.say(f"account {said['account_id']}: {said['rules']}")
        return 0
    reason = [f"--reason={options.reason}"] if getattr(options, "reason", "") else []
    moved = management.operate(installation, state, "operate_accounts", *reason, "--", options.verb, options.account)
    output.say(f"account {moved['account_id']} is {moved['state']}")
    return 0


def rules_of(options: argparse.Namespace) -> list[str]:
    given = [f"--deletion-protection={options.deletion_protection}"] if options.deletion_protection else []
    if options.deletion_grace_days is not None:
        given.append(f"--deletion-grace-days={options.deletion_grace_days}")
    return [*given, "--", "configure", options.account]
